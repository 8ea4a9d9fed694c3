"""The latency budget: what a turn waited for, and which stage took too long."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voiceflow import Frame, LLMTextFrame, OutputAudioFrame, PipelineError, Processor, Session, TurnEnded
from voiceflow.budget import STAGES, Budget, Latencies, TurnLatency
from voiceflow.frames import PlaybackStarted
from voiceflow.processors.context import Context
from voiceflow.processors.speculation import Speculation
from voiceflow.processors.text import Sentences
from voiceflow.processors.turns import Turns
from voiceflow.testing import (
    Latency,
    RecordingSink,
    Said,
    ScriptedCaller,
    ScriptedLLM,
    ScriptedSTT,
    ScriptedTTS,
    ScriptedVAD,
    run_virtual,
)

SOUND = b"\0\0" * 160


def seen(*frames: tuple[float, Frame], budget: Budget | None = None) -> list[tuple[TurnLatency, tuple[str, ...]]]:
    turns: list[tuple[TurnLatency, tuple[str, ...]]] = []
    latencies = Latencies(budget, lambda turn, over: turns.append((turn, over)))
    for at, frame in frames:
        latencies.see(frame, at)
    assert [turn for turn, _ in turns] == list(latencies.turns)
    return turns


def test_each_stage_is_what_it_added_to_the_wait() -> None:
    """The recogniser until the turn has ended, the model to its first token, the voice to its first sound, and the way to the ear."""
    ((turn, over),) = seen(
        (1.4, TurnEnded(text="When?", speech_ended=1.0)),
        (1.5, LLMTextFrame("At", utterance=1)),
        (1.6, LLMTextFrame(" nine.", utterance=1)),
        (1.75, OutputAudioFrame(pcm=SOUND, sample_rate=8000, utterance=1)),
        (1.8, PlaybackStarted(utterance=1, at=1.79)),
    )
    assert turn.stages == pytest.approx({"stt": 400, "llm": 100, "tts": 250, "playout": 40})
    assert turn.total_ms == pytest.approx(790)
    assert over == ("stt", "tts", "total")


def test_what_was_done_ahead_costs_nothing() -> None:
    """A reply that was ready when the turn ended waited for the end alone."""
    ((turn, over),) = seen(
        (1.1, LLMTextFrame("At nine.", utterance=3)),
        (1.2, OutputAudioFrame(pcm=SOUND, sample_rate=8000, utterance=3)),
        (1.3, TurnEnded(text="When?", speech_ended=1.0)),
        (1.31, PlaybackStarted(utterance=3, at=1.31)),
        budget=Budget(stt_ms=350),
    )
    assert turn.stages == pytest.approx({"stt": 300, "llm": 0, "tts": 0, "playout": 10})
    assert over == ()


def test_what_answers_nothing_is_not_measured() -> None:
    """A turn without words, sound that nobody asked for, and an answer's second sentence are no turns."""
    assert (
        seen(
            (0.5, PlaybackStarted(utterance=0, at=0.5)),
            (1.0, TurnEnded(text="", speech_ended=0.9)),
            (1.2, PlaybackStarted(utterance=0, at=1.2)),
        )
        == []
    )
    turns = seen(
        (1.0, TurnEnded(text="When?", speech_ended=0.9)),
        (1.2, PlaybackStarted(utterance=1, at=1.2)),
        (2.2, PlaybackStarted(utterance=2, at=2.2)),
    )
    assert [turn.utterance for turn, _ in turns] == [1]


times = st.floats(0, 100, allow_nan=False)


@given(times, times, times, times, times)
def test_the_stages_add_up_to_what_the_caller_felt(spoke: float, ended: float, token: float, sound: float, heard: float) -> None:
    """In whatever order the frames come: none is negative, and their sum is the wait."""
    frames: list[tuple[float, Frame]] = [
        (ended, TurnEnded(text="When?", speech_ended=spoke)),
        (token, LLMTextFrame("At", utterance=1)),
        (sound, OutputAudioFrame(pcm=SOUND, sample_rate=8000, utterance=1)),
        (heard, PlaybackStarted(utterance=1, at=heard)),
    ]
    for turn, _ in seen(*sorted(frames, key=lambda pair: pair[0])):
        assert min(turn.stages.values()) >= 0
        assert turn.total_ms == pytest.approx((heard - (spoke or ended)) * 1000, abs=1e-6)
        assert tuple(turn.stages) == STAGES


def test_many_calls_leave_little_behind() -> None:
    """What is remembered has bounds."""
    latencies = Latencies()
    for number in range(1000):
        latencies.see(TurnEnded(text="x", speech_ended=float(number)), number + 0.1)
        latencies.see(LLMTextFrame("y", utterance=number), number + 0.2)
        latencies.see(PlaybackStarted(utterance=number, at=number + 0.3), number + 0.3)
    assert len(latencies.turns) == 64
    assert len(latencies._first_token) <= 33


@pytest.mark.parametrize("wrong", [{"stt_ms": 0}, {"llm_ms": -1}, {"tts_ms": float("nan")}, {"tts_ms": float("inf")}])
def test_a_budget_of_nothing_is_refused(wrong: dict[str, Any]) -> None:
    """The error names the field."""
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Budget(**wrong)


def call(*, ahead: bool = False) -> tuple[Session, list[Processor]]:
    caller = ScriptedCaller([Said(0.5, 0.8, "when do you open")], until=4.0)
    ears = caller >> ScriptedVAD() >> ScriptedSTT(caller.texts, Latency(0.1)) >> Turns()
    gate = [Speculation()] if ahead else []
    pipeline = ears >> Context() >> ScriptedLLM(lambda messages: "At nine.", Latency(0.3, 0.01)) >> Sentences()
    for node in [*gate, ScriptedTTS(Latency(0.12)), RecordingSink()]:
        pipeline = pipeline >> node
    return Session(pipeline), pipeline.nodes


def measured(*, ahead: bool) -> TurnLatency:
    async def main() -> TurnLatency:
        session, _ = call(ahead=ahead)
        latencies = Latencies(Budget(llm_ms=250))
        latencies.watch(session)
        await session.run()
        (turn,) = latencies.turns
        return turn

    return run_virtual(main())


def test_a_turn_of_a_whole_call_is_measured(caplog: pytest.LogCaptureFixture) -> None:
    """The model's and the voice's stated latencies come out, and the log names the stage that was too slow."""
    with caplog.at_level(logging.INFO, "voiceflow"):
        turn = measured(ahead=False)
    assert turn.llm_ms == pytest.approx(300, abs=15)
    assert turn.tts_ms >= 120
    assert "over: stt, llm" in caplog.text


def test_speculation_takes_the_model_off_the_wait() -> None:
    """The same call with a gate waits less for the model."""
    assert measured(ahead=True).llm_ms < measured(ahead=False).llm_ms - 50


def test_a_pipeline_that_holds_back_more_than_the_budget_is_refused() -> None:
    """The error says which nodes hold it back."""
    _, nodes = call()
    nodes[1].holds_ms = 700
    pipeline = nodes[0] >> nodes[1]
    for node in nodes[2:]:
        pipeline = pipeline >> node
    with pytest.raises(PipelineError, match=r"the budget is 500 ms.*ScriptedVAD 700 ms"):
        Budget().check(pipeline)
    nodes[1].holds_ms = 0
    Budget().check(pipeline)
