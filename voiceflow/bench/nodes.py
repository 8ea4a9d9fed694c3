"""Nodes that do as little as a node can: what is measured around them is the engine.

Owns the pipelines of the benches ``hop`` and ``sessions``. One rule: the baseline calls the very same ``process`` methods.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter

from voiceflow.frames import InputAudioFrame
from voiceflow.pipeline import Pipeline
from voiceflow.processor import Processor

__all__ = ["PCM", "RATE", "Bare", "Clocked", "Counter", "Pass", "chain"]

RATE = 16000
PCM = bytes(640)
"""20 ms of silence at ``RATE``."""


class Pass(Processor):
    """Hands the frame on as it is."""

    def process(self, frame: InputAudioFrame) -> InputAudioFrame:
        """Nothing."""
        return frame


class Counter(Processor):
    """A sink that counts."""

    def __init__(self) -> None:
        self.count = 0

    def process(self, frame: InputAudioFrame) -> None:
        """Count."""
        self.count += 1


class Clocked(Processor):
    """A sink that notes how long after its ``pts`` each frame came, in seconds."""

    def __init__(self, delays_s: list[float]) -> None:
        self.delays_s = delays_s

    def process(self, frame: InputAudioFrame) -> None:
        """Note it."""
        assert frame.pts is not None
        self.delays_s.append(perf_counter() - frame.pts)


def chain(nodes: Sequence[Processor]) -> Pipeline:
    """One after the other."""
    pipeline = Pipeline(nodes[0])
    for node in nodes[1:]:
        pipeline = pipeline >> node
    return pipeline


class Bare:
    """The same nodes without an engine: each one's ``process`` called in turn."""

    def __init__(self, nodes: Sequence[Processor]) -> None:
        self.calls: list[Callable[[InputAudioFrame], InputAudioFrame]] = [node.process for node in nodes]

    def send_nowait(self, frame: InputAudioFrame) -> None:
        """Take one frame through."""
        for call in self.calls:
            frame = call(frame)
