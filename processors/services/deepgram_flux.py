"""Speech to text and turn taking with Deepgram's Flux (listen v2), which says by itself when the caller begins and is done.

The one rule: Flux decides, and says so in the words of the others: its turns are edges of speech and an ``endpoint``, so turn
taking, interruption and speculation work as with any detector. Put no detector and no turn-end model beside it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from voiceflow.frames import ControlFrame, EndFrame, ErrorFrame, Frame, InputAudioFrame, Lane, SpeechStarted, SpeechStopped
from voiceflow.processor import Processor
from voiceflow.processors.services.deepgram_ears import TimedTranscript, timed
from voiceflow.processors.services.deepgram_line import ListenLine
from voiceflow.processors.services.deepgram_options import KEY_VARIABLE, FluxOptions, LineOptions
from voiceflow.processors.services.deepgram_sound import KeptSound
from voiceflow.processors.services.deepgram_wire import Configured, TurnInfo, configure, read_message
from voiceflow.processors.services.retry import ServiceError, Verdict

__all__ = ["ConfigureFlux", "DeepgramFlux", "FluxEars", "FluxOptions", "LineOptions"]

MARGIN_S = 1.5
"""Sound so short before a turn may belong to it."""


class ConfigureFlux(ControlFrame, frozen=True):
    """Other thresholds, or key terms, from now on. None leaves one as it is."""

    lane = Lane.USER

    eager_eot_threshold: float | None = None
    eot_threshold: float | None = None
    eot_timeout_ms: int | None = None
    keyterms: tuple[str, ...] | None = None

    def message(self) -> str:
        """For the service."""
        names = ("eager_eot_threshold", "eot_threshold", "eot_timeout_ms")
        return configure({name: value for name in names if (value := getattr(self, name)) is not None}, self.keyterms)


class FluxEars:
    """What is made of Flux's messages. See ``Ears`` of ``deepgram_line``. Pure: times are told."""

    said_goodbye = False

    def __init__(self, options: FluxOptions, sound: KeptSound, name: str = "") -> None:
        self._options = options
        self._sound = sound
        self._name = name
        self._is_open = False
        """A turn began, and its end was not told."""
        self._speaking = False
        self._text = ""
        self._told: TimedTranscript | None = None
        self._onset: float | None = None
        self._heard_at = self._sound_at = 0.0
        self._orphan_at: float | None = None
        """A turn that began on a connection that is lost is given up then, if it does not begin again."""

    def hears(self, now: float) -> None:
        """Sound is sent to the service."""
        if now - self._sound_at > 1.0:  # there was none for a while, and nothing to say about it
            self._heard_at = max(self._heard_at, now)
        self._sound_at = now

    def connected(self, now: float, past_marks: int) -> Sequence[Frame]:
        """An open turn is heard again from its beginning."""
        self._heard_at = now
        self._orphan_at = now + self._options.eot_timeout_ms / 1000 if self._is_open else None
        return []

    def asked(self, now: float) -> None:
        """Flux is asked nothing."""

    def read(self, data: str | bytes, now: float) -> Sequence[Frame]:
        """A message."""
        message = read_message(data, self._options.line.where)
        self._heard_at = now
        if isinstance(message, Configured) and message.failure:
            error = f"{self._options.line.where} did not take the configuration ({message.failure}): look at the thresholds"
            return [ErrorFrame(node=self._name, frame="ConfigureFlux", error=error)]
        return self._turn(message, now) if isinstance(message, TurnInfo) else []

    def _turn(self, info: TurnInfo, now: float) -> list[Frame]:
        if info.event == "EndOfTurn":
            return self._end(info, now)
        if info.event == "StartOfTurn":
            self._is_open, self._orphan_at = True, None
        if not self._is_open:
            self._sound.settle(self._sound.at(info.end - MARGIN_S))
            return []
        frames: list[Frame] = []
        if info.event in ("StartOfTurn", "TurnResumed") and not self._speaking:
            frames.append(self._begin(info, now))
        if info.text and info.text != self._text:
            self._text = info.text
            self._told = self._transcript(info, final=False)
            frames.append(self._told)
        if info.event == "EagerEndOfTurn" and self._speaking:
            frames.append(self._stop(info, now))
        return frames

    def _begin(self, info: TurnInfo, now: float) -> SpeechStarted:
        self._speaking = True
        starts = [word.start for word in info.words if word.start >= 0]
        at = info.end if info.event == "TurnResumed" else starts[0] if starts else info.start
        began = min(now, self._sound.time_at(at))
        self._onset = began if self._onset is None else self._onset
        return SpeechStarted(at=began)

    def _stop(self, info: TurnInfo, now: float) -> SpeechStopped:
        self._speaking = False
        ends = [word.end for word in info.words if word.end >= 0]
        at = min(now, self._sound.time_at(ends[-1] if ends else info.end))
        return SpeechStopped(at=at, silence=now - at)

    def _end(self, info: TurnInfo, now: float) -> list[Frame]:
        frames: list[Frame] = []
        if not self._is_open and info.text:
            frames.append(self._begin(info, now))
        if self._speaking:
            frames.append(self._stop(info, now))
        if self._is_open or info.text:
            frames.append(self._transcript(info, final=True))
        self._sound.settle(self._sound.at(info.end))
        self._close()
        return frames

    def _close(self) -> None:
        self._is_open, self._speaking, self._text, self._told, self._onset, self._orphan_at = False, False, "", None, None, None

    def _transcript(self, info: TurnInfo, *, final: bool) -> TimedTranscript:
        stable = len(info.text.split()) if final or info.event == "EagerEndOfTurn" else 0
        return TimedTranscript(
            text=info.text, final=final, confidence=info.confidence, stable=stable, endpoint=final, pts=self._onset,
            words=timed(info.words, self._sound),
        )  # fmt: skip

    @property
    def deadline(self) -> float | None:
        """See ``Ears``."""
        silent_at = self._heard_at + self._options.line.silent_s if self._sound_at > self._heard_at else None
        return min((at for at in (self._orphan_at, silent_at) if at is not None), default=None)

    def tick(self, now: float) -> Sequence[Frame]:
        """Flux tells all the time what it hears, so long as it is there."""
        if self._orphan_at is not None and now >= self._orphan_at - 1e-6:
            return self.tail(now)
        silent_s = self._options.line.silent_s
        if self._sound_at > self._heard_at and now >= self._heard_at + silent_s - 1e-6:
            raise ServiceError(f"{self._options.line.where} said nothing for {silent_s:g} s of sound", verdict=Verdict.AT_ONCE)
        return []

    def tail(self, now: float) -> Sequence[Frame]:
        """No more comes of an open turn: what is known must do."""
        if not self._is_open:
            return []
        told, onset = self._told, self._onset
        frames: list[Frame] = [SpeechStopped(at=now)] if self._speaking else []
        self._close()
        text, words = (told.text, told.words) if told is not None else ("", ())
        return [*frames, TimedTranscript(text=text, endpoint=True, stable=len(text.split()), words=words, pts=onset)]


class DeepgramFlux(Processor):
    """Turns the caller's speech into turns: ``microphone >> DeepgramFlux(options) >> Turns(options.turns()) >> context``.

    Takes sound of any rate and channels. A turn that Flux begins is ``SpeechStarted``, what it hears partial transcripts, and
    the turn's end ``SpeechStopped`` and a final transcript with ``endpoint``. With ``eager_eot_threshold`` and a
    ``Speculation(eager=Silence(0))`` a reply is begun at EagerEndOfTurn (``SpeechStopped``), and given up at TurnResumed
    (``SpeechStarted``). Connection, loss, end and errors are as with ``DeepgramSTT``; a turn under way is heard again from its start.

    ``ConfigureFlux`` comes from any node before, or from the application: ``Session(pipeline, inputs=[ConfigureFlux])``.
    """

    key_variable = KEY_VARIABLE

    def __init__(self, options: FluxOptions | None = None) -> None:
        self.options = options or FluxOptions()
        rate = self.options.sample_rate
        self.sound = KeptSound(rate, self.options.line.kept_s, chunk=max(1, round(self.options.chunk_ms * rate / 1000)))
        self.holds_ms = self.options.chunk_ms
        self.line: ListenLine
        self._ears: FluxEars

    async def start(self) -> None:
        """Find the key, and begin to connect."""
        options = self.options
        self._ears = FluxEars(options, self.sound, self.name)
        self.line = ListenLine(options.url(), options.line, self.sound, self._ears)
        self.session.spawn(self.line.run(self.name), f"{self.name}/connection")

    async def process(self, frame: InputAudioFrame | ConfigureFlux | EndFrame) -> None:
        """Take it in; everything comes from ``run``."""
        if isinstance(frame, InputAudioFrame):
            self.sound.hear(frame, self.session.time())
            self._ears.hears(self.session.time())
            self.line.look()
            self.line.wake.set()
        elif isinstance(frame, ConfigureFlux):
            self.line.configure(frame.message())
        else:
            await self.line.finished(self.options.line.tail_s)
            for last in self._ears.tail(self.session.time()):
                await self.line.frames.put(last)
            await self.line.frames.join()

    async def run(self) -> AsyncIterator[TimedTranscript | SpeechStarted | SpeechStopped | ErrorFrame]:
        """What the service says."""
        while True:
            frame: Frame = await self.line.frames.get()
            assert isinstance(frame, TimedTranscript | SpeechStarted | SpeechStopped | ErrorFrame)
            yield frame
            self.line.frames.task_done()
