"""What tests of speech nodes share: recordings of people, and models that are fetched once by hand."""

from __future__ import annotations

import wave
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from voiceflow.frames import InputAudioFrame
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
