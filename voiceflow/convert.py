"""The node that brings sound into one format, which the pipeline inserts where two formats do not meet.

Its one rule: converting moves nothing. A word stays on the frame in which it begins, at its place in it, and ``pts``
stays the time of the frame's first sample, however much sound the resampler holds back.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from voiceflow.audio import Quality, StreamResampler, holds_ms, mix
from voiceflow.errors import PipelineError
from voiceflow.frames import AudioFormat, AudioFrame, EndFrame, InputAudioFrame, Lane, OutputAudioFrame, UtteranceEnded, Word, replace
from voiceflow.processor import Processor

if TYPE_CHECKING:
    from voiceflow.interruption import Interruption

__all__ = ["Converter"]

Convertible: TypeAlias = InputAudioFrame | OutputAudioFrame | UtteranceEnded

_SLOWEST_SOURCE = AudioFormat(8000)
"""Delay is stated for this source where the real one is not known: the lower the rate, the more is held back."""


class Converter(Processor):
    """Yields all sound in the format ``target``. Sound that is in it already passes as the same object.

    Channels are mixed as ``voiceflow.audio.mix`` does (one side must be mono), rates as ``StreamResampler`` does, at
    ``quality``. The two lanes are two streams. A stream ends, and what the resampler holds back of it is yielded,
    before its ``UtteranceEnded`` passes, when another utterance, type or format begins, and at the end of the session.
    The caller's sound never pauses, so nothing else ends that stream. An interrupt drops the agent's.

    ``sources``: the formats that will come in, None for one not known, so that ``holds_ms`` can be told exactly.

    Raises:
        PipelineError: a source that cannot be converted, when the node is made.
        ValueError: the same, when its first frame comes (a rate of 0, 6 channels to 2).
    """

    def __init__(self, target: AudioFormat, sources: Sequence[AudioFormat | None] = (), *, quality: Quality = "LIVE") -> None:
        self.makes = target
        self.target = target
        self.quality: Quality = quality
        try:
            self.holds_ms = max(_stated_hold_ms(source, target, quality) for source in sources or (None,))
        except ValueError as error:
            raise PipelineError(f"Converter to {target}: {error}") from error
        self._streams: dict[Lane, _Stream] = {}

    def process(self, frame: Convertible | EndFrame) -> Convertible | list[Convertible]:
        """See the class. Never an empty audio frame; EndFrame is answered with the tails (the session takes it on itself)."""
        # Lists, made before any of them is delivered: an interrupt on the way must find no half-done step here.
        if isinstance(frame, EndFrame):
            return [*self._finish(Lane.USER), *self._finish(Lane.AGENT)]
        if isinstance(frame, UtteranceEnded):
            return [*self._finish(Lane.AGENT), frame]
        stream = self._streams.get(frame.lane)
        if stream is not None and stream.continues_with(frame):
            return stream.push(frame)
        if frame.sample_rate == self.target.sample_rate and frame.channels == self.target.channels:
            tail = self._finish(frame.lane)
            if not frame.pcm:
                return tail
            return [*tail, frame] if tail else frame
        # Made before the old one is ended: a frame that cannot be converted raises here and breaks nothing.
        following = _Stream(frame, self.target, self.quality)
        tail = self._finish(frame.lane)
        self._streams[frame.lane] = following
        return tail + following.push(frame)

    def on_interrupt(self, interrupt: Interruption) -> None:
        """What is held back of the agent's sound will not be heard; the caller's goes on."""
        self._streams.pop(Lane.AGENT, None)

    def _finish(self, lane: Lane) -> list[Convertible]:
        stream = self._streams.pop(lane, None)
        return stream.finish() if stream is not None else []


def _stated_hold_ms(source: AudioFormat | None, target: AudioFormat, quality: Quality) -> float:
    known = source or _SLOWEST_SOURCE
    _check_channels(known.channels, target.channels)
    return holds_ms(known.sample_rate, target.sample_rate, quality)


def _check_channels(source: int, target: int) -> None:
    if source != target and 1 not in (source, target):
        raise ValueError(f"{source} channels cannot be mixed to {target}; one of the two must be 1: mix them in a node of your own before")


class _Stream:
    """One utterance, or one caller, from one format to another.

    Places are counted in target samples from the first of the stream. ``_made`` of them have been yielded.
    """

    def __init__(self, first: InputAudioFrame | OutputAudioFrame, target: AudioFormat, quality: Quality) -> None:
        _check_channels(first.channels, target.channels)
        self._target = target
        # Mixing happens on the side where there is less to resample.
        self._resampler = StreamResampler(first.sample_rate, target.sample_rate, min(first.channels, target.channels), quality)
        self._frame = first
        self._begin = 0.0  # of self._frame in the stream, in seconds
        self._taken = 0  # source samples
        self._made = 0
        self._words: list[tuple[int, Word]] = []  # not yet yielded: (place, the word with its times in the stream)

    def continues_with(self, frame: AudioFrame) -> bool:
        known = self._frame
        if type(frame) is not type(known) or frame.sample_rate != known.sample_rate or frame.channels != known.channels:
            return False
        return not isinstance(frame, OutputAudioFrame) or not isinstance(known, OutputAudioFrame) or frame.utterance == known.utterance

    def push(self, frame: InputAudioFrame | OutputAudioFrame) -> list[Convertible]:
        self._frame = frame
        self._begin = self._taken / frame.sample_rate
        self._taken += len(frame.pcm) // (2 * frame.channels)
        if isinstance(frame, OutputAudioFrame):
            self._remember(frame)
        return self._yield(self._resampler.process(mix(frame.pcm, frame.channels, self._resampler.channels)))

    def finish(self) -> list[Convertible]:
        return self._yield(self._resampler.flush())

    def _remember(self, frame: OutputAudioFrame) -> None:
        rate = self._target.sample_rate
        # The last sample there will be for what has come in: a word at the very end of a frame still gets a frame.
        last = max(math.ceil(self._taken * rate / frame.sample_rate) - 1, 0)
        for word in frame.words:
            placed = replace(word, start=self._begin + word.start, end=self._begin + word.end)
            self._words.append((min(round(placed.start * rate), last), placed))

    def _yield(self, pcm: bytes) -> list[Convertible]:
        if not pcm:
            return []
        begin = self._made / self._target.sample_rate
        self._made += len(pcm) // (2 * self._resampler.channels)
        frame = self._frame
        pcm = mix(pcm, self._resampler.channels, self._target.channels)
        pts = None if frame.pts is None else frame.pts + begin - self._begin
        form = self._target
        if not isinstance(frame, OutputAudioFrame):
            return [replace(frame, pcm=pcm, sample_rate=form.sample_rate, channels=form.channels, pts=pts)]
        ready = tuple(replace(w, start=max(w.start - begin, 0.0), end=w.end - begin) for place, w in self._words if place < self._made)
        self._words = [(place, w) for place, w in self._words if place >= self._made]
        return [replace(frame, pcm=pcm, sample_rate=form.sample_rate, channels=form.channels, pts=pts, words=ready)]
