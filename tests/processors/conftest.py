"""What tests of nodes share: recordings of people, models that are fetched once by hand, and what a valid history is."""

from __future__ import annotations

import json
import wave
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from voiceflow.frames import InputAudioFrame
from voiceflow.messages import Message
from voiceflow.models import ModelStore

DATA = Path(__file__).resolve().parents[1] / "data"

Samples = npt.NDArray[np.int16]


@pytest.fixture(scope="session")
def recording() -> Callable[[str], Samples]:
    """Samples of a recording of tests/data, mono at 16 kHz."""

    def read(name: str) -> Samples:
        with wave.open(str(DATA / f"{name}.wav")) as file:
            assert (file.getframerate(), file.getnchannels()) == (16000, 1)
            return np.frombuffer(file.readframes(file.getnframes()), "<i2")

    return read


@pytest.fixture(scope="session")
def model() -> Callable[[str], Path]:
    """Where a model is; the test is skipped if it is not on this machine."""

    def find(name: str) -> Path:
        store = ModelStore()
        if store.find(name) is None:
            pytest.skip(f"the model is not here; run: voiceflow models get {name}")
        return store.path(name)

    return find


@pytest.fixture(scope="session")
def frames() -> Callable[..., list[InputAudioFrame]]:
    """Mono samples cut into frames of 20 ms, the first at `pts`."""

    def cut(samples: Samples, sample_rate: int = 16000, *, pts: float | None = 0.0) -> list[InputAudioFrame]:
        size = sample_rate // 50
        return [
            InputAudioFrame(samples[i : i + size].tobytes(), sample_rate, pts=None if pts is None else pts + i / sample_rate)
            for i in range(0, len(samples), size)
        ]

    return cut


@pytest.fixture(scope="session")
def why_invalid() -> Callable[[Sequence[Message]], str]:
    """Why the strictest provider would refuse this history; "" if it would not. Written down anew, not taken from the code."""

    def look(messages: Sequence[Message]) -> str:
        texts = [(m.role, m.text.strip(), m.calls, m.call_id, m.media) for m in messages]
        ids = [call.id for m in messages for call in m.calls]
        if len(ids) != len(set(ids)) or "" in ids:
            return f"call ids {ids}"
        if sorted(ids) != sorted(m.call_id for m in messages if m.role == "tool"):
            return "calls and results do not match one to one"
        for index, (role, text, calls, _, media) in enumerate(texts):
            if role not in ("user", "assistant", "tool"):
                return f"role {role!r}"
            if role != "tool" and not text and not calls and not media:
                return f"message {index} is empty"
            if [call.id for call in calls] != [t[3] for t in texts[index + 1 : index + 1 + len(calls)]]:
                return f"the results of message {index} do not stand behind it"
            if index and role != "tool" and texts[index - 1][0] == role:
                return f"messages {index - 1} and {index} are both of the {role}"
            if not all(isinstance(json.loads(call.arguments), dict) for call in calls):
                return f"arguments in message {index}"
        return ""

    return look
