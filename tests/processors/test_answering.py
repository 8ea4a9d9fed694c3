"""Who picked up: people are never taken for machines, machines are told, and a message is left behind the beep."""

from __future__ import annotations

import asyncio
import itertools
import re
import wave
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voiceflow import (
    AudioFormat,
    Frame,
    InputAudioFrame,
    Processor,
    Session,
    SpeechStarted,
    SpeechStopped,
    TranscriptFrame,
    TurnEnded,
)
from voiceflow.audio import alaw_decode, alaw_encode, mulaw_decode, mulaw_encode, resample
from voiceflow.phone import AnsweredBy
from voiceflow.processors.answering import Answering, AnsweringOptions, Voicemail, WhoAnswered
from voiceflow.processors.beeps import BeepDetector, BeepHeard, Beeps
from voiceflow.processors.context import Context
from voiceflow.processors.marks import spoken_words
from voiceflow.processors.text import Sentences
from voiceflow.processors.turns import Turns
from voiceflow.testing import (
    NOISE,
    Collector,
    RecordingSink,
    Said,
    ScriptedCaller,
    ScriptedLLM,
    ScriptedSTT,
    ScriptedTTS,
    ScriptedVAD,
    check_processor,
    run_virtual,
)
from voiceflow.transports.memory import MemoryIn

DATA = Path(__file__).parents[1] / "data"
HELLOS = (DATA / "hellos.txt").read_text(encoding="utf-8").splitlines()
GREETINGS = (DATA / "greetings.txt").read_text(encoding="utf-8").splitlines()
VAD_S = 0.2
RATES = (8000, 16000, 24000)

# ------------------------------------------------------------------------------------------------- the judge


@dataclass(frozen=True)
class Stretch:
    """Words said in one go from ``at`` to ``until``."""

    words: str
    at: float
    until: float


def stretches(text: str, pace: float, pauses: Sequence[float], *, hello_s: float = 9.0) -> list[Stretch]:
    """``text`` at ``pace`` words a second, a pause behind each mark; ``hello_s``: the longest one behind what may be a hello."""
    made, now, said = [], 0.6, 0
    for part, pause in zip(re.findall(r"[^.,?!]+[.,?!]*", text), itertools.cycle(pauses), strict=False):
        words = part.split()
        made.append(Stretch(part.strip(), now, now + len(words) / pace))
        said += len(words)
        now = made[-1].until + (pause if said > 5 else min(pause, hello_s))
    joined = made[:1]
    for one in made[1:]:  # the detector tells of no pause shorter than its own silence
        last = joined[-1]
        if one.at - last.until < VAD_S:
            joined[-1] = Stretch(f"{last.words} {one.words}", last.at, one.until)
        else:
            joined.append(one)
    return joined


def judged(
    spoken: Sequence[Stretch], late: float, *, partials: bool = True, beep_at: float | None = None
) -> list[tuple[float, AnsweredBy]]:
    """What is decided of it, and when, with transcripts ``late`` seconds behind the detector."""
    events: list[tuple[float, int, SpeechStarted | SpeechStopped | TranscriptFrame | BeepHeard]] = []
    for one in spoken:
        events += [(one.at + 0.1, 0, SpeechStarted(at=one.at)), (one.until + VAD_S, 0, SpeechStopped(at=one.until, silence=VAD_S))]
        words = one.words.split()
        for number in range(1, len(words) if partials else 0):
            at = one.at + number * (one.until - one.at) / len(words) + late
            events.append((at, 1, TranscriptFrame(" ".join(words[:number]), final=False)))
        events.append((one.until + VAD_S + late, 1, TranscriptFrame(one.words)))
    if beep_at is not None:
        events.append((beep_at, 0, BeepHeard(pitch=1000.0, seconds=0.4)))
    who, decided = WhoAnswered(), []
    who.start(0.0)
    for at, _, event in [*sorted(events, key=lambda event: event[:2]), (60.0, 0, None)]:
        while (due := who.deadline) is not None and due <= at:
            said = who.tick(due)
            assert said is not None, f"nothing was decided at the deadline {due}"
            decided.append((due, said))
        if event is not None and (said := who.step(event, at)):
            decided.append((at, said))
    return decided


@given(
    text=st.sampled_from(HELLOS),
    pace=st.floats(1.0, 6.0),
    pauses=st.lists(st.floats(0.1, 1.45), min_size=1, max_size=4),
    late=st.floats(0.0, 4.0),
    partials=st.booleans(),
)
@settings(max_examples=600, deadline=None)
def test_no_person_is_taken_for_a_machine(text: str, pace: float, pauses: list[float], late: float, partials: bool) -> None:
    """However fast they speak, wherever they pause, and however late their words are known; and they are told once, and ready."""
    ((_, said),) = judged(stretches(text, pace, pauses), late, partials=partials)
    assert (said.by, said.ready) == ("human", True), said.why


@given(
    text=st.sampled_from(GREETINGS),
    pace=st.floats(1.5, 5.0),
    pauses=st.lists(st.floats(0.1, 1.45), min_size=1, max_size=4),
    late=st.floats(0.0, 1.2),
    partials=st.booleans(),
    beep=st.none() | st.floats(0.3, 2.0),
)
@settings(max_examples=600, deadline=None)
def test_every_greeting_is_told(text: str, pace: float, pauses: list[float], late: float, partials: bool, beep: float | None) -> None:
    """As a machine's, and a second time when it records: at its beep, or once it has been silent for long enough."""
    spoken = stretches(text, pace, pauses, hello_s=0.65)
    beep_at = None if beep is None else spoken[-1].until + beep
    decided = judged(spoken, late, partials=partials, beep_at=beep_at)
    assert [said.by for _, said in decided] in (["machine"], ["machine"] * 2), [said.why for _, said in decided]
    assert [said.ready for _, said in decided] in ([True], [False, True])
    at, last = decided[-1]
    if beep_at is not None:
        assert (at, last.why) == (beep_at, "a beep")
    else:
        assert at >= spoken[-1].until + 2.5 - 1e-6


@given(text=st.sampled_from(HELLOS[:14]), pace=st.floats(2.0, 5.0), late=st.floats(0.0, 0.5))
@settings(max_examples=100, deadline=None)
def test_a_person_waits_for_an_answer_no_longer_than_needed(text: str, pace: float, late: float) -> None:
    """A short hello is told 0.8 s after it, anything longer 1.6 s."""
    spoken = stretches(text, pace, [0.1])
    ((at, _),) = judged(spoken, late)
    assert at - spoken[-1].until <= (0.8 if len(spoken_words(text)) <= 5 else 1.6) + 1e-6


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([], [(5.0, "unknown")]),
        ([(1.0, SpeechStarted(at=0.9)), (1.6, SpeechStopped(at=1.4)), (1.8, TranscriptFrame(""))], [(5.0, "unknown")]),
        ([(1.0, SpeechStarted(at=0.9)), (1.6, SpeechStopped(at=1.4))], [(3.4, "human")]),
        ([(1.0, SpeechStarted(at=0.9))], [(20.0, "unknown")]),
        ([(0.5, BeepHeard()), (1, SpeechStarted(at=0.9)), (1.6, SpeechStopped(at=1.4)), (1.7, TranscriptFrame("Yes"))], [(2.2, "human")]),
        ([(1.0, SpeechStarted(at=0.9)), (2.0, BeepHeard())], [(2.0, "machine")]),
        ([(1.0, AnsweredBy(by="unknown"))], [(5.0, "unknown")]),
        ([(1.0, AnsweredBy(by="human")), (1.1, TranscriptFrame("leave a message"))], [(1.0, "human")]),
        (
            [(1.0, AnsweredBy(by="machine", ready=False)), (1.2, AnsweredBy(by="machine", ready=False)), (3.0, AnsweredBy(by="machine"))],
            [(1.0, "machine"), (3.0, "machine")],
        ),
    ],
    ids=["nobody", "a cough", "words that never come", "a voice that never stops", "a ringing tone", "a beep in speech",
         "a carrier that knows nothing", "a carrier's word", "a carrier's two words"],
)  # fmt: skip
def test_what_else_may_happen(
    events: list[tuple[float, SpeechStarted | SpeechStopped | TranscriptFrame | BeepHeard | AnsweredBy]], expected: list[tuple[float, str]]
) -> None:
    """Silence and noise are nobody known, a carrier is believed, a beep before any voice is the line's."""
    who, decided = WhoAnswered(), []
    who.start(0.0)
    for at, event in [*events, (90.0, None)]:
        while (due := who.deadline) is not None and due <= at:
            decided.append((round(due, 3), who.tick(due)))
        if event is not None and (said := who.step(event, at)):
            decided.append((at, said))
    assert [(at, said.by) for at, said in decided if said] == expected


def decided_at(*events: tuple[float, SpeechStarted | SpeechStopped | TranscriptFrame | AnsweredBy]) -> list[tuple[float, str, bool]]:
    """When, who, and whether it records, in five minutes."""
    who, decided = WhoAnswered(), []
    who.start(0.0)
    for at, event in [*events, (300.0, None)]:
        while (due := who.deadline) is not None and due <= at:
            if said := who.tick(due):
                decided.append((round(due, 3), said.by, said.ready))
        if event is not None and (said := who.step(event, at)):
            decided.append((at, said.by, said.ready))
    return decided


def test_a_machine_that_never_falls_silent_is_talked_to_all_the_same() -> None:
    """Music or a greeting without end: after a minute the message is left, with or without a voice."""
    assert decided_at((1.0, AnsweredBy(by="machine", ready=False))) == [(1.0, "machine", False), (61.0, "machine", True)]
    music = decided_at((1.1, SpeechStarted(at=1.0)), (2.0, TranscriptFrame("please leave a message", final=False)))
    assert music == [(2.0, "machine", False), (62.0, "machine", True)]


def test_a_stretch_without_words_of_its_own_makes_no_machine_a_person() -> None:
    """One final for two stretches, or none for a noise: what was said counts, once the words are overdue."""
    events = [
        (1.1, SpeechStarted(at=1.0)), (2.2, SpeechStopped(at=2.0)), (2.5, SpeechStarted(at=2.4)), (4.2, SpeechStopped(at=4.0)),
        (4.5, TranscriptFrame("Hi, you've reached the Smiths")),
    ]  # fmt: skip
    assert decided_at(*events)[0] == (9.0, "machine", False)


def test_phrases_of_another_language_take_the_place_of_the_english_ones() -> None:
    """Curly apostrophes, hyphens and marks make no difference."""
    who = WhoAnswered(AnsweringOptions(machine=("après le bip", "répondeur de")))
    who.step(SpeechStarted(at=0.0), 0.1)
    assert who.step(TranscriptFrame("Leave a message after the beep.", final=False), 1.0) is None
    said = who.step(TranscriptFrame("Parlez APRÈS-le bip !", final=False), 2.0)
    assert said is not None
    assert said.by == "machine"


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"silence_s": 0}, "silence_s"),
        ({"limit_s": float("nan")}, "limit_s"),
        ({"many_words": True}, "many_words"),
        ({"machine": ("beep", " . ")}, "machine"),
        ({"short_pause_s": 2.0}, "short_pause_s"),
    ],
)
def test_wrong_options_are_refused(wrong: dict[str, object], says: str) -> None:
    """The error names the field."""
    with pytest.raises(ValueError, match=says):
        AnsweringOptions(**wrong)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------- the beep


def tone(hz: float, seconds: float, rate: int, level_db: float = -12.0, phase: float = 0.0) -> np.ndarray:
    return 10 ** (level_db / 20) * np.sin(2 * np.pi * hz * np.arange(round(seconds * rate)) / rate + phase)


def pcm(*parts: np.ndarray, noise_db: float | None = None, seed: int = 1) -> bytes:
    whole = np.concatenate(parts)
    if noise_db is not None:
        whole = whole + np.random.default_rng(seed).normal(0, 10 ** (noise_db / 20), len(whole))
    return np.clip(np.round(whole * 32767), -32768, 32767).astype("<i2").tobytes()


def beeps(data: bytes, rate: int, size: int = 320) -> list[tuple[float, float]]:
    detector = BeepDetector(rate)
    return [beep for at in range(0, len(data), size) for beep in detector.feed(data[at : at + size])]


@given(
    hz=st.floats(400, 2490),
    seconds=st.floats(0.2, 1.9),
    rate=st.sampled_from(RATES),
    level_db=st.floats(-28, -6),
    noise_under_db=st.floats(17, 60),
    lead_s=st.floats(0.1, 0.2),
    size=st.sampled_from([2 * 80, 2 * 137, 640, 2 * 1001, 200000]),
    law=st.sampled_from(["none", "mu", "a"]),
    seed=st.integers(0, 1000),
)
@settings(max_examples=200, deadline=None)
def test_a_beep_is_heard_once(
    hz: float, seconds: float, rate: int, level_db: float, noise_under_db: float, lead_s: float, size: int, law: str, seed: int
) -> None:
    """Of any pitch, at any rate, in noise, through either law, cut anywhere, wherever it begins; its pitch is right to 3 Hz."""
    data = pcm(
        np.zeros(round(lead_s * rate)),
        tone(hz, seconds, rate, level_db),
        np.zeros(rate // 5),
        noise_db=level_db - noise_under_db,
        seed=seed,
    )
    if law != "none":
        data = mulaw_decode(mulaw_encode(data)) if law == "mu" else alaw_decode(alaw_encode(data))
    ((pitch, length),) = beeps(data, rate, size)
    assert pitch == pytest.approx(hz, abs=3.0)
    assert length == pytest.approx(seconds, abs=0.1)


def not_beeps(rate: int) -> dict[str, np.ndarray]:
    t = np.arange(rate) / rate
    return {
        "a pip": tone(1000, 0.08, rate),
        "a chord": tone(523, 0.6, rate) + tone(659, 0.6, rate) + tone(784, 0.6, rate),
        "a ringing tone of two": tone(440, 1.0, rate) + tone(480, 1.0, rate),
        "a key": tone(770, 0.3, rate) + tone(1336, 0.3, rate),
        "a hum": tone(50, 1.0, rate, -6) + tone(100, 1.0, rate, -12) + tone(150, 1.0, rate, -18),
        "a dialling tone": tone(425, 3.0, rate),
        "a glide": 0.25 * np.sin(2 * np.pi * (600 * t + 400 * t * t)),
        "two tones in a row": np.concatenate([tone(950, 0.33, rate), tone(1400, 0.33, rate)]),
        "three that announce": np.concatenate([part for hz in (950, 1400, 1800) for part in (tone(hz, 0.33, rate), np.zeros(rate // 50))]),
        "a tone that becomes noise": np.concatenate([tone(950, 0.33, rate), np.random.default_rng(4).normal(0, 0.2, rate // 2)]),
        "a buzz": 0.2 * np.sign(tone(400, 0.6, rate)) * (1 + 0.5 * np.random.default_rng(2).normal(0, 1, round(0.6 * rate))),
        "noise": np.random.default_rng(3).normal(0, 0.2, rate),
        "a level": np.full(rate, 0.3),
        "faint": tone(1000, 0.5, rate, -48),
    }


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("name", sorted(not_beeps(8000)))
def test_other_sounds_are_no_beep(rate: int, name: str) -> None:
    """Pips, chords, keys, hums, ringing and dialling tones, glides, noise, wherever they begin in a block."""
    for lead_s in np.arange(0.05, 0.09, 0.003):
        assert beeps(pcm(np.zeros(round(lead_s * rate)), not_beeps(rate)[name], np.zeros(rate // 5)), rate) == []


def test_speech_is_no_beep() -> None:
    """Human voices, loud and faint, at three speeds, which move the pitch."""
    clips = sorted(DATA.glob("*.wav"))
    assert clips
    for path, speed, rate in itertools.product(clips, (0.8, 1.0, 1.25), RATES):
        with wave.open(str(path)) as file:
            moved = resample(file.readframes(file.getnframes()), round(file.getframerate() * speed), rate, file.getnchannels())
        loud = np.clip(np.frombuffer(moved, "<i2").astype(np.float64) * 4, -32768, 32767).astype("<i2").tobytes()
        assert (beeps(moved, rate), beeps(loud, rate)) == ([], []), (path.name, speed, rate)


def test_a_rate_that_cannot_carry_beeps_is_refused() -> None:
    """The error says which is needed."""
    with pytest.raises(ValueError, match="5500 Hz"):
        BeepDetector(4000)


# ------------------------------------------------------------------------------------------------- whole calls

MESSAGE = "It is Ann. Please call me back tomorrow."


class ToneAt(Processor):
    """The machine's beep, put into the caller's sound from ``at`` for 0.4 s."""

    def __init__(self, at: float | None) -> None:
        self.at = at
        self.over = 0.0
        self._now = 0.0

    def process(self, frame: InputAudioFrame) -> InputAudioFrame:
        """See the class."""
        now, self._now = self._now, self._now + frame.duration
        if self.at is None or not self.at <= now < self.at + 0.4:
            return frame
        self.over = now + frame.duration
        t = now + np.arange(len(frame.pcm) // 2) / frame.sample_rate
        sound = np.round(8000 * np.sin(2 * np.pi * 1000 * t)).astype("<i2").tobytes()
        return InputAudioFrame(sound, frame.sample_rate, pts=frame.pts)


class Noise(Processor):
    """Makes noise of the beep, which the scripted detector takes for a voice and the recogniser for no words."""

    def process(self, frame: InputAudioFrame) -> InputAudioFrame:
        """See the class."""
        if np.abs(frame.samples).max(initial=0) < 4000:
            return frame
        return InputAudioFrame(np.full(len(frame.pcm) // 2, NOISE, "<i2").tobytes(), frame.sample_rate, pts=frame.pts)


class OutboundCall:
    """An agent that calls out, on the virtual clock: what became of it."""

    def __init__(
        self, script: list[Said], *, beep_at: float | None = None, message: str = MESSAGE, until: float = 40.0, each_s: float = 0.1
    ) -> None:
        caller = ScriptedCaller(script, until=until)
        self.tone = ToneAt(beep_at)
        self.llm = ScriptedLLM(lambda messages: "Hello, it is Ann.")
        self.tts = ScriptedTTS(word_s=each_s)
        self.sink = RecordingSink()
        self.context = Context("Be brief.")
        hearing = caller >> self.tone >> Beeps() >> Noise() >> ScriptedVAD() >> ScriptedSTT(caller.texts)
        self.session = Session(
            hearing >> Answering() >> Turns() >> Voicemail(message) >> self.context >> self.llm >> Sentences() >> self.tts >> self.sink
        )
        self.log: list[tuple[float, Frame]] = []
        self.session.tap(lambda frame, *_: self.log.append((self.session.time(), frame)))
        self.began = self.ended = 0.0
        self.said: list[str] = []
        self.heard_from = 0.0

    async def run(self) -> OutboundCall:
        self.began = self.session.time()
        await self.session.run()
        self.ended = self.session.time() - self.began
        self.said = self.sink.words()
        self.heard_from = self.sink.heard()[0].at - self.began if self.said else 0.0
        return self

    def first(self, kind: type[Frame]) -> float:
        return next(at - self.began for at, frame in self.log if isinstance(frame, kind))

    @property
    def answered(self) -> list[tuple[str, bool]]:
        found = {id(frame): frame for _, frame in self.log if isinstance(frame, AnsweredBy)}
        return [(frame.by, frame.ready) for frame in found.values()]


def call(*script: Said, **options: object) -> OutboundCall:
    """The call, from the first sound to its end."""

    async def main() -> OutboundCall:
        return await OutboundCall(list(script), **options).run()  # type: ignore[arg-type]

    return run_virtual(main())


GREETING = Said(1.0, 6.0, "Hi, you've reached Bob. Please leave a message after the tone.")


def test_a_message_is_left_behind_the_tone() -> None:
    """All of it, the model is never asked, and then the call ends; nothing of the greeting becomes a turn that is answered."""
    made = call(GREETING, beep_at=8.0)
    assert made.answered == [("machine", False), ("machine", True)]
    assert made.said == MESSAGE.split()
    assert made.heard_from >= made.tone.over
    assert made.heard_from <= made.tone.over + 0.5
    assert made.llm.requests == []
    assert made.ended < 20
    assert [(message.role, message.text) for message in made.context.conversation.messages] == [("assistant", MESSAGE)]


def test_without_a_tone_the_message_waits_for_silence() -> None:
    """2.5 s of it."""
    made = call(GREETING)
    assert made.said == MESSAGE.split()
    assert 9.5 <= made.heard_from <= 10.0


def test_a_machine_that_talks_into_the_message_stops_nothing() -> None:
    """Nor is there an interrupt: the message is said to its end."""
    made = call(GREETING, Said(9.0, 4.0, "To leave a callback number press five. To send a fax press six."), beep_at=8.0, each_s=0.5)
    assert made.said == MESSAGE.split()
    assert made.session.interruptions == ()
    assert made.llm.requests == []


def test_a_tone_right_behind_the_voice_is_heard() -> None:
    """Although the detector hears one voice that goes on."""
    made = call(Said(1.0, 6.9, GREETING.text), beep_at=7.9)
    assert made.answered == [("machine", False), ("machine", True)]
    assert made.said == MESSAGE.split()
    assert made.heard_from <= made.tone.over + 0.5


def test_without_a_message_the_call_ends_at_once() -> None:
    """As soon as it is known to be a machine, in the middle of its greeting."""
    made = call(GREETING, message="")
    assert made.answered == [("machine", False)]
    assert made.said == []
    assert made.ended < 7.0


def test_a_person_is_answered_at_once() -> None:
    """Their first words, which were said before it was known who they are, are their first turn, and what follows is as ever."""
    made = call(Said(1.0, 0.5, "Hello?"), Said(6.0, 1.5, "Who is this please?"), until=12.0)
    assert made.answered == [("human", True)]
    assert [request[-1].text for request in made.llm.requests] == ["Hello?", "Who is this please?"]
    assert made.first(AnsweredBy) <= 1.5 + 0.8 + 0.05
    assert made.heard_from - made.first(AnsweredBy) <= 0.4
    assert made.session.interruptions == ()


def test_a_person_who_goes_on_before_they_are_known_asks_once() -> None:
    """Turns that are taken up again while it is not known who speaks become one."""
    made = call(Said(1.0, 2.5, "Good morning this is Bright Dental here"), Said(4.2, 1.0, "how can I help?"), until=12.0)
    assert made.answered == [("human", True)]
    assert made.llm.requests[-1][-1].text == "Good morning this is Bright Dental here how can I help?"
    assert [message.role for message in made.context.conversation.messages] == ["user", "assistant"]


def test_who_says_nothing_is_unknown_and_answered_later() -> None:
    """What they say then is a person's."""
    made = call(Said(8.0, 1.0, "Is anybody there?"), until=14.0)
    assert made.answered == [("unknown", True)]
    assert [request[-1].text for request in made.llm.requests] == ["Is anybody there?"]


def test_who_hangs_up_before_they_are_known_is_in_the_conversation() -> None:
    """What they said is not lost."""
    made = call(Said(1.0, 0.5, "Wrong number"), until=1.75)
    assert made.answered == []
    assert [message.text for message in made.context.conversation.messages if message.role == "user"] == ["Wrong number"]


def test_what_is_kept_is_handed_on_as_it_stands_to_what_is_known() -> None:
    """A turn that takes up one that was kept is a new one to whoever was told of neither; one that does not stays beside it."""

    async def main() -> list[tuple[str, bool]]:
        out = Collector()
        session = Session(Voicemail(MESSAGE) >> out, inputs=[AnsweredBy, TurnEnded])
        async with session:
            for text, continues in (("Hello", False), ("Hello who is this", True), ("Well", False)):
                await session.send(TurnEnded(text=text, continues=continues))
            await session.send(AnsweredBy(by="human"))
            await session.send(TurnEnded(text="Well then", continues=True))
        return [(frame.text, frame.continues) for frame in out.frames if isinstance(frame, TurnEnded)]

    assert run_virtual(main()) == [("Hello who is this", False), ("Well", False), ("Well then", True)]


@pytest.mark.parametrize("ready", [True, False])
def test_a_carriers_word_is_enough(ready: bool) -> None:
    """Without ``Answering``: the message is left when the carrier says that the machine records."""

    async def main() -> tuple[list[str], bool]:
        sink = RecordingSink()
        graph = Voicemail(MESSAGE) >> Context() >> ScriptedLLM(lambda messages: "No.") >> Sentences() >> ScriptedTTS() >> sink
        session = Session(graph, inputs=[AnsweredBy, TurnEnded])
        async with session:
            await session.send(TurnEnded(text="You have reached Bob"))
            await session.send(AnsweredBy(by="machine", ready=ready))
            await asyncio.sleep(5.0)
            over = session.state != "running"
        return sink.words(), over

    assert run_virtual(main()) == ((MESSAGE.split(), True) if ready else ([], False))


def test_the_nodes_conform() -> None:
    """The conformance kit."""
    sound = InputAudioFrame(pcm=pcm(tone(1000, 0.3, 8000), np.zeros(800)), sample_rate=8000)
    check_processor(Beeps, [sound, sound])
    hello = [SpeechStarted(at=0.0), SpeechStopped(at=0.0), TranscriptFrame("Hello?")]
    check_processor(Answering, hello)
    check_processor(Answering, [*hello, TranscriptFrame("leave a message"), BeepHeard()])
    check_processor(Voicemail, [TurnEnded(text="Hello?"), AnsweredBy(by="human"), TurnEnded(text="Yes?")])


# ------------------------------------------------------------------------------------------------- real models

PEOPLE = ("Hello?", "Hi, this is Maria.", "Good afternoon, Bright Dental, this is Jennifer, how can I help you?", "Yeah, who is this?")
MACHINES = (
    "Hi, you've reached Bob. Please leave a message after the tone.",
    "The person you are calling is not available. At the tone, please record your message.",
    "Hey, this is Tom's voicemail. Leave your name and number.",
)


def test_real_voices_are_told_apart(model) -> None:  # type: ignore[no-untyped-def]
    """Four people and three machines, spoken by one model in real time and heard by two others, side by side."""
    piper = pytest.importorskip("voiceflow.processors.tts_piper", reason="pip install -e '.[local]'")
    vad = pytest.importorskip("voiceflow.processors.vad", reason="pip install -e '.[local]'")
    whisper = pytest.importorskip("voiceflow.processors.stt_whisper", reason="pip install -e '.[local]'")
    for name in ("silero-vad", "whisper-tiny.en"):
        model(name)
    voice = piper.Piper.shared(model("piper-joe"))
    patient = AnsweringOptions(words_timeout_s=8.0)  # seven calls share a core or two
    clips = {text: voice.synthesize(text, piper.PiperOptions()) for text in (*PEOPLE, *MACHINES)}

    async def picked_up(text: str) -> list[AnsweredBy]:
        clip = clips[text]
        rate = clip.sample_rate
        beep = pcm(np.zeros(rate), tone(1000, 0.4, rate), np.zeros(rate // 2)) if text in MACHINES else bytes(2 * 3 * rate)
        sound = bytes(rate) + clip.pcm + beep
        caller, out = MemoryIn(AudioFormat(rate)), Collector()
        stt = whisper.WhisperSTT(whisper.WhisperOptions(model="whisper-tiny.en"))
        session = Session(caller >> Beeps() >> vad.SileroVAD() >> stt >> Answering(patient) >> out)
        async with session:
            loop, size = asyncio.get_running_loop(), rate // 50 * 2
            began = loop.time()
            for number, at in enumerate(range(0, len(sound), size)):
                await asyncio.sleep(began + number * 0.02 - loop.time())
                await caller.send(InputAudioFrame(sound[at : at + size], rate))
            caller.close()
        return [frame for frame in out.frames if isinstance(frame, AnsweredBy)]

    async def main() -> list[list[AnsweredBy]]:
        return await asyncio.gather(*(picked_up(text) for text in (*PEOPLE, *MACHINES)))

    for text, decided in zip((*PEOPLE, *MACHINES), asyncio.run(main()), strict=True):
        said = [(frame.by, frame.ready) for frame in decided]
        if text in PEOPLE:
            assert said == [("human", True)], (text, decided)
        else:
            assert said[-1] == ("machine", True), (text, decided)
            assert decided[-1].why == "a beep", (text, decided)
