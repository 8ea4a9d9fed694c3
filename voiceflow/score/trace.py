"""What was heard, found again in what was made: which sample at the ear is which of the agent's words.

The one rule: it looks at the sound and at nothing else. The playout keeps books about what was heard, and this is how
they are checked, so it may not read them.

Sound leaves a playout as it was made, except where it is faded. So a stretch of it stands, sample for sample, in what was
made; where it stops agreeing there was a cut. A fade is counted to the stretch it lies next to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from voiceflow.frames import OutputAudioFrame
from voiceflow.score.recording import AUDIBLE, Track

__all__ = ["BEGUN_S", "Made", "MadeWord", "Stretch", "Traced", "Utterance", "covered", "heard_words", "trace"]

Samples = npt.NDArray[np.int16]

BEGUN_S = 0.05
"""A word counts as heard when this much of it was: less is not understood as the word."""
LOOK_S = 0.01
"""So much sound is looked for at a time."""
FADE_S = 0.04
"""No fade is longer; unknown sound that is longer is sound from elsewhere."""
BACK_S = 5.0
"""How far behind the last find is looked before the whole: a resume goes back by a word."""


@dataclass(frozen=True, slots=True)
class MadeWord:
    """A word and where its sound lies in what was made: samples, ``end`` is one past the last."""

    text: str
    begin: int
    end: int
    estimated: bool


@dataclass(slots=True)
class Utterance:
    """One utterance as it was made: ``number`` as in its frames, made from ``made_at`` on."""

    number: int
    epoch: int
    made_at: float
    words: list[MadeWord] = field(default_factory=list)


class Made:
    """All sound that was made for an ear of ``rate`` Hz, in the order in which it was made. Give ``add`` every frame on every edge."""

    def __init__(self, rate: int) -> None:
        self.rate = rate
        self.utterances: list[Utterance] = []
        self._sound: list[Samples] = []
        self._begins: list[int] = []
        self._owners: list[int] = []
        self._times: list[float] = []
        self._length = 0
        self._kept: dict[int, bytes] = {}

    def add(self, frame: OutputAudioFrame, at: float) -> None:
        """A frame was on an edge. The same sound on a further edge counts once; sound of another rate is on its way to a converter."""
        if frame.sample_rate != self.rate or frame.channels != 1 or id(frame.pcm) in self._kept or not frame.pcm:
            return
        self._kept[id(frame.pcm)] = frame.pcm  # so that its id is not given to another
        last = self.utterances[-1] if self.utterances else None
        if last is None or (last.number, last.epoch) != (frame.utterance, frame.epoch):
            last = Utterance(frame.utterance, frame.epoch, at)
            self.utterances.append(last)
        for word in frame.words:
            begin, end = (self._length + round(second * self.rate) for second in (word.start, word.end))
            last.words.append(MadeWord(word.text.strip(), begin, max(begin + 1, end), word.estimated))
        self._sound.append(np.frombuffer(frame.pcm, "<i2"))
        self._begins.append(self._length)
        self._owners.append(len(self.utterances) - 1)
        self._times.append(at)
        self._length += len(self._sound[-1])

    def samples(self) -> Samples:
        """The whole of it."""
        return np.concatenate(self._sound) if self._sound else np.zeros(0, np.int16)

    def owner(self, sample: int) -> int:
        """Which utterance a sample belongs to."""
        return self._owners[int(np.searchsorted(self._begins, sample, "right")) - 1]

    def made_at(self, sample: int) -> float:
        """When a sample was made."""
        return self._times[int(np.searchsorted(self._begins, sample, "right")) - 1]

    def find(self, window: Samples, near: int = 0) -> int:
        """Where a short piece of sound stands within one frame; -1 if nowhere. The frames from sample ``near`` on are looked at first."""
        first = max(0, int(np.searchsorted(self._begins, near, "right")) - 1)
        for index in (*range(first, len(self._begins)), *range(first)):
            at = _place(self._sound[index].tobytes(), window, 0)
            if at >= 0:
                return int(self._begins[index]) + at
        return -1

    def word(self, sample: int) -> MadeWord | None:
        """The word that this sample is part of."""
        return next((word for word in self.utterances[self.owner(sample)].words if word.begin <= sample < word.end), None)

    def border(self, sample: int) -> int:
        """Where the sound of the utterance that holds this sample ends, or is broken by another's."""
        at = int(np.searchsorted(self._begins, sample, "right"))
        while at < len(self._begins) and self._owners[at] == self._owners[at - 1]:
            at += 1
        return self._begins[at] if at < len(self._begins) else self._length


@dataclass(frozen=True, slots=True)
class Stretch:
    """Sound of one utterance that was heard without a break: ``count`` samples from ``position`` of what was made.

    ``first`` is the track's sample at which it begins. ``begin`` and ``end`` are the times of its first and last audible
    sample, fades included.
    """

    utterance: int
    first: int
    position: int
    count: int
    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class Traced:
    """All that was heard. ``unknown``: (begin, end) of audible sound that was never made."""

    stretches: list[Stretch]
    unknown: list[tuple[float, float]]


def trace(track: Track, made: Made) -> Traced:
    """Find what is on the track in what was made."""
    heard, source = track.samples(), made.samples()
    written = _written(track, len(heard))
    loud = np.flatnonzero(np.abs(heard.astype(np.int32)) > AUDIBLE)
    look, raw = round(LOOK_S * track.rate), source.tobytes()
    found: list[tuple[int, int, int]] = []  # (track sample, made sample, count)
    at, ahead, start = 0, -1, 0  # ahead: by how much the made sample is ahead of the track's; start: where to look first
    while (index := int(np.searchsorted(loud, at))) < loud.size:
        at = int(loud[index])
        window = heard[at : at + look]
        place = _find(raw, source, window, ahead + at if found else -1, start) if len(window) == look else -1
        if place < 0:
            at += look // 4
            continue
        floor = found[-1][0] + found[-1][2] if found else 0
        back = _agreeing(heard[floor:at][::-1], source[:place][::-1], written[floor:at][::-1])
        at, place = at - back, place - back
        while at < len(heard) and place < len(source):  # one stretch for each utterance in it
            count = _agreeing(heard[at:], source[place : made.border(place)], written[at:])
            if not count:
                break
            found.append((at, place, count))
            at, place = at + count, place + count
        ahead = place - at
        # What was cut may go on a little before the cut; what was heard to its end will not come again.
        start = place if place == made.border(place - 1) else max(0, place - round(BACK_S * track.rate))
    return _joined(track, made, found, loud)


def _written(track: Track, length: int) -> npt.NDArray[np.bool_]:
    """Which samples of the track were handed over; the others are silence because nothing came."""
    written = np.zeros(length, bool)
    for piece in track.pieces:
        written[piece.begin : piece.end] = True
    return written


def _find(raw: bytes, source: Samples, window: Samples, expected: int, start: int) -> int:
    """Where the window stands in the source: where it is expected, else from ``start`` on, else anywhere; -1 if nowhere."""
    if 0 <= expected <= len(source) - len(window) and np.array_equal(source[expected : expected + len(window)], window):
        return expected
    near = _place(raw, window, start)
    return near if near >= 0 or not start else _place(raw, window, 0)


def _place(raw: bytes, window: Samples, start: int) -> int:
    """The first place of the window in the sound, in samples; -1 if there is none."""
    wanted = window.tobytes()
    at = raw.find(wanted, 2 * start)
    while at >= 0 and at % 2:
        at = raw.find(wanted, at + 1)
    return at // 2 if at >= 0 else -1


def _agreeing(heard: Samples, source: Samples, written: npt.NDArray[np.bool_]) -> int:
    """How many samples from the first on are equal, and were handed over."""
    length = min(len(heard), len(source))
    step, done = 4096, 0
    while done < length:
        end = min(done + step, length)
        wrong = np.flatnonzero((heard[done:end] != source[done:end]) | ~written[done:end])
        if wrong.size:
            return done + int(wrong[0])
        done, step = end, step * 4
    return length


def _joined(track: Track, made: Made, found: Sequence[tuple[int, int, int]], loud: npt.NDArray[np.intp]) -> Traced:
    """Stretches with the fades beside them, and what is left over."""
    stretches, unknown = [], []
    fade = round(FADE_S * track.rate)
    ends = 0  # one past the last sample spoken for
    for number, (at, place, count) in enumerate(found):
        following = found[number + 1][0] if number + 1 < len(found) else track.pieces[-1].end
        inside = loud[(loud >= at) & (loud < at + count)]
        if not inside.size:
            continue
        lead = _run(loud[(loud >= ends) & (loud < at)][::-1], at - 1, fade)
        tail = _run(loud[(loud >= at + count) & (loud < following)], at + count, fade)
        unknown += _spans(loud[(loud >= ends) & (loud < at - lead)], track, fade)
        first, last = (at - lead if lead else int(inside[0])), (at + count + tail if tail else int(inside[-1]) + 1)
        stretches.append(Stretch(made.owner(place), at - lead, max(0, place - lead), count + lead, track.time(first), track.time(last)))
        ends = at + count + tail
    return Traced(stretches, unknown + _spans(loud[loud >= ends], track, fade))


def _run(loud: npt.NDArray[np.intp], at: int, longest: int) -> int:
    """How many samples from `at` on a fade reaches, either way: audible ones with no gap of 1 ms or more; 0 if it is too long."""
    reach = 0
    for sample in loud[: longest + 1].tolist():
        if abs(sample - at) - reach > 24:
            break
        reach = abs(sample - at) + 1
    return reach if reach <= longest else 0


def _spans(loud: npt.NDArray[np.intp], track: Track, shortest: int) -> list[tuple[float, float]]:
    """Audible samples with no gap of 20 ms, as times; what is shorter than a fade is left out."""
    if not loud.size:
        return []
    breaks = np.flatnonzero(np.diff(loud) > 0.02 * track.rate)
    begins, ends = loud[np.concatenate([[0], breaks + 1])], loud[np.concatenate([breaks, [loud.size - 1]])] + 1
    return [(track.time(int(b)), track.time(int(e))) for b, e in zip(begins, ends, strict=True) if e - b > shortest]


def covered(
    made: Made, stretches: Sequence[Stretch], track: Track, stops: Sequence[float] = (), late_s: Sequence[float] = ()
) -> npt.NDArray[np.bool_]:
    """Which samples of what was made were heard.

    What was on its way when the agent was stopped, a block at most, had not been heard by then and does not count.
    ``late_s``: by so much later (earlier, if negative) the ear was where the track says, at each stop.
    """
    mask = np.zeros(len(made.samples()), bool)
    shifts = late_s or [0.0] * len(stops)
    underway = [(round((at + late - track.origin) * track.rate), track.left_after(at)) for at, late in zip(stops, shifts, strict=True)]
    for stretch in stretches:
        heard = np.ones(stretch.count, bool)
        for begin, end in underway:
            heard[max(0, begin - stretch.first) : max(0, end - stretch.first)] = False
        mask[stretch.position : stretch.position + stretch.count] |= heard[: len(mask) - stretch.position]
    return mask


def heard_words(made: Made, utterance: int, mask: npt.NDArray[np.bool_]) -> list[MadeWord]:
    """The words of an utterance of which enough was heard."""
    begun = round(BEGUN_S * made.rate)
    heard = []
    for word in made.utterances[utterance].words:
        if word.begin >= len(mask) or made.owner(word.begin) != utterance:
            continue  # its sound was never made
        end = min(word.end, made.border(word.begin))  # nor is what follows a broken-off word its own
        if mask[min(word.begin + begun, end) - 1 : end].any():
            heard.append(word)
    return heard
