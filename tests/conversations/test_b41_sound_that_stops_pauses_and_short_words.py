"""Case B41: sound that stops coming in mid-speech, pauses, and words too short for the detector."""

from __future__ import annotations

import asyncio
import wave
from pathlib import Path

import numpy as np
import pytest

from voiceflow import CallerIdle, Frame, InputAudioFrame, Pipeline, Session, SpeechStarted, SpeechStopped, TranscriptFrame, TurnEnded
from voiceflow.models import ModelStore
from voiceflow.processors.idle import Idle, IdleOptions
from voiceflow.processors.turns import TurnOptions, Turns
from voiceflow.processors.vad import SileroVAD, VadOptions
from voiceflow.testing import Collector

from .hearing_rig import FRAME_S, RATE, Microphone, ScriptedSilero, Segments, Spans, live
from .rig import PONG, Call, final

SETTLED = "Good, then that is settled."
STOP_S = 0.8
VAD = VadOptions(min_speech_ms=96, stop_silence_ms=STOP_S * 1000, lift_db=0.0)
RECORDING = Path(__file__).resolve().parents[1] / "data" / "amiable_himself.wav"


class Heard:
    """One caller's sound through detector, recogniser and turns: what came out, and when."""

    def __init__(self, spans: Spans, schedule: list[tuple[float, int]], *, stamped: bool = False) -> None:
        self.stt = Segments()
        self.events: list[tuple[float, Frame]] = []
        vad = ScriptedSilero(spans, VAD)
        pipeline = Pipeline(Microphone(schedule, stamped=stamped)) >> vad >> self.stt >> Turns() >> Collector()
        self.session = Session(pipeline)
        self.session.tap(self._see, source=vad.name)
        self.session.tap(self._see, source=self.stt.name)

    def _see(self, frame: Frame, source: str, target: str) -> None:
        wanted = (SpeechStarted, SpeechStopped) if source.startswith("Scripted") else (TranscriptFrame,)
        if isinstance(frame, wanted):
            self.events.append((self.session.time(), frame))

    def times(self, kind: type[Frame]) -> list[float]:
        return [at for at, frame in self.events if type(frame) is kind]


async def turns_of(heard: Heard) -> list[tuple[float, TurnEnded]]:
    ended: list[tuple[float, TurnEnded]] = []
    heard.session.tap(
        lambda frame, source, target: ended.append((heard.session.time(), frame)) if isinstance(frame, TurnEnded) else None,
        source="Turns",
    )
    await heard.session.run()
    return ended


@pytest.mark.parametrize("pause_s", [0.1, 0.3, 0.5, 0.7])
async def test_b41a_a_pause_shorter_than_the_stop_delay_is_one_turn(pause_s: float) -> None:
    """Two stretches of speech with a pause between them: one start, one stop, one transcript, one turn."""
    heard = Heard([(1.0, 2.0), (2.0 + pause_s, 3.0 + pause_s)], live(6.0))
    ended = await turns_of(heard)
    assert len(heard.times(SpeechStarted)) == len(heard.times(SpeechStopped)) == len(heard.stt.finals) == 1
    assert len(ended) == 1
    assert heard.stt.finals[0][-1] >= round((3.0 + pause_s) / FRAME_S) - 1


@pytest.mark.parametrize("stamped", [False, True])
@pytest.mark.parametrize("stall_at", [1.3, 2.0, 3.5])
async def test_b41b_sound_that_stops_in_mid_speech_ends_it_and_begins_again(stall_at: float, stamped: bool) -> None:
    """No sound for five seconds: the stop is told, and a transcript asked for, within the stop delay and a second; then a new start."""
    gone = [(at + (5.0 if at > stall_at + 1e-9 else 0.0), number) for at, number in live(6.0)]
    if stamped:
        gone = [(at, number + 250 if at > stall_at + 1e-9 else number) for at, number in gone]
    spans = [(1.0, 5.0), (stall_at + 5.0, 10.0)] if stamped else [(1.0, 5.0)]
    heard = Heard(spans, gone, stamped=stamped)
    ended = await turns_of(heard)
    first_stop, *_ = heard.times(SpeechStopped)
    assert stall_at < first_stop <= stall_at + STOP_S + 1.0
    first_final = heard.times(TranscriptFrame)[0]
    assert first_final <= stall_at + STOP_S + 1.0
    starts = heard.times(SpeechStarted)
    assert len(starts) == 2
    assert stall_at + 5.0 <= starts[1] <= stall_at + 5.5
    assert len(ended) == 2
    assert all(turn.text.startswith("heard") for _, turn in ended)
    assert ended[0][0] < stall_at + 5.0


async def test_b41b_the_idle_timer_runs_while_no_sound_comes() -> None:
    """The caller is muted in mid-speech and nothing was understood: they are idle within 2 s of the stop."""
    vad, log = ScriptedSilero([(1.0, 9.0)], VAD), Collector()
    schedule = [(at + (6.0 if at > 2.0 else 0.0), number) for at, number in live(4.0)]
    times: dict[type[Frame], float] = {}
    session = Session(Microphone(schedule) >> vad >> Segments(finds_words=False) >> Turns() >> Idle(IdleOptions(idle_s=2.0)) >> log)
    session.tap(lambda frame, source, target: times.setdefault(type(frame), session.time()))
    await session.run()
    assert times[SpeechStopped] <= 2.0 + STOP_S + 1.0
    assert times[SpeechStopped] < times[CallerIdle] <= times[SpeechStopped] + 2.1


@pytest.mark.parametrize("stamped", [False, True])
@pytest.mark.parametrize("gap_s", [0.1, 0.4, 0.7])
@pytest.mark.parametrize("gap_at", [1.2, 1.6, 2.0])
async def test_b41c_a_gap_of_the_network_and_the_burst_after_it_are_no_end(gap_at: float, gap_s: float, stamped: bool) -> None:
    """Nothing for a while and then all of it at once: one start, one stop at the true end, every frame in the one segment."""
    late = [(max(at, gap_at + gap_s) if at > gap_at else at, number) for at, number in live(6.0)]
    heard = Heard([(1.0, 3.0)], late, stamped=stamped)
    ended = await turns_of(heard)
    assert len(heard.times(SpeechStarted)) == len(heard.times(SpeechStopped)) == 1
    assert heard.times(SpeechStopped)[0] >= 3.0 + STOP_S - 0.05
    assert len(ended) == 1
    found = heard.stt.finals[0]
    assert found == list(range(found[0], found[-1] + 1))
    assert found[0] <= 36
    assert found[-1] >= 149


@pytest.mark.parametrize("text", ["yes", "no", "Yes.", "ok", "stop"])
async def test_b41d_a_word_that_the_detector_misses_is_answered(text: str) -> None:
    """The transcript alone, with no edge of speech: it is a turn, even where the word would be a backchannel over speech."""
    this = Call(SETTLED)
    async with this:
        await this.until(1.0)
        this.send(final(text))
        await this.until(3.5)
        assert [[(m.role, m.text) for m in request] for request in this.model.requests] == [[("user", text)]]
        assert this.heard() == SETTLED.split()
        assert this.model.asked_at[0] <= 1.0 + STOP_S + 0.001
        await this.alive()


@pytest.mark.parametrize("goes_on_s", [0.0, 0.1, 0.3, 0.45])
@pytest.mark.parametrize("for_s", [0.3, 1.0, 3.0])
async def test_b41e_the_turn_does_not_end_while_they_go_on(goes_on_s: float, for_s: float) -> None:
    """A missed "yes", and 0.3 s later the caller goes on: the turn ends once, after all of it, with both texts."""
    this = Call(PONG, turns=TurnOptions())
    async with this:
        await this.until(1.0)
        this.send(final("yes"))
        await this.until(1.0 + goes_on_s)
        this.send(SpeechStarted(at=this.session.time()))
        await asyncio.sleep(for_s)
        assert [frame for frame in this.turn_log if isinstance(frame, TurnEnded)] == []
        this.send(SpeechStopped(at=this.session.time(), silence=0.0), final("but not on sunday"))
        await asyncio.sleep(3.0)
        ended = [frame for frame in this.turn_log if isinstance(frame, TurnEnded)]
        assert [frame.text for frame in ended] == ["yes but not on sunday"]
        assert [m.text for m in this.model.requests[-1]] == ["yes but not on sunday"]
        assert len(this.model.requests) == 1
        await this.alive()


@pytest.mark.skipif(ModelStore().find("silero-vad") is None, reason="the model is not here; run: voiceflow models get silero-vad")
@pytest.mark.parametrize("kind", ["as it was", "gap", "stall"])
async def test_b41_a_real_voice(kind: str) -> None:
    """A person's recording through the real detector, as it was, with a gap and a burst, and cut off in mid-speech."""
    with wave.open(str(RECORDING)) as file:
        voice = np.frombuffer(file.readframes(file.getnframes()), "<i2")
    sound = np.concatenate((np.zeros(RATE, np.int16), voice, np.zeros(2 * RATE, np.int16)))
    frames = [sound[begin : begin + 320] for begin in range(0, len(sound) - 319, 320)]
    edges: list[tuple[float, Frame]] = []
    session = Session(SileroVAD(VadOptions(stop_silence_ms=STOP_S * 1000)) >> Collector(), inputs=[InputAudioFrame])
    session.tap(lambda frame, source, target: edges.append((session.time(), frame)), source="SileroVAD")
    async with session:
        for number, samples in enumerate(frames):
            if kind == "gap" and number == 120:
                await asyncio.sleep(0.4)
            if kind == "stall" and number == 120:
                break
            catching_up = kind == "gap" and 120 <= number < 140
            session.send_nowait(InputAudioFrame(samples.tobytes(), RATE))
            await asyncio.sleep(0.0 if catching_up else FRAME_S)
        await asyncio.sleep(4.0)
    starts = [at for at, frame in edges if isinstance(frame, SpeechStarted)]
    stops = [at for at, frame in edges if isinstance(frame, SpeechStopped)]
    assert len(starts) == len(stops) == 1
    assert starts[0] == pytest.approx(1.0, abs=0.4)
    if kind == "stall":
        assert 120 * FRAME_S < stops[0] <= 120 * FRAME_S + STOP_S + 1.0
    else:
        assert stops[0] == pytest.approx(1.0 + len(voice) / RATE + STOP_S, abs=0.5)
