"""The engine's promise, at every point where the demo's graph can wait: nothing stale, nothing lost, the next turn answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from voiceflow import Frame, InputAudioFrame, Message, Session, SessionOptions, TranscriptFrame, replace
from voiceflow.flow import Flow
from voiceflow.frames import UNSTAMPED
from voiceflow.inbox import Inbox
from voiceflow.processors.context import Context
from voiceflow.processors.text import Sentences
from voiceflow.processors.turns import Turns
from voiceflow.testing import (
    Latency,
    Probe,
    RecordingSink,
    Said,
    ScriptedCaller,
    ScriptedLLM,
    ScriptedSTT,
    ScriptedTTS,
    ScriptedVAD,
    interrupt_everywhere,
)
from voiceflow.worker import Worker

PING_AT = 2.2
UNTIL = 3.0
END = 5.0
STORY = "Once there was a dog. It had a big red ball."
PONG = "pong it is indeed."


def reply(messages: tuple[Message, ...]) -> str:
    return PONG if "ping" in messages[-1].text else STORY


def conversation(options: SessionOptions, *, stubborn: bool = False) -> Callable[[Probe], Coroutine[Any, Any, None]]:
    """One question, answered in two sentences and interrupted by the probe; then "ping", which must be answered whole."""

    async def scenario(probe: Probe) -> None:
        caller = ScriptedCaller([Said(0.1, 0.4, "tell me a story"), Said(PING_AT, 0.4, "ping")], until=UNTIL, frame_s=0.04)
        stt, llm, tts = ScriptedSTT(caller.texts), ScriptedLLM(reply, Latency(0.2, 0.01)), ScriptedTTS(stubborn=stubborn)
        vad, turns, context, sink = ScriptedVAD(), Turns(), Context(), RecordingSink()
        pipeline = caller >> vad >> stt >> turns >> context >> llm >> Sentences() >> tts >> sink
        session = Session(pipeline, options=options)
        counts = {"sound": 0, "finals": 0}

        def count(frame: Frame, source: str, target: str) -> None:
            if isinstance(frame, InputAudioFrame) and target == stt.name:
                counts["sound"] += 1
            if isinstance(frame, TranscriptFrame) and frame.final and target == turns.name:
                counts["finals"] += 1

        session.tap(count)
        probe.watch(session, sink)
        async with session:
            await asyncio.sleep(END)
            probe.finish()
            if llm.late_steps or tts.late_steps:
                probe.problems.append("a service took a step after its work was interrupted")
            if counts != {"sound": round(UNTIL / 0.04), "finals": 2}:
                probe.problems.append(f"of the caller's frames there arrived {counts}")
            interrupted_at = probe.interruption.at if probe.interruption else 0.0
            if interrupted_at < PING_AT and sink.words()[-len(PONG.split()) :] != PONG.split():
                probe.problems.append(f"the next turn was not answered: {sink.words()} {context.conversation.messages}")
            said = [m.text for m in context.conversation.messages if m.role == "assistant"]
            if " ".join(said).split() != sink.words():
                probe.problems.append(f"the context holds {said}, heard was {sink.words()}")

    return scenario


@pytest.mark.parametrize("stubborn", [False, True])
@pytest.mark.parametrize("bound", [1, 2, 8, None])
def test_interrupted_at_every_await_nothing_is_stale_and_nothing_is_lost(bound: int | None, stubborn: bool) -> None:
    """Whatever the inboxes hold, and even when the voice swallows its cancellation."""
    options = SessionOptions(cancel_timeout_s=0.3)
    if bound is not None:
        options = SessionOptions(inbox_frames=bound, inbox_audio_s=0.1 * bound, cancel_timeout_s=0.3)
    found = interrupt_everywhere(conversation(options, stubborn=stubborn))
    found.check()
    assert found.tried == found.points > 150


@pytest.mark.parametrize("bound", [1, 256])
def test_interrupted_at_every_delivery_nothing_is_stale_and_nothing_is_lost(bound: int) -> None:
    """The interrupt may come from within a node, in the middle of a synchronous chain."""
    options = SessionOptions(inbox_frames=bound, cancel_timeout_s=0.3)
    interrupt_everywhere(conversation(options, stubborn=True), at_deliveries=True).check()


def no_epoch_check(flow: Flow, frame: Frame, epoch: int) -> Frame:
    return replace(frame, epoch=epoch) if frame.epoch == UNSTAMPED else frame


def late_cancel(worker: Worker) -> int:
    """As the real one, but the task is cancelled one turn of the loop later."""
    dropped = worker.inbox.clear()
    work, task = worker.work, worker.task
    if work is not None and task is not None and not work.cancelled:

        def strike() -> None:
            if worker.work is work:
                work.cancelled = True
                task.cancel()

        asyncio.get_running_loop().call_soon(strike)
    return dropped


MUTANTS: dict[str, tuple[type, str, Any]] = {
    "no epoch check": (Flow, "stamped", no_epoch_check),
    "cancel one turn late": (Worker, "interrupt", late_cancel),
    "inbox not cleared": (Inbox, "clear", lambda inbox: 0),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutated_engine_is_found_out(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The proof can fail: each guard of the engine, taken away, leaves something stale or late."""
    owner, name, replacement = MUTANTS[mutant]
    monkeypatch.setattr(owner, name, replacement)
    options = SessionOptions(cancel_timeout_s=0.3)
    found = interrupt_everywhere(conversation(options, stubborn=mutant == "no epoch check"), stop_after_problems=1)
    with pytest.raises(AssertionError, match=r"stale|not empty|interrupted"):
        found.check()
