"""The playout: a queue, in milliseconds, between the making of sound and the ear that hears it.

Its one rule: sound goes out once, in order, and what was cleared or is of an older epoch never goes out.

Frames are pushed as fast as they are made; blocks are pulled at the pace of the ear. The first frame of an utterance
goes out at once. When the queue runs dry in mid-utterance the gap is an underrun: the queue is then filled to a target
before it plays on, and the target grows; it shrinks again while there is plenty. Every place where sound is cut or set
on again is smoothed, so that nothing clicks. A far end that has a buffer of its own and can be told to throw it away is
cut by that; what it had and was not heard is kept here, and goes out again. What was heard is kept by the ``Ledger``. Pure: no await, time is passed
in. Not thread-safe: a caller with two threads holds a lock around each call (tens of microseconds).
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from voiceflow.frames import AudioFormat, Heard, OutputAudioFrame, PlaybackStarted, PlaybackStopped, WordsHeard
from voiceflow.playout.ear import DelayClock, EarClock
from voiceflow.playout.ledger import Ledger, PlacedWord
from voiceflow.playout.refill import PlayoutOptions, Refill
from voiceflow.playout.tape import Tape

__all__ = ["Playout"]

Samples = npt.NDArray[np.int16]
"""Shape (samples, channels)."""


@dataclass(slots=True)
class _Piece:
    """Pushed sound; ``start`` in the ledger's source count."""

    samples: Samples
    start: int
    epoch: int

    @property
    def end(self) -> int:
        return self.start + len(self.samples)


class Playout:
    """The queue. ``format`` is what is pushed and pulled; ``clock`` says where the ear is (default: right at the pull).

    ``recalls``: the far end throws away what it has of a cut sound when it is told to. Where ``hold`` says True and
    before a ``clear`` with ``unheard``, it is the caller's part to tell it.
    """

    def __init__(
        self, format: AudioFormat, options: PlayoutOptions | None = None, clock: EarClock | None = None, *, recalls: bool = False
    ) -> None:
        if format.sample_rate <= 0 or format.channels <= 0:
            raise ValueError(f"Playout: {format} is no audio format; give a sample rate in Hz and at least one channel")
        self.format = format
        self.options = options or PlayoutOptions()
        self.recalls = recalls
        self.ledger = Ledger(format.sample_rate, clock or DelayClock(format.sample_rate))
        self.refill = Refill(format.sample_rate, self.options)
        self.tapes: list[Tape] = []
        self.refused = 0
        """Frames of an older epoch that were stopped here."""
        self._silence: Samples = np.zeros((0, format.channels), np.int16)
        self._kept: deque[_Piece] = deque()
        """Gone out, kept while they hold what was not heard yet or a part of the current word."""
        self._ahead: deque[_Piece] = deque()
        self._at = 0
        """Next sample to go out, in the source count; it lies in the first of ``_ahead``."""
        self._queued = 0
        self._words: deque[PlacedWord] = deque()
        """The current word, the one at the ear or the pull, and those to come."""
        self._epoch = 0
        self._held = False
        self._cut_due = False
        """Held since the last pull: the fade is still to be made."""
        self._tail = self._silence
        """Goes out before all else: a fade-out or a decay."""
        self._last = np.zeros(format.channels, np.int16)
        """The last sample that went out."""
        self._fade_out = _fall(self.refill.samples(self.options.fade_ms))
        self._fade_in = self._fade_out[::-1]
        self._decay = _fall(self.refill.samples(self.options.declick_ms))
        self._risen = len(self._fade_in)
        """How far the fade-in is; its length: done."""

    # ------------------------------------------------------------------------------- what it tells

    @property
    def queued_s(self) -> float:
        """Seconds of sound waiting to go out."""
        return self._queued / self.format.sample_rate

    @property
    def available(self) -> int:
        """Samples that would go out before there was silence, but for the wait after an underrun."""
        return len(self._tail) + (0 if self._held else self._queued)

    @property
    def held(self) -> bool:
        """Between ``hold`` and ``resume``."""
        return self._held

    @property
    def idle(self) -> bool:
        """Every utterance pushed has been heard to its end, no fade is going on, and ``events`` has nothing to tell."""
        return self.ledger.idle and not len(self._tail) and not self.ledger.events

    @property
    def needs_pull(self) -> bool:
        """A pull would give sound or news. While False a pacing loop may rest; a push, end, resume or clear may change it."""
        return self.has_sound or self.needs_look

    @property
    def has_sound(self) -> bool:
        """Sound is to go out, or a gap in it to be filled."""
        if len(self._tail) or self._cut_due:
            return True
        return not self._held and (self._queued > 0 or (self.ledger.open and not self.refill.resting))

    @property
    def needs_look(self) -> bool:
        """The ear has not come to the end of what left, or has news."""
        ledger = self.ledger
        if ledger.underway or ledger.events:
            return True
        return not (self._held or self._queued or ledger.open or ledger.idle)

    def ready(self, samples: int) -> bool:
        """A pull of this many would be sound all through, or the end of what there is to say."""
        if self._held or self._cut_due or len(self._tail) >= samples:
            return len(self._tail) >= samples
        is_open = self.ledger.open
        if not self._queued or not self.refill.enough(self._queued, open=is_open):
            return False
        return not is_open or len(self._tail) + self._queued >= samples

    def unheard(self, now: float) -> bool:
        """Something that left may not have reached the ear yet. An estimate that it has is not enough."""
        self.ledger.advance(now)
        return self.ledger.unheard

    @property
    def target_ms(self) -> float:
        """What is collected after an underrun before it goes on."""
        return self.refill.target_ms

    @property
    def underruns(self) -> int:
        """How often the queue ran dry in mid-utterance."""
        return self.refill.underruns

    @property
    def underrun_ratio(self) -> float:
        """The share of speaking time that was silence for want of sound, 0 to 1."""
        return self.refill.underrun_ratio

    def events(self) -> list[PlaybackStarted | WordsHeard | PlaybackStopped]:
        """What the ear has come past since the last call, in order."""
        events, self.ledger.events = self.ledger.events, []
        return events

    # ------------------------------------------------------------------------------- pushing

    def push(self, frame: OutputAudioFrame) -> None:
        """Queue a frame. One of an older epoch than already seen is refused and counted; another format is an error."""
        if (frame.sample_rate, frame.channels) != (self.format.sample_rate, self.format.channels):
            raise ValueError(
                f"Playout plays {self.format} and was given a frame of {AudioFormat(frame.sample_rate, frame.channels)}; "
                "convert it before (a node's `takes` makes the pipeline do it)"
            )
        self._advance_epoch(frame.epoch)
        if frame.epoch < self._epoch:
            self.refused += 1
            return
        start = self.ledger.made
        samples = frame.samples
        words = self.ledger.add(frame.utterance, frame.epoch, len(samples), frame.words)
        if self.ledger.begins_at(start):
            self._begin_utterance(start)
        elif len(samples):
            self.refill.came()
        self._words.extend(words)
        if len(samples):
            self._ahead.append(_Piece(samples, start, frame.epoch))
            self._queued += len(samples)

    def end(self, utterance: int | None = None) -> None:
        """All sound of ``utterance`` was made (None: of the one being made): what is queued is its end."""
        self.ledger.end(utterance)
        if not self.ledger.open:
            self._end_words(self.ledger.made)
        if not self._queued and not self.ledger.open:
            self.refill.reset()

    def _begin_utterance(self, start: int) -> None:
        self._end_words(start)
        if not self._queued:
            # The one before was all heard: that was its end and no underrun, and the first frame goes out at once.
            self.refill.reset()
            self._risen = len(self._fade_in)

    def _end_words(self, end: int) -> None:
        """No word goes on behind the sound it belongs to, whatever its timing says."""
        for word in self._words:
            word.end = min(word.end, end)

    def _advance_epoch(self, epoch: int) -> None:
        """Throw out what is older than ``epoch``: the second guard, behind ``clear``."""
        if epoch <= self._epoch:
            return
        self._epoch = epoch
        while self._kept and self._kept[0].epoch < epoch:
            self._kept.popleft()
        first, dropped = self._at, 0
        while self._ahead and self._ahead[0].epoch < epoch:
            dropped += self._ahead.popleft().end - self._at
            self._at = self._ahead[0].start if self._ahead else self.ledger.made
            self.refused += 1
        if dropped:
            self._queued -= dropped
            self.ledger.refuse(first, self._at)
            self._stop_dead()

    # ------------------------------------------------------------------------------- pulling

    def pull(self, samples: int, now: float, epoch: int, due: float | None = None) -> bytes:
        """Exactly ``samples`` samples per channel for the ear, silence where there is nothing; nothing older than ``epoch``.

        ``due``: when they are to sound, if they leave before (default: now).
        """
        if samples < 0:
            raise ValueError(f"Playout.pull: cannot pull {samples} samples")
        self._advance_epoch(epoch)
        self.ledger.pulling(now if due is None else due)
        if self._cut_due:
            self._cut_for_hold()
        out: Samples = np.zeros((samples, self.format.channels), "<i2")
        done = self._write_tail(out)
        if not self._held:
            done = self._write_sound(out, done)
        self.ledger.silence(samples - done)
        if samples:
            self._last = out[-1].copy()
        self.ledger.advance(now)
        pcm = out.tobytes()
        for tape in self.tapes:
            tape.left(self.ledger.left - samples, pcm, now if due is None else due)
        return pcm

    def look(self, now: float) -> None:
        """Bring the ear up to ``now`` without a pull: nothing is to go out, and the sound that left has ended."""
        self.ledger.advance(now)
        self._last = np.zeros(self.format.channels, np.int16)

    def _write_tail(self, out: Samples) -> int:
        count = min(len(self._tail), len(out))
        out[:count] = self._tail[:count]
        self._tail = self._tail[count:]
        self.ledger.silence(count)
        return count

    def _write_sound(self, out: Samples, done: int) -> int:
        """Fill ``out`` from ``done`` on as far as there is sound. Returns how far it came."""
        is_open = self.ledger.open
        if self.refill.waiting:
            if not self.refill.goes_on(self._queued, open=is_open):
                self.refill.wait(len(out) - done)
                return done
            self._risen = 0
        count = min(len(out) - done, self._queued)
        if count:
            self._take(out[done : done + count])
            self.refill.sound(count, self._queued, open=is_open)
            done += count
        missing = len(out) - done
        if missing and is_open and self.refill.ran_dry(missing):
            self._tail = self._decay_from(out[done - 1] if done else self._last)
            done += self._write_tail(out[done:])
        return done

    def _take(self, out: Samples) -> None:
        """Move the next ``len(out)`` samples out of the queue."""
        done = 0
        while done < len(out):
            piece = self._ahead[0]
            count = min(piece.end - self._at, len(out) - done)
            offset = self._at - piece.start
            out[done : done + count] = piece.samples[offset : offset + count]
            self.ledger.speech(self._at, count)
            self._at += count
            done += count
            if self._at == piece.end:
                self._kept.append(self._ahead.popleft())
        self._queued -= done
        rising = min(len(self._fade_in) - self._risen, done)
        if rising:
            _scale(out[:rising], self._fade_in[self._risen : self._risen + rising])
            self._risen += rising
        self._forget()

    def _forget(self) -> None:
        """Drop what no resume can want any more: what the ear has had, but for the current word."""
        at = self.ledger.unheard_from(self._at)
        words = self._words
        while words and (words[0].end <= at or (len(words) > 1 and words[1].start <= at)):
            words.popleft()
        start = self._start_of_word(at)
        while self._kept and self._kept[0].end <= start:
            self._kept.popleft()

    def _start_of_word(self, at: int) -> int:
        """Where the word being said at ``at`` began; there, between words."""
        begun = list(itertools.takewhile(lambda word: word.start < at, self._words))
        if begun and begun[-1].end > at:
            return max(begun[-1].start, at - self.refill.samples(self.options.replay_ms))
        return at

    # ------------------------------------------------------------------------------- hold, resume, clear

    def hold(self, now: float, *, lost: bool = False) -> bool:
        """Be silent until ``resume``: by a fade-out in the next pull, or by taking back what left and was not heard.

        ``lost``: what left and was not heard never will be, even if it cannot be recalled. True: something was taken back, and the
        far end must throw away what it has. What is pushed meanwhile waits.
        """
        self.ledger.advance(now)
        taken_back = self.ledger.underway
        if self._held and not (lost and taken_back):
            return False
        self._held = True
        self._cut_due = not (self.recalls or lost)
        if self._cut_due:
            return False
        self._forget()
        back = self._start_of_word(self.ledger.unheard_from(self._at))
        if taken_back:
            self.ledger.take_back(now)
            self._cut_tapes(self.tapes)
        self.refill.reset()
        self._end_sound()
        self._go_back(back)
        return taken_back

    def resume(self, now: float) -> None:
        """Go on from the start of the cut word, with a fade-in. Without a hold: nothing."""
        self.ledger.advance(now)
        self._held = self._cut_due = False

    def clear(self, now: float) -> tuple[Heard, ...]:
        """Throw out everything, at once; ends a hold. Returns what was heard of each utterance in hand, oldest first.

        No sample of it goes out after this. Where the sound stood at a level, that level decays to zero first; not so
        at a far end that throws away what it has.
        """
        heard = self.ledger.cut(now)
        self._cut_tapes(self.tapes if self.recalls else ())
        self._ahead.clear()
        self._queued = 0
        self._at = self.ledger.made
        self._held = False
        self._stop_dead()
        return heard

    def _cut_tapes(self, tapes: Iterable[Tape]) -> None:
        for tape in tapes:
            tape.cut(self.ledger.cut_at)

    def _stop_dead(self) -> None:
        """The present sound ends here, at the last sample that went out."""
        self._kept.clear()
        while self._words and self._words[0].start < self._at:
            self._words.popleft()
        self.refill.reset()
        self._cut_due = False
        self._risen = len(self._fade_in)
        self._end_sound()

    def _end_sound(self) -> None:
        """Let the level of the last sample decay. Not so where the far end was cut where it was: no fade could join that."""
        self._tail = self._silence if self.recalls else self._decay_from(self._last)
        if self.recalls:
            self._last = np.zeros(self.format.channels, np.int16)

    def _cut_for_hold(self) -> None:
        """Make the fade-out from what would have come next, and go back to the start of the word it cuts."""
        self._cut_due = False
        length = len(self._fade_out)
        if len(self._tail):
            pass  # a fade is going out already, and silence comes behind it
        elif not self.refill.waiting and self._queued >= length > 0:
            ahead = self._peek(length)
            rising = len(self._fade_in) - self._risen
            _scale(ahead[:rising], self._fade_in[self._risen :])
            _scale(ahead, self._fade_out)
            # Before the first sample of an utterance there is nothing to fade.
            self._tail = self._silence if self.ledger.begins_at(self._at) else ahead
        else:
            self._tail = self._decay_from(self._last)
        self._go_back(self._start_of_word(self._at))

    def _go_back(self, back: int) -> None:
        """Say again what is from ``back`` on, as far as it is kept."""
        cut = self._at
        while self._kept and self._kept[-1].end > back:
            self._ahead.appendleft(self._kept.pop())
        if self._ahead:
            self._at = max(back, self._ahead[0].start)
            self._queued += cut - self._at
        if not self.ledger.begins_at(self._at):
            self._risen = 0

    def _peek(self, count: int) -> Samples:
        """A copy of the next ``count`` samples."""
        parts: list[Samples] = []
        offset = self._at - self._ahead[0].start
        for piece in self._ahead:
            parts.append(piece.samples[offset : offset + count])
            count -= len(parts[-1])
            offset = 0
            if not count:
                break
        return np.concatenate(parts)

    def _decay_from(self, sample: Samples) -> Samples:
        """The level of ``sample`` falling to zero."""
        if not sample.any():
            return self._silence
        level: Samples = np.rint(self._decay[:, None] * sample).astype(np.int16)
        return level


def _fall(count: int) -> npt.NDArray[np.float64]:
    """Gains from just under 1 to just over 0 along half a cosine, whose steepest step is pi / 2 / count."""
    steps = np.arange(1, count + 1) / (count + 1)
    return 0.5 * (1 + np.cos(math.pi * steps))


def _scale(samples: Samples, gains: npt.NDArray[np.float64]) -> None:
    """Multiply in place, one gain a sample."""
    samples[:] = np.rint(samples * gains[:, None])
