"""Keys in the sound of a call: heard, played, and gathered to what a caller keys in.

The one rule: a key counts once, also where the carrier tells it and its tone comes through as well.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

from voiceflow.frames import AudioFormat, EndFrame, InputAudioFrame, OutputAudioFrame, TranscriptFrame, UtteranceEnded
from voiceflow.phone import DigitReceived, DigitsFrame
from voiceflow.processor import Processor
from voiceflow.processors.tones import DigitCollector, Entry, ToneDetector, key_tone
from voiceflow.tasks import woken

__all__ = ["DTMFIn", "DTMFOut", "DTMFOutOptions", "Keypad"]

SAME_S = 1.0
"""A tone and the carrier's message of it come within this of one another."""


class DTMFIn(Processor):
    """Hears keys in the caller's sound, for a line whose carrier has no message for them. Instant; hands the sound on.

    A key that also comes as a message, before or after its tone, is handed on once.
    """

    def __init__(self) -> None:
        self._detector: ToneDetector | None = None
        self._since = 0.0
        self._heard: deque[tuple[str, float]] = deque(maxlen=32)
        self._told: deque[tuple[str, float]] = deque(maxlen=32)

    def process(self, frame: InputAudioFrame | DigitReceived) -> Iterator[InputAudioFrame | DigitReceived]:
        """See the class."""
        now = self.session.time()
        if isinstance(frame, DigitReceived):
            if not _met(self._heard, frame.digit, now):
                self._told.append((frame.digit, now))
                yield frame
            return
        detector = self._detector
        if detector is None or (detector.sample_rate, detector.channels) != (frame.sample_rate, frame.channels):
            detector = self._detector = ToneDetector(frame.sample_rate, frame.channels)
        yield frame
        for key, _ in detector.feed(frame.pcm):
            if not _met(self._told, key, now):
                self._heard.append((key, now))
                yield DigitReceived(digit=key, pts=frame.pts)


def _met(others: deque[tuple[str, float]], key: str, now: float) -> bool:
    """Whether it is the other one of a pair; then the pair is done with."""
    for other in others:
        if other[0] == key and now - other[1] <= SAME_S:
            others.remove(other)
            return True
    return False


@dataclass(frozen=True, slots=True)
class DTMFOutOptions:
    """How keys are played. ``level_db``: of each of the two tones, of full scale."""

    sample_rate: int = 8000
    on_ms: float = 100.0
    off_ms: float = 70.0
    level_db: float = -12.0

    def __post_init__(self) -> None:
        if self.on_ms < 40 or self.off_ms < 40:
            raise ValueError(f"DTMFOutOptions: on_ms is {self.on_ms} and off_ms {self.off_ms}; receivers need 40 ms of each (ITU-T Q.24)")
        key_tone("1", self.sample_rate, level_db=self.level_db)


class DTMFOut(Processor):
    """Plays ``DigitsFrame`` as tones, behind what was said before it. Its place is right before the sink. Cancelling drops the keys not played."""

    def __init__(self, options: DTMFOutOptions | None = None) -> None:
        self.options = options or DTMFOutOptions()
        self.makes = AudioFormat(self.options.sample_rate)

    async def process(self, frame: DigitsFrame) -> AsyncIterator[OutputAudioFrame | UtteranceEnded]:
        """A frame of sound for each key. Keys that belong to no reply are an utterance of their own, which ends with them."""
        options = self.options
        for key in frame.digits:
            pcm = key_tone(key, options.sample_rate, on_ms=options.on_ms, off_ms=options.off_ms, level_db=options.level_db)
            yield OutputAudioFrame(pcm=pcm, sample_rate=options.sample_rate, utterance=frame.utterance)
        if not frame.utterance:
            yield UtteranceEnded(utterance=0)


class Keypad(Processor):
    """Gathers the caller's keys to an entry, and gives it as their final words: "4 2 7 1". Stands before ``Turns``. Instant.

    ``prefix`` is put before the digits, to tell the model what they are. Each key is handed on as well. An interrupt forgets nothing: what
    they key in is the caller's. ``clear`` does, before a new question. At the end of the call what was keyed in so far is an entry.
    """

    def __init__(self, collector: DigitCollector | None = None, *, prefix: str = "") -> None:
        self.collector = collector or DigitCollector()
        self.prefix = prefix
        self._wake = asyncio.Event()

    def process(self, frame: DigitReceived | EndFrame) -> Iterator[TranscriptFrame | DigitReceived]:
        """A key."""
        if isinstance(frame, DigitReceived):
            yield frame
            entry = self.collector.press(frame.digit, self.session.time())
        else:
            entry = self.collector.end()
        self._wake.set()
        if words := self._words(entry):
            yield words

    async def run(self) -> AsyncIterator[TranscriptFrame]:
        """An entry that time completes."""
        while True:
            await woken(self._wake, self.collector.deadline)
            if words := self._words(self.collector.tick(self.session.time())):
                yield words

    def clear(self) -> None:
        """Forget what was keyed in so far."""
        self.collector.clear()
        self._wake.set()

    def _words(self, entry: Entry | None) -> TranscriptFrame | None:
        if entry is None:
            return None
        return TranscriptFrame(" ".join([*filter(None, [self.prefix]), *entry.digits]), endpoint=True)
