from __future__ import annotations

import dataclasses
import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voiceflow.processors.echo import are_echo, sounds_alike
from voiceflow.processors.marks import spoken_words
from voiceflow.processors.start_policies import has_phrase, is_made_of
from voiceflow.processors.turn_evidence import Agent, Answer, Due, Evidence, Fate, Pause
from voiceflow.processors.turn_options import PoliciesInForce, TurnOptions, TurnPolicyFrame
from voiceflow.processors.turn_policies import (
    BACKCHANNELS,
    AdaptiveSilence,
    AllOf,
    AnyOf,
    Confidence,
    Earliest,
    Echo,
    Endpoint,
    EndPolicy,
    External,
    FirstDecides,
    Latest,
    Level,
    Never,
    Phrases,
    Score,
    Silence,
    StartPolicy,
    Voice,
    WakePhrase,
    Words,
    end_policy_from_json,
    policy_to_json,
    start_policy_from_json,
)

YES, NO, NOT_YET, PASS = Answer.YES, Answer.NO, Answer.NOT_YET, Answer.PASS


def over(said: str = "", voiced: float = 0.3, *, done: bool = False, finals: str | None = None, **known: Any) -> Evidence:
    """Speech over the agent that began at 10.0; ``done``: it is over and its transcript there."""
    known = {
        "agent": Agent.SPEAKING,
        "speaking": not done,
        "settled": done,
        "began": 10.0,
        "ended": 10.0 + voiced,
        "words_by": 10.0 + voiced,
    } | known
    words = spoken_words(said)
    final_words = words if finals is None else spoken_words(finals)
    return Evidence(now=10.2 + voiced, voiced_s=voiced, text=said, words=words, finals=final_words, **known)


AGENT_WORDS = (("we", 9.4), ("open", 9.7), ("at", 10.0), ("nine", 10.2))

CASES: list[tuple[StartPolicy, Evidence, Answer, str]] = [
    # policy, evidence, answer, what the why names
    (Voice(600), over(voiced=0.5), NOT_YET, "0.50 s (min_ms 600)"),
    (Voice(600), over(voiced=0.6), YES, "0.60 s (min_ms 600)"),
    (Voice(600), over(voiced=0.5, done=True), NO, "no words"),
    (Voice(600), over("mhm", voiced=0.5, done=True), NO, "only 'mhm'"),
    (Voice(600), over("stop", voiced=0.0, done=True), NO, "min_ms 600"),
    (Voice(0), over(voiced=-0.1), YES, "speech since"),
    (Voice(0), over("stop", voiced=0.0, done=True), YES, "without detected speech"),
    (Words(2), over("wait"), NOT_YET, "1 word (min 2)"),
    (Words(2), over("wait a"), YES, "2 words (min 2)"),
    (Words(2), over("wait", done=True), NO, "1 word (min 2)"),
    (Words(2), over(done=True), NO, "no words (min 2)"),
    (Words(2, partial=False), over("wait a moment", finals="wait"), NOT_YET, "1 word"),
    (Words(2, partial=False), over("wait a moment"), YES, "3 words"),
    (Phrases(), over(), PASS, "no words"),
    (Phrases(), over("wait"), YES, "'wait'"),
    (Phrases(), over("uh-huh, I see"), NOT_YET, "so far"),
    (Phrases(), over("yeah", voiced=1.5), YES, "longest_s 1.5"),
    (Phrases(), over("Okay. Got it!", done=True), NO, "only 'Okay. Got it!'"),
    (Phrases(), over("yeah but no", done=True), YES, "yeah but no"),
    (Phrases(ignore=("hello",)), over("hello hello", done=True), NO, "hello"),
    (Phrases(accept=("stop", "hold on")), over("please hold on now"), YES, "'hold on'"),
    (Phrases(accept=("stop", "hold on")), over("hold"), NOT_YET, "no accepted phrase"),
    (Phrases(accept=("stop", "hold on")), over("hold it", done=True), NO, "no accepted phrase"),
    (WakePhrase(("hey ava",)), over("what time"), NOT_YET, "asleep"),
    (WakePhrase(("hey ava",)), over("hey Ava, what time"), YES, "'hey ava'"),
    (WakePhrase(("hey ava",)), over("what time is it", done=True), NO, "asleep"),
    (WakePhrase(("hey ava",), awake_s=5), over(quiet_s=4.9), YES, "4.90 s after the last exchange (awake_s 5)"),
    (WakePhrase(("hey ava",), awake_s=5), over(quiet_s=5.0), NOT_YET, "asleep"),
    (External(), over("what time"), PASS, "not taken"),
    (External(), over(floor=True), YES, "from outside"),
    (Never(), over("stop stop stop", voiced=9.0), NO, "heard out"),
    (Echo(), over("at nine", agent_words=AGENT_WORDS), NO, "at that time"),
    (Echo(), over("at nine", agent_words=tuple((w, t - 1.0) for w, t in AGENT_WORDS)), PASS, "not the agent's"),
    (Echo(), over("at nine stop", voiced=0.8, agent_words=AGENT_WORDS), PASS, "not the agent's"),
    (Echo(), over(), PASS, "no words"),
    (Echo(), over(refused=frozenset({"echo"})), NOT_YET, "words are waited for"),
    (Echo(), over(refused=frozenset({"echo"}), agent=Agent.SILENT), PASS, "no words"),
    (Echo(wordless=2), over(dismissed=1), PASS, "no words"),
    (Echo(wordless=2), over(dismissed=2), NOT_YET, "2 times (wordless 2)"),
    (Echo(wordless=0), over(dismissed=9), PASS, "no words"),
    (Echo(), over(resumed_at=9.85), NOT_YET, "after the agent went on (again_s 0.5)"),
    (Echo(), over("stop", resumed_at=9.85), PASS, "not the agent's"),
    (Echo(again_s=0), over(resumed_at=9.85), PASS, "no words"),
    (Level(12), over(), PASS, "unknown"),
    (Level(12), over(level_db=-40), NOT_YET, "-40 dB, and the caller's own is not known yet (faint_db 38)"),
    (Level(12), over(level_db=-36), PASS, "not known yet"),
    (Level(12), over(level_db=-50, usual_db=-30), NO, "-50 dB, usually -30 dB (quieter_db 12)"),
    (Level(12), over(level_db=-41, usual_db=-30), PASS, "-41 dB"),
    (Confidence(0.3), over(), PASS, "no words"),
    (Confidence(0.3), over("bye"), PASS, "nothing known"),
    (Confidence(0.3), over("bye", confidence=0.2), NOT_YET, "confidence 0.20 (min 0.3)"),
    (Confidence(0.3), over("bye", confidence=0.2, done=True), NO, "confidence 0.20 (min 0.3)"),
    (Confidence(0.3), over("bye", confidence=0.2, voiced=1.5), PASS, "confidence 0.20"),
    (Confidence(0.3), over("bye", confidence=0.4), PASS, "confidence 0.40"),
    # combinations
    (AnyOf((Words(2), Voice(600))), over("wait"), NOT_YET, "min 2) and speech for"),
    (AnyOf((Words(2), Voice(600))), over("wait a"), YES, "2 words"),
    (AnyOf((Words(2), Voice(600))), over("wait", voiced=0.7), YES, "min_ms 600"),
    (AnyOf((Words(2), Voice(600))), over("wait", done=True), NO, "min 2"),
    (AnyOf((External(), Phrases())), over(), PASS, "anything"),
    (AnyOf((External(), Never())), over(), NO, "heard out"),
    (AllOf((Words(1), Voice(300))), over("wait", voiced=0.2), NOT_YET, "min_ms 300"),
    (AllOf((Words(1), Voice(300))), over("wait", voiced=0.4), YES, "min 1"),
    (AllOf((Level(), Voice(0))), over(level_db=-60, usual_db=-30), NO, "-60 dB"),
    (AllOf((Level(), Voice(0))), over(), YES, "speech since"),
    (FirstDecides((Phrases(), Voice(600))), over("mhm", voiced=0.9), NOT_YET, "only 'mhm'"),
    (FirstDecides((Phrases(), Voice(600))), over(voiced=0.9), YES, "min_ms 600"),
    (FirstDecides((External(), Phrases())), over(), PASS, "anything"),
]


@pytest.mark.parametrize(("policy", "evidence", "answer", "why"), CASES)
def test_a_start_policy_judges_the_evidence(policy: StartPolicy, evidence: Evidence, answer: Answer, why: str) -> None:
    """Each policy gives its answer, and names the signal and the threshold behind it."""
    verdict = policy.judge(evidence)
    assert verdict.answer is answer
    assert why in verdict.why


def test_a_policy_says_when_to_look_again_and_whether_to_hold() -> None:
    """Voice ripens with time, words do not; who waits for words lets the agent speak on."""
    assert Voice(600).judge(over(voiced=0.2)).look_at == pytest.approx(10.4 + 0.4)
    assert Phrases().judge(over("mhm", voiced=0.5)).look_at == pytest.approx(10.7 + 1.0)
    assert Words(2).judge(over("wait")).look_at == math.inf
    assert Voice(600).judge(over(voiced=0.2, speaking=False)).look_at == math.inf
    assert [p.judge(over()).hold for p in (Voice(600), Voice(600, hold=False), Words(2), Words(2, hold=True))] == [True, False, False, True]
    assert AnyOf((Words(2), Voice(600))).judge(over()).hold
    assert AnyOf((Words(2), Voice(600))).judge(over()).look_at == Voice(600).judge(over()).look_at
    assert not AllOf((Words(2), Voice(600))).judge(over()).hold


def test_words_that_were_not_meant_have_different_fates() -> None:
    """Another's words are dropped, a backchannel may yet be the answer, words over a notice wait."""
    assert Echo().judge(over("at nine", agent_words=AGENT_WORDS)).fate is Fate.DROP
    assert Level().judge(over(level_db=-60, usual_db=-30)).fate is Fate.DROP
    assert WakePhrase(("ava",)).judge(over("hello", done=True)).fate is Fate.DROP
    assert Phrases().judge(over("yeah", done=True)).fate is Fate.ASIDE
    assert Never().judge(over("but")).fate is Fate.KEEP


# ------------------------------------------------------------------------------------------------ end policies

AT = Pause(now=20.3, ended=20.0)

ENDS: list[tuple[EndPolicy, Pause, float, str]] = [
    (Silence(0.5), AT, 20.5, "0.30 s after speech (silence_s 0.5)"),
    (Score(0.5), AT, 20.5, "no score"),
    (Score(0.5, without=Silence(0.9)), AT, 20.9, "silence_s 0.9"),
    (Score(0.5), Pause(20.3, 20.0, score=0.8), 20.0, "score 0.80 > 0.5"),
    (Score(0.5), Pause(20.3, 20.0, score=0.5), math.inf, "score 0.50 not > 0.5"),
    (Endpoint(), AT, math.inf, "no endpoint"),
    (Endpoint(), Pause(20.3, 20.0, endpoint_at=20.2), 20.2, "endpoint"),
    (External(), AT, math.inf, "not given back"),
    (External(), Pause(20.3, 20.0, released_at=20.1), 20.1, "given back 0.20 s ago"),
    (AdaptiveSilence(), AT, 20.7, "0 pauses"),
    (AdaptiveSilence(), Pause(20.3, 20.0, pauses=(0.2, 0.2, 0.2)), 20.3, "0.30 s after 3 pauses"),
    (AdaptiveSilence(), Pause(20.3, 20.0, pauses=(0.8, 0.9, 0.2, 0.9)), 21.17, "1.17 s after 4 pauses"),
    (AdaptiveSilence(max_s=1.0), Pause(20.3, 20.0, pauses=(3.0, 3.0, 3.0)), 21.0, "1.00 s"),
    (Earliest((Endpoint(), Silence(0.5))), AT, 20.5, "silence_s 0.5"),
    (Earliest((Endpoint(), Silence(0.5))), Pause(20.3, 20.0, endpoint_at=20.1), 20.1, "endpoint"),
    (Earliest((Endpoint(),), ceiling_s=2.0), AT, 22.0, "ceiling_s 2; no endpoint"),
    (Earliest((Score(0.5),), floor_s=0.2, ceiling_s=1.0), Pause(20.3, 20.0, score=0.9), 20.2, "floor_s 0.2"),
    (Earliest((Score(0.5),), floor_s=0.2, ceiling_s=1.0), Pause(20.3, 20.0, score=0.1), 21.0, "ceiling_s 1; score 0.10"),
    (Latest((Endpoint(), Silence(0.5))), Pause(20.3, 20.0, endpoint_at=20.1), 20.5, "silence_s 0.5"),
    (Latest((Endpoint(), Silence(0.5)), ceiling_s=3.0), AT, 23.0, "no endpoint"),
    (TurnOptions().end, AT, 20.5, "no score"),
    (TurnOptions().end, Pause(20.3, 20.0, score=0.1), 21.0, "ceiling_s 1"),
    (TurnOptions().end, Pause(20.3, 20.0, score=0.1, released_at=20.25), 20.25, "given back"),
]


@pytest.mark.parametrize(("policy", "pause", "at", "why"), ENDS)
def test_an_end_policy_says_when(policy: EndPolicy, pause: Pause, at: float, why: str) -> None:
    """Each policy gives the time at which the silence ends the turn, and why."""
    due = policy.due(pause)
    assert due.at == pytest.approx(at)
    assert why in due.why


@given(pauses=st.lists(st.floats(0.1, 4.0), max_size=20))
def test_learned_silence_stays_within_its_bounds(pauses: list[float]) -> None:
    """Whatever pauses a caller makes, the silence that ends a turn is bounded, and it is not shorter than most of their pauses."""
    policy = AdaptiveSilence(min_s=0.3, max_s=1.5)
    wanted = policy.wanted_s(pauses)
    assert 0.3 <= wanted <= 1.5
    if len(pauses) >= policy.needs:
        assert sum(pause < wanted or wanted == 1.5 for pause in pauses) >= 0.8 * len(pauses)


@given(
    dues=st.lists(st.sampled_from([Silence(0.2), Silence(0.9), Endpoint(), External(), Score(0.5), AdaptiveSilence()]), min_size=1),
    floor=st.floats(0.0, 1.0),
    more=st.floats(0.0, 2.0),
    score=st.none() | st.floats(0, 1),
    earliest=st.booleans(),
)
def test_a_combination_keeps_floor_and_ceiling(
    dues: list[EndPolicy], floor: float, more: float, score: float | None, earliest: bool
) -> None:
    """No turn ends before the floor or after the ceiling."""
    kind = Earliest if earliest else Latest
    due: Due = kind(tuple(dues), floor_s=floor, ceiling_s=floor + more).due(Pause(20.0, 20.0, score=score))
    assert floor - 1e-9 <= due.at - 20.0 <= floor + more + 1e-9
    assert due.why


# ------------------------------------------------------------------------------------------------------- words


@pytest.mark.parametrize(
    ("text", "only"), [("", True), ("Uh-huh.", True), ("okay, got it", True), ("of course", True), ("of", False), ("yeah no", False)]
)
def test_a_text_is_made_of_phrases(text: str, only: bool) -> None:
    """A text is a backchannel if it is made of nothing else."""
    assert is_made_of(spoken_words(text), BACKCHANNELS) is only


def test_a_phrase_is_found_as_whole_words() -> None:
    """`stop` is not in `stopwatch`, and a phrase's words stand together."""
    assert has_phrase(spoken_words("Please STOP it!"), "stop")
    assert not has_phrase(spoken_words("a stopwatch"), "stop")
    assert not has_phrase(spoken_words("hold it on"), "hold on")


@pytest.mark.parametrize(
    ("heard", "spoken", "alike"),
    [
        ("nine", "nine", True),
        ("ni", "nine", True),
        ("morning", "mornin", True),
        ("no", "nine", False),
        ("n", "nine", False),
        ("cat", "dog", False),
    ],
)
def test_a_word_may_come_back_misheard_or_cut(heard: str, spoken: str, alike: bool) -> None:
    """A recogniser mishears an echo, and a hold cuts it."""
    assert sounds_alike(heard, spoken) is alike


SPEECH = "we open at nine in the morning on every day of the week and we close at six".split()  # noqa: SIM905


@given(first=st.integers(0, 14), count=st.integers(1, 4), delay=st.floats(0.0, 0.35), rate=st.floats(0.25, 0.4))
def test_an_echo_is_known_by_its_words_and_its_time(first: int, count: int, delay: float, rate: float) -> None:
    """The agent's words at the agent's time are its echo; the same words said by the caller after it are not."""
    spoken = [(word, 10.0 + rate * n) for n, word in enumerate(SPEECH)]
    words = SPEECH[first : first + count]
    began = spoken[first][1] + delay
    length = rate * len(words)
    assert are_echo(words, began, began + length, spoken, 0.5)
    after = spoken[-1][1] + rate + 0.6
    assert not are_echo(words, after, after + length, spoken, 0.5)
    assert not are_echo([*words, "stop"], began, began + length + rate, spoken, 0.5)
    assert not are_echo(["zebra"], began, began + length, spoken, 0.5)
    assert not are_echo(words, began, began + length, [], 0.5)


# -------------------------------------------------------------------------------------------------------- data

POLICIES = [case[0] for case in CASES] + [case[0] for case in ENDS]


@pytest.mark.parametrize("policy", POLICIES, ids=policy_to_json)
def test_a_policy_goes_to_json_and_back(policy: StartPolicy | EndPolicy) -> None:
    """What is written is what is read."""
    text = policy_to_json(policy)
    read = end_policy_from_json if hasattr(policy, "due") and not hasattr(policy, "judge") else start_policy_from_json
    assert read(text) == policy


def test_options_go_to_json_and_back() -> None:
    """Defaults are left out, and what is given takes their place."""
    assert TurnOptions().to_json() == "{}"
    options = TurnOptions(barge_in=Voice(0), end=Earliest((Endpoint(), Silence(0.7)), ceiling_s=2.0), hold_max_s=2.0)
    assert TurnOptions.from_json(options.to_json()) == options
    assert TurnOptions.from_json(b'{"barge_in": {"policy": "words", "min": 3}}').barge_in == Words(3)


def test_a_change_of_policy_is_a_frame_that_can_be_sent_on_a_wire() -> None:
    """The frame's own encoding holds the policies."""
    frame = TurnPolicyFrame(barge_in=Never(), end=Silence(2.0), once=True)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(frame), type=TurnPolicyFrame) == frame


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ('{"start": {"policy": "voise"}}', ["$.start.policy", "unknown policy 'voise'", "wake-phrase"]),
        ('{"end": {"policy": "voice"}}', ["$.end.policy", "unknown policy 'voice'", "adaptive-silence"]),
        ('{"barge_in": {"policy": "any", "policies": [{"policy": "words"}, {"policy": "x"}]}}', ["$.barge_in.policies[1].policy", "'x'"]),
        ('{"barge_in": {"min": 3}}', ["$.barge_in", "`policy`", "known: all, any"]),
        ('{"barge_in": "never"}', ["$.barge_in", '{"policy": "all"}']),
        ('{"barge_in": {"policy": "words", "least": 3}}', ["$.barge_in", "`least`"]),
        ('{"barge_in": {"policy": "words", "min": "three"}}', ["$.barge_in.min", "int"]),
        ('{"barge_in": {"policy": "voice", "min_ms": -5}}', ["$.barge_in", "Voice.min_ms is -5"]),
        ('{"start": {"policy": "wake-phrase", "phrases": ["..."]}}', ["$.start", "WakePhrase.phrases"]),
        ('{"start": {"policy": "any", "policies": []}}', ["$.start", "AnyOf.policies"]),
        ('{"end": {"policy": "score", "threshold": 1.5}}', ["$.end", "Score.threshold is 1.5"]),
        ('{"end": {"policy": "score", "without": {"policy": "y"}}}', ["$.end.without.policy", "'y'", "silence"]),
        (
            '{"end": {"policy": "earliest", "policies": [{"policy": "silence"}], "floor_s": 2, "ceiling_s": 1}}',
            ["$.end", "Earliest.ceiling_s"],
        ),
        ('{"end": {"policy": "adaptive-silence", "start_s": 9}}', ["$.end", "AdaptiveSilence.start_s is 9"]),
        ('{"hold_max_s": -1}', ["TurnOptions.hold_max_s is -1"]),
        ('{"silence": 1}', ["`silence`"]),
        ("nonsense", ["malformed"]),
    ],
)
def test_bad_options_are_refused_by_field(text: str, parts: list[str]) -> None:
    """The error says what is wrong, in which field, and what may stand there."""
    with pytest.raises(ValueError, match="not a valid TurnOptions") as error:
        TurnOptions.from_json(text)
    assert [part for part in parts if part not in str(error.value)] == []


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: TurnOptions(start=Silence(1.0)), "TurnOptions.start"),
        (lambda: TurnOptions(end=Voice()), "TurnOptions.end"),
        (lambda: TurnOptions(reply_timeout_s=math.inf), "TurnOptions.reply_timeout_s"),
        (lambda: AnyOf((Voice(), Silence(1.0))), "number 2"),
        (lambda: Earliest([Silence(1.0)]), "tuple"),
        (lambda: Score(without=Voice()), "Voice"),
        (lambda: Latest((Voice(),)), "end policy"),
        (lambda: WakePhrase(()), "WakePhrase.phrases"),
        (lambda: start_policy_from_json('{"policy": "silence"}'), "unknown policy 'silence'"),
        (lambda: end_policy_from_json('{"policy": "never"}'), "known: adaptive-silence"),
    ],
)
def test_a_policy_in_the_wrong_place_is_refused(make: Any, field: str) -> None:
    """From code too, what makes no sense is refused at once."""
    with pytest.raises(ValueError, match=field.replace(".", r"\.")):
        make()


# ------------------------------------------------------------------------------------------------ for a while


def test_a_policy_for_once_gives_way_to_what_was_before() -> None:
    """`once` lasts for the next utterance of the agent, or until it is interrupted; for a start or end policy, for a turn."""
    in_force = PoliciesInForce(TurnOptions())
    usual = in_force.barge_in
    in_force.utterance_began()  # a greeting is being spoken
    in_force.use(TurnPolicyFrame(barge_in=Never(), once=True))
    in_force.utterance_ended()
    assert in_force.barge_in == Never()
    in_force.utterance_began()
    in_force.utterance_ended()
    assert in_force.barge_in == usual
    in_force.use(TurnPolicyFrame(barge_in=Never(), once=True))
    in_force.use(TurnPolicyFrame(barge_in=Words(3), once=True))
    in_force.utterance_ended(interrupted=True)
    assert in_force.barge_in == usual
    in_force.use(TurnPolicyFrame(end=Silence(3.0), once=True))
    assert in_force.end == Silence(3.0)
    in_force.turn_ended()
    assert in_force.end == TurnOptions().end
    in_force.use(TurnPolicyFrame(barge_in=Never(), once=True))
    in_force.use(TurnPolicyFrame(barge_in=Words(3)))
    in_force.utterance_began()
    in_force.utterance_ended()
    assert in_force.barge_in == Words(3)


def test_an_echo_is_known_by_how_it_sounds() -> None:
    """Digits are the words they stand for."""
    assert are_echo(("at", "9"), 10.0, 11.0, (("at", 10.0), ("nine", 10.4)), 0.5)
    assert not are_echo(("at", "8"), 10.0, 11.0, (("at", 10.0), ("nine", 10.4)), 0.5)


SPOKEN = tuple(
    (word, at / 10) for at, word in enumerate(["to", "reset", "the", "router", "hold", "the", "small", "button", "on", "the", "back"])
)


@pytest.mark.parametrize(
    ("heard", "answer"),
    [
        ("to reset the router", NO),
        ("to reset the right", NOT_YET),  # the newest word of a partial, misheard
        ("to reset stop", NOT_YET),
        ("to stop", PASS),  # one word is too little to know the agent by
        ("to reset please stop", PASS),
        ("to reset the router please stop", NOT_YET),
        ("to reset the router please stop it", PASS),
    ],
)
def test_the_newest_words_of_a_partial_echo_may_still_change(heard: str, answer: Answer) -> None:
    """They are waited for, without a hold, until the transcript shows whose they are; a final one is judged as it is."""
    words = tuple(heard.split())
    evidence = Evidence(
        now=1.2,
        agent=Agent.SPEAKING,
        speaking=True,
        began=0.1,
        words=words,
        text=heard,
        words_by=0.1 + 0.1 * len(words),
        agent_words=SPOKEN,
    )
    verdict = Echo().judge(evidence)
    assert (verdict.answer, verdict.hold) == (answer, False)
    final = Echo().judge(dataclasses.replace(evidence, settled=True, finals=words))
    assert final.answer is (NO if answer is NO else PASS)
