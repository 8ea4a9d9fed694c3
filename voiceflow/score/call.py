"""One scene as a call: a session of the agent between the scene's caller and an ear that records.

The one rule: the agent is run as it is. What is measured is seen by taps on its edges and heard at its sink.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from voiceflow.apps import App, AppError
from voiceflow.errors import VoiceflowError
from voiceflow.frames import (
    AudioFormat,
    ErrorFrame,
    Frame,
    HoldFrame,
    OutputAudioFrame,
    PlaybackStarted,
    PlaybackStopped,
    ResumeFrame,
    SayFrame,
    SpeechStarted,
    SpeechStopped,
    TranscriptFrame,
    TurnEnded,
    TurnScored,
    TurnStarted,
)
from voiceflow.interruption import Interruption
from voiceflow.messages import Message
from voiceflow.pipeline import Pipeline
from voiceflow.processor import Processor
from voiceflow.processors.context import Context
from voiceflow.score.caller import CALLER_RATE, Air, CallerLine, Patience, Play
from voiceflow.score.recording import Recording, Track
from voiceflow.score.scenes import Scene
from voiceflow.score.trace import Made
from voiceflow.session import Session
from voiceflow.transports.speaker import Speaker

__all__ = ["Call", "MakeAir", "hold_call", "voice_format"]

MakeAir = Callable[[Scene, Track, Made], Air]
"""Makes the caller's surroundings: of a scene, what is heard of the agent, and what it makes."""

Change = Callable[[Pipeline], Pipeline]


@dataclass(slots=True)
class Call:
    """All that is left of a scene."""

    scene: Scene
    play: Play
    recording: Recording
    made: Made
    stops: tuple[Interruption, ...] = ()
    holds: list[float] = field(default_factory=list)
    """When the playout was held."""
    turns: list[tuple[float, str]] = field(default_factory=list)
    """What the agent took for the caller's turns."""
    messages: tuple[Message, ...] | None = None
    """The conversation as the agent's context has it; None if it keeps none."""
    log: list[tuple[float, str]] = field(default_factory=list)
    """What happened, in words."""
    failures: list[str] = field(default_factory=list)
    hung_up_at: float = float("inf")


class _Watch:
    """Sees every frame on every edge once."""

    def __init__(self, call: Call, clock: Callable[[], float]) -> None:
        self._call = call
        self._clock = clock
        self._seen: dict[int, Frame] = {}

    def __call__(self, frame: Frame, source: str, target: str) -> None:
        if isinstance(frame, OutputAudioFrame):
            self._call.made.add(frame, self._clock())
        elif isinstance(frame, _WATCHED) and id(frame) not in self._seen:
            self._seen[id(frame)] = frame  # kept, so that its id is not given to another
            self._note(frame)

    def _note(self, frame: Frame) -> None:
        call, now = self._call, self._clock()
        if isinstance(frame, PlaybackStarted):
            call.play.agent_began(frame.at)
        elif isinstance(frame, PlaybackStopped):
            call.play.agent_stopped(frame.at)
        elif isinstance(frame, HoldFrame):
            call.holds.append(now)
        elif isinstance(frame, TurnEnded):
            call.turns.append((now, frame.text))
        elif isinstance(frame, ErrorFrame):
            call.failures.append(f"{frame.node} failed on {frame.frame}: {frame.error}")
        call.log.append((now, _told(frame, call.recording.origin)))


_WATCHED = (
    ErrorFrame,
    HoldFrame,
    PlaybackStarted,
    PlaybackStopped,
    ResumeFrame,
    SpeechStarted,
    SpeechStopped,
    TranscriptFrame,
    TurnEnded,
    TurnScored,
    TurnStarted,
)


def _told(frame: Frame, origin: float) -> str:
    name = type(frame).__name__
    if isinstance(frame, TranscriptFrame):
        return f"{name} {'final' if frame.final else 'partial'} {frame.text!r}"
    if isinstance(frame, TurnEnded):
        return f"{name} {frame.text!r}: {frame.why}"
    if isinstance(frame, HoldFrame | ResumeFrame | TurnStarted):
        return f"{name}: {frame.why}"
    if isinstance(frame, PlaybackStopped):
        return f"{name} {frame.heard.utterance} {frame.heard.text!r}"
    if isinstance(frame, PlaybackStarted):
        return f"{name} {frame.utterance}"
    if isinstance(frame, SpeechStarted | SpeechStopped):
        return f"{name} at {frame.at - origin:.2f}, {'?' if frame.level_db is None else round(frame.level_db)} dB"
    if isinstance(frame, TurnScored):
        return f"{name} {frame.probability:.2f}"
    return f"{name} {frame!r}"


def voice_format(app: App) -> AudioFormat:
    """The format of the agent's voice, so that nothing stands between it and the ear; 24 kHz if it does not say."""
    try:
        pipeline = app(_Nobody(), Speaker(lambda pcm: None))
    except VoiceflowError:
        raise
    except Exception as error:
        raise AppError(f"the application raised {type(error).__name__} when its pipeline was built: {error}") from error
    if not isinstance(pipeline, Pipeline):
        raise AppError(f"the application returned {type(pipeline).__name__}, not a pipeline: it is a function of (source, sink)")
    formats = {node.makes for node in pipeline.nodes if node.makes and any(issubclass(t, OutputAudioFrame) for t in node.contract.yields)}
    known = [format for format in formats if format.channels == 1]
    return known[0] if len(known) == 1 else AudioFormat(24000)


class _Nobody(CallerLine):
    """A caller who never comes: to look at a pipeline."""

    def __init__(self) -> None:
        self.texts, self.levels, self.late = [], {}, {}


async def hold_call(
    app: App, scene: Scene, make_air: MakeAir, format: AudioFormat, *, patience: Patience | None = None, changes: Sequence[Change] = ()
) -> Call:
    """Play one scene to an agent. ``changes`` are made to its pipeline before.

    Raises VoiceflowError if the pipeline cannot be built; whatever goes wrong in the call is among ``failures``.
    """
    loop = asyncio.get_running_loop()
    recording, made = Recording(CALLER_RATE, format.sample_rate, loop.time), Made(format.sample_rate)
    air = make_air(scene, recording.agent, made)
    play = Play(scene, air, patience or Patience())
    call = Call(scene, play, recording, made)
    pipeline = app(CallerLine(play, air, recording.caller), Speaker(recording.play, format))
    for change in changes:
        pipeline = change(pipeline)
    session = Session(pipeline, inputs=[SayFrame] if scene.agent_says else [])
    session.tap(_Watch(call, loop.time))
    try:
        await _live(session, scene)
    except ExceptionGroup as group:
        call.failures += [f"the session ended: {error}" for error in group.exceptions]
    call.stops = session.interruptions
    call.hung_up_at = recording.caller.time(len(recording.caller.samples()))
    call.log += [(stop.at, f"Interrupt: {stop.reason}; heard {[heard.text for heard in stop.heard]}") for stop in call.stops]
    call.log.sort(key=lambda entry: entry[0])
    context = _context(pipeline.nodes)
    call.messages = None if context is None else context.conversation.messages
    return call


def _context(nodes: Sequence[Processor]) -> Context | None:
    return next((node for node in nodes if isinstance(node, Context)), None)


async def _live(session: Session, scene: Scene) -> None:
    running = asyncio.get_running_loop().create_task(session.run(), name="session")
    try:
        await asyncio.sleep(0)
        await session.started()
        if scene.agent_says and session.state == "running":
            await session.send(SayFrame(scene.agent_says))
    except VoiceflowError:
        session.cancel()
        raise
    finally:
        await running
