"""A scene's call, judged: what was measured, and what of it was not as the scene expects.

The one rule: times come from the sound at the ears. The caller's are those of the first and last audible sample that was
sent, the agent's those of what was heard, found again in what was made (``trace``). The definitions stand in
``docs/scorecard.md``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from voiceflow.score.call import Call
from voiceflow.score.caller import Done
from voiceflow.score.recording import AUDIBLE, Track
from voiceflow.score.trace import BEGUN_S, MadeWord, Stretch, covered, heard_words, trace
from voiceflow.score.words import aligned, normal_words

__all__ = ["YIELD_S", "Figures", "Spoken", "measure"]

YIELD_S = 2.0
"""An agent that has not fallen silent by then has not yielded (tau-voice's no-yield window)."""
GAP_S = 0.04
"""A shorter silence within an utterance is none."""
LATELY_S = 5.0
SILENCE_S = 0.1
"""A longer hole between two blocks is silence that was meant."""
HOLD_S = 0.25
"""A gap in the sound belongs to a hold that was asked for so shortly before."""


@dataclass(slots=True)
class Figures:
    """What a scene gave. Times in ms, everything else counted. ``problems``: what was not as expected, empty if all was."""

    problems: list[str] = field(default_factory=list)
    response_ms: list[int] = field(default_factory=list)
    yield_ms: list[int] = field(default_factory=list)
    hold_ms: list[int] = field(default_factory=list)
    barge_ins: int = 0
    missed_barge_ins: int = 0
    distractions: int = 0
    """What was to leave the agent talking, or silent."""
    false_yields: int = 0
    false_replies: int = 0
    talked_over: int = 0
    unanswered: int = 0
    clipped_first_words: int = 0
    caller_words: int = 0
    caller_word_errors: int = 0
    unheard_words_in_context: int = 0
    heard_words_missing: int = 0
    stale_ms: int = 0
    repeated_words: int = 0
    gaps_ms: list[int] = field(default_factory=list)
    """Silences within an utterance that no hold explains: the sound was not there in time."""


@dataclass(slots=True)
class Spoken:
    """An utterance as it was heard."""

    number: int
    begin: float
    end: float
    stretches: list[Stretch]
    made: list[MadeWord]
    heard: list[MadeWord]
    is_whole: bool = False
    """Heard to its end."""
    is_used: bool = False
    """Something called for it."""

    @property
    def text(self) -> str:
        """The words that were heard."""
        return " ".join(word.text for word in self.heard)


def measure(call: Call) -> Figures:
    """Judge a scene's call."""
    figures = Figures(problems=list(call.failures))
    if not call.recording.agent.pieces and not call.play.done and call.failures:
        return figures
    judge = _Judge(call, figures)
    judge.outcomes()
    judge.sound()
    judge.caller_words()
    judge.context()
    return figures


class _Judge:
    def __init__(self, call: Call, figures: Figures) -> None:
        self.call = call
        self.figures = figures
        self.traced = trace(call.recording.agent, call.made)
        stops = [stop.at for stop in call.stops]
        self.mask = covered(call.made, self.traced.stretches, call.recording.agent, stops)
        self.spoken = self._spoken()
        self.given_up: list[Spoken] = []
        self.opening = self.spoken[0] if call.scene.agent_says and self.spoken and not self.spoken[0].number else None
        if self.opening is not None:
            self.opening.is_used = True

    def problem(self, text: str) -> None:
        self.figures.problems.append(text)

    def _spoken(self) -> list[Spoken]:
        """Utterances in the order in which they were first heard; sound after the caller has hung up is nobody's."""
        made, groups = self.call.made, dict[tuple[int, int], list[Stretch]]()
        for stretch in self.traced.stretches:
            utterance = made.utterances[stretch.utterance]
            # Number 0 is whatever is said without a reply being asked for: each is an utterance by itself.
            key = (utterance.number, utterance.epoch if utterance.number else -1 - stretch.utterance)
            groups.setdefault(key, []).append(stretch)
        found = []
        for (number, _), stretches in groups.items():
            if stretches[0].begin >= self.call.hung_up_at:
                continue
            words = [word for owner in sorted({s.utterance for s in stretches}) for word in made.utterances[owner].words]
            spoken = Spoken(number, min(s.begin for s in stretches), max(s.end for s in stretches), stretches, words, [])
            spoken.heard = self._words(spoken, self.mask)
            found.append(spoken)
        found.sort(key=lambda spoken: spoken.begin)
        for index, spoken in enumerate(found):
            spoken.is_whole = self._is_whole(spoken, is_first=index == 0)
        return found

    def _is_whole(self, spoken: Spoken, *, is_first: bool) -> bool:
        """Its last word was heard, all its text was made, and nobody stopped it."""
        if not spoken.made or spoken.made[-1] not in spoken.heard:
            return False
        says = self.call.scene.agent_says
        if is_first and says and not spoken.number and len(normal_words(" ".join(w.text for w in spoken.made))) < len(normal_words(says)):
            return False
        return not any(spoken.begin <= stop.at <= spoken.end for stop in self.call.stops)

    # ------------------------------------------------------------------------------------------ what was done

    def outcomes(self) -> None:
        call, done = self.call, self.call.play.done
        if call.scene.agent_says and self.opening is None:
            self.problem("the agent was never heard to say what it was told to")
        if call.play.waited_in_vain is not None:
            self.problem(f"do[{call.play.waited_in_vain}]: its moment never came, the agent did not speak")
        for index, action in enumerate(done):
            # What is to change nothing does not end the time for an answer either.
            self._outcome(action, next((d for d in done[index + 1 :] if d.action.expect not in ("keeps", "ignored")), None))
        if not done and call.scene.expect == "keeps" and self.opening is not None:
            self._kept(None)
        self._unasked()

    def _outcome(self, action: Done, following: Done | None) -> None:
        expect = action.action.expect
        if expect == "keeps":
            self._kept(action)
        elif expect == "ignored":
            self.figures.distractions += 1
        elif expect == "continues":
            self._continued(action, following)
        if expect in ("yields", "stops"):
            self._yielded(action)
        if expect in ("yields", "answered"):
            self._answered(action, following)
        elif expect == "stops" and (reply := self._reply_to(action, following)) is not None:
            reply.is_used = True

    def _current(self, at: float) -> Spoken | None:
        """What was being said, or had been said last."""
        return next((spoken for spoken in reversed(self.spoken) if spoken.begin < at), None)

    def _reply_to(self, action: Done, following: Done | None) -> Spoken | None:
        until = following.begin if following is not None else float("inf")
        return next((s for s in self.spoken if action.begin < s.begin < until and not s.is_used), None)

    def _kept(self, action: Done | None) -> None:
        """None: there was nothing but what lies over the whole call."""
        self.figures.distractions += 1
        current = self.opening if action is None else self._current(action.begin)
        if current is None or current.is_whole or current in self.given_up:
            return
        cut_in = next((d for d in self.call.play.done if d.action.expect in ("yields", "stops") and d.begin > current.begin), None)
        if cut_in is not None and current.end > cut_in.begin:
            return
        self.given_up.append(current)  # counted once, however many sounds there were
        self.figures.false_yields += 1
        self.problem(
            f"false yield: the agent gave up after {current.text[-40:]!r}, {'by itself' if action is None else 'on ' + _name(action)}"
        )

    def _yielded(self, action: Done) -> None:
        self.figures.barge_ins += 1
        current = self._current(action.begin)
        if current is None or current.end <= action.begin:
            self.problem(f"{_name(action)}: there was nothing to interrupt")
            return
        after_s = current.end - action.begin
        if current.is_whole or after_s > YIELD_S:
            self.figures.missed_barge_ins += 1
            self.problem(f"missed barge-in: the agent talked on for {after_s * 1000:.0f} ms over {_name(action)}")
        else:
            self.figures.yield_ms.append(round(after_s * 1000))

    def _answered(self, action: Done, following: Done | None) -> None:
        reply = self._reply_to(action, following)
        if reply is None:
            self.figures.unanswered += 1
            self.problem(f"{_name(action)} was not answered")
            return
        reply.is_used = True
        latency_s = reply.begin - action.end
        if latency_s <= 0:
            self.figures.talked_over += 1
            self.problem(f"the agent answered {-latency_s * 1000:.0f} ms before {_name(action)} was over")
        else:
            self.figures.response_ms.append(round(latency_s * 1000))
        if following is None and not reply.is_whole:
            self.problem(f"the answer to {_name(action)} broke off after {reply.text[-40:]!r}")

    def _continued(self, action: Done, following: Done | None) -> None:
        until = following.end if following is not None else action.end
        over = next((s for s in self.spoken if action.begin < s.begin < until and not s.is_used), None)
        if over is not None:
            over.is_used = True
            self.figures.talked_over += 1
            self.problem(
                f"the agent took the turn {(over.begin - action.end) * 1000:.0f} ms after {_name(action)}, and the caller had not finished"
            )

    def _unasked(self) -> None:
        for spoken in self.spoken:
            if not spoken.is_used:
                self.figures.false_replies += 1
                self.problem(f"the agent spoke unasked: {spoken.text[:40]!r}")
        if self.opening is not None and not self.opening.is_whole and self.opening not in self.given_up and not self._was_cut(self.opening):
            self.problem(f"the agent's own words broke off after {self.opening.text[-40:]!r}")

    def _was_cut(self, spoken: Spoken) -> bool:
        """Something that it is to yield to came while it was being said."""
        return any(d.action.expect in ("yields", "stops") and spoken.begin < d.begin < spoken.end for d in self.call.play.done)

    # ---------------------------------------------------------------------------------------------- the sound

    def sound(self) -> None:
        for spoken in self.spoken:
            self._breaks(spoken)
            first = spoken.made[0] if spoken.made else None
            if first is not None and spoken.heard and self._lost_its_onset(first):
                self.figures.clipped_first_words += 1
                self.problem(f"clipped: the beginning of {first.text!r} was not heard, and the rest was")
        self._stale()

    def _lost_its_onset(self, word: MadeWord) -> bool:
        """There was something to hear at the beginning of the word, and nothing of it was heard."""
        begin, end = word.begin, min(word.end, word.begin + round(BEGUN_S * self.call.made.rate))
        onset = self.call.made.samples()[begin:end].astype(np.int32)
        return bool((np.abs(onset) > AUDIBLE).any()) and not self.mask[begin:end].any()

    def _breaks(self, spoken: Spoken) -> None:
        """Silences within an utterance, and where it went on behind them."""
        rate, made = self.call.made.rate, self.call.made
        for before, after in zip(spoken.stretches, spoken.stretches[1:], strict=False):
            cut = before.position + before.count
            gap_s = (after.first - before.first - before.count) / rate
            is_hold = any(before.begin <= at <= after.begin and at >= before.end - HOLD_S for at in self.call.holds)
            if gap_s >= GAP_S:
                (self.figures.hold_ms if is_hold else self.figures.gaps_ms).append(round(gap_s * 1000))
            word = made.word(cut)  # the one that was cut, unless the cut lay between words
            back = min(word.begin, cut) if word is not None else cut
            again = [w for w in spoken.made if after.position <= w.begin < back and w.end <= cut]
            if again:
                self.figures.repeated_words += len(again)
                self.problem(f"a resume said {' '.join(w.text for w in again)!r} again, which had not been cut")

    def _stale(self) -> None:
        """Sound that was made before a stop and left after it."""
        track, made = self.call.recording.agent, self.call.made
        total = 0
        loud = np.abs(track.samples().astype(np.int32)) > AUDIBLE
        for number, stop in enumerate(self.call.stops):
            first = track.left_after(stop.at)
            until = track.left_after(self.call.stops[number + 1].at) if number + 1 < len(self.call.stops) else len(loud)
            old = np.zeros(len(loud), bool)
            for stretch in self.traced.stretches:
                if made.made_at(stretch.position) < stop.at - 1e-9 or self._is_replayed(stretch, stop.at):
                    old[stretch.first : stretch.first + stretch.count] = True
            reply = next((s.stretches[0].first for s in self.spoken if s.begin > stop.at and not old[s.stretches[0].first]), until)
            for begin, end in self.traced.unknown:
                if stop.at <= begin < track.time(reply):
                    old[round((begin - track.origin) * track.rate) : round((end - track.origin) * track.rate)] = True
            total += int((old & loud)[first:until].sum())
        self.figures.stale_ms = round(total * 1000 / track.rate)
        if self.figures.stale_ms:
            self.problem(f"{self.figures.stale_ms} ms of stale sound were heard after the agent had been stopped")

    def _is_replayed(self, stretch: Stretch, stop_at: float) -> bool:
        """A reply of that number had begun before the stop: it is the old one, in new frames."""
        number = self.call.made.utterances[stretch.utterance].number
        return number > 0 and any(u.number == number and u.made_at < stop_at - 1e-9 for u in self.call.made.utterances)

    # ---------------------------------------------------------------------------------------------- the words

    def caller_words(self) -> None:
        """What of the caller's words became part of the conversation, or of a turn where there is none."""
        if self.call.messages is not None:
            taken = " ".join(m.text for m in self.call.messages if m.role == "user")
        else:
            taken = " ".join(text for _, text in self.call.turns)
        said = [d for d in self.call.play.done if d.action.is_speech and d.action.expect in ("answered", "continues", "yields")]
        words = [normal_words(d.action.say or "") for d in said]
        pairs = aligned([word for each in words for word in each], normal_words(taken))
        self.figures.caller_words += sum(map(len, words))
        self.figures.caller_word_errors += sum(a != b for a, b in pairs)
        of_said = iter([pair for pair in pairs if pair[0] is not None])
        for action, each in zip(said, words, strict=True):
            got = [next(of_said)[1] for _ in each]
            if each and sum(word is None for word in got) > len(each) / 2:
                self.problem(f"of {_name(action)} the agent took {' '.join(filter(None, got))!r}")
            if each and _is_clipped(each[0], got[0]):
                self.figures.clipped_first_words += 1
                self.problem(f"clipped: the agent took {got[0] or 'nothing'!r} for {each[0]!r}, the first word of {_name(action)}")

    def context(self) -> None:
        """The assistant's text in the conversation against the words that were heard."""
        if self.call.messages is None:
            return
        kept = normal_words(" ".join(m.text for m in self.call.messages if m.role == "assistant"))
        surely, maybe = self._mask(-1), self._mask(1)
        order = sorted((word for spoken in self.spoken for word in self._words(spoken, maybe)), key=self._heard_at)
        sure = {id(word) for spoken in self.spoken for word in self._words(spoken, surely)}
        heard = [(text, id(word) in sure) for word in order for text in normal_words(word.text)]
        if [text for text, _ in heard] != (together := normal_words(" ".join(word.text for word in order))):
            heard = [(text, True) for text in together]  # a number of several words is not the sum of them
        pairs = aligned([text for text, _ in heard], kept)
        wanted = iter(heard)
        missing = unheard = 0
        for text, got in pairs:
            is_sure = next(wanted)[1] if text is not None else False
            missing += is_sure and text != got
            unheard += got is not None and text != got
        self.figures.heard_words_missing, self.figures.unheard_words_in_context = missing, unheard
        allowed = len(self.call.stops) if any(word.estimated for word in order) else 0
        if max(missing, unheard) > allowed:
            self.problem(f"the context has {unheard} words that were not heard, and lacks {missing} that were")

    def _mask(self, side: int) -> npt.NDArray[np.bool_]:
        """What was heard, if each stop came as much earlier (-1) or later (1) as the recording may be wrong about the clock.

        On a virtual clock it is not wrong at all. On a real one a block may be handed over late, and is put behind the one before.
        """
        track, stops = self.call.recording.agent, [stop.at for stop in self.call.stops]
        return covered(self.call.made, self.traced.stretches, track, stops, [side * _clock_error_s(track, at) for at in stops])

    def _words(self, spoken: Spoken, mask: npt.NDArray[np.bool_]) -> list[MadeWord]:
        owners = sorted({stretch.utterance for stretch in spoken.stretches})
        return [word for owner in owners for word in heard_words(self.call.made, owner, mask)]

    def _heard_at(self, word: MadeWord) -> float:
        return min(
            (s.first + max(0, word.begin - s.position) for spoken in self.spoken for s in spoken.stretches if _overlaps(s, word)),
            default=float("inf"),
        )


def _clock_error_s(track: Track, stop_at: float) -> float:
    """By how much the blocks before a stop were handed over early or late: moved on the track, or with a hole before them."""
    error_s, end = 0.0, None
    for piece in track.pieces:
        if stop_at - LATELY_S < piece.at <= stop_at:
            hole_s = (piece.begin - end) / track.rate if end is not None else 0.0
            error_s = max(error_s, abs(piece.at - track.time(piece.begin)), hole_s if hole_s < SILENCE_S else 0.0)
        end = piece.end
    return error_s


def _overlaps(stretch: Stretch, word: MadeWord) -> bool:
    return stretch.position < word.end and word.begin < stretch.position + stretch.count


def _is_clipped(word: str, got: str | None) -> bool:
    return got is None or (got != word and len(got) < len(word) and word.endswith(got))


def _name(done: Done) -> str:
    action = done.action
    return repr(action.say) if action.say is not None else f"the {action.sound}"
