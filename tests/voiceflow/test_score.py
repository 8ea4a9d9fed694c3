"""The scorecard on a virtual clock: a good agent passes every scene, and each fault is seen in an agent that has it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from voiceflow import InputAudioFrame, Message, OutputAudioFrame, Pipeline, Processor, ResumeFrame, SpeechStarted, SpeechStopped, replace
from voiceflow.frames import AudioFormat
from voiceflow.interruption import Interruption
from voiceflow.processors.context import Context
from voiceflow.processors.conversation import Conversation
from voiceflow.processors.end_policies import Silence
from voiceflow.processors.start_policies import Never
from voiceflow.processors.text import Sentences
from voiceflow.processors.turn_options import TurnOptions
from voiceflow.processors.turns import Turns
from voiceflow.score import command, scripted
from voiceflow.score.caller import CallerLine
from voiceflow.score.card import as_json, percentile, scorecard
from voiceflow.score.command import play_all
from voiceflow.score.measures import Figures
from voiceflow.score.presets import preset_names, read_turns, with_turns
from voiceflow.score.scenes import EXPECTATIONS, KINDS, NOISES, Action, Scene, default_scenes
from voiceflow.score.scripted import LLM, STT, TTS, TURNS, reply
from voiceflow.testing import ScriptedLLM, ScriptedSTT, ScriptedTTS, ScriptedTurnEnd, ScriptedVAD

SCENES = {scene.name: scene for scene in default_scenes()}


class Agent:
    """The scripted agent, with parts of it exchanged: call it as an application."""

    def __init__(
        self,
        *,
        options: TurnOptions = TURNS,
        context: type[Context] = Context,
        before_ear: type[Processor] | None = None,
        pre_roll_s: float | None = None,
        gate: type[Processor] | None = None,
        says: str | None = None,
    ) -> None:
        self.options = options
        self.context = context
        self.before_ear = before_ear
        self.pre_roll_s = pre_roll_s
        self.gate = gate
        self.says = says

    def __call__(self, source: Processor, sink: Processor) -> Pipeline:
        texts, levels, late = (source.texts, source.levels, source.late) if isinstance(source, CallerLine) else ([], {}, {})
        stt = ScriptedSTT(texts, STT, late=late, pre_roll_s=self.pre_roll_s)
        hearing = source >> ScriptedVAD(levels=levels)
        if self.gate is not None:
            hearing = hearing >> self.gate()
        hearing = hearing >> [stt, ScriptedTurnEnd(texts)] >> Turns(self.options)
        model = ScriptedLLM(lambda messages: reply(messages) if self.says is None else self.says, LLM)
        speaking = hearing >> self.context("Be brief.") >> model >> Sentences() >> ScriptedTTS(TTS, numbered=True, word_s=0.3)
        return speaking >> self.before_ear() >> sink if self.before_ear is not None else speaking >> sink


def score(agent: Agent, *names: str) -> Figures:
    """The figures of one or more scenes, added up."""
    total = Figures()
    for _, figures in play_all(agent, [SCENES[name] for name in names]):
        for field in Figures.__dataclass_fields__:
            setattr(total, field, getattr(total, field) + getattr(figures, field))
    return total


@pytest.fixture(scope="module")
def card() -> dict[str, object]:
    return scorecard(play_all(scripted.agent, list(SCENES.values())), app="scripted", mode="virtual", turns=None)


class TestTheSet:
    def test_covers_every_kind_in_several_voices_and_noises(self) -> None:
        """60 scenes or more, of every kind and expectation, in three voices or more, with noise at stated ratios."""
        scenes = list(SCENES.values())
        assert len(scenes) >= 60
        assert {scene.kind for scene in scenes} == set(KINDS)
        assert {action.expect for scene in scenes for action in scene.do} == set(EXPECTATIONS) - {"stops"}
        assert len({action.voice for scene in scenes for action in scene.do if action.is_speech}) >= 3
        assert len({(scene.noise, scene.snr_db) for scene in scenes if scene.noise in NOISES}) >= 5

    def test_holds_enough_distractions_and_barge_ins(self) -> None:
        """20 or more backchannels, coughs and noises over the agent; 10 or more interruptions."""
        over = Counter(scene.kind for scene in SCENES.values() if scene.agent_says and scene.expect == "keeps")
        assert over["backchannel"] + over["cough"] + over["noise"] >= 20
        assert sum(action.expect == "yields" for scene in SCENES.values() for action in scene.do) >= 10


class TestAGoodAgent:
    def test_fails_no_scene(self, card: dict[str, object]) -> None:
        """The scripted agent does what each scene expects."""
        assert card["failed"] == []
        zero = ("false_yields", "missed_barge_ins", "clipped_first_words", "unheard_words_in_context", "heard_words_missing", "stale_ms")
        assert {name: card[name] for name in zero} == dict.fromkeys(zero, 0)
        assert card["scenes"] == len(SCENES)

    def test_is_measured_to_the_millisecond_it_was_made_to_take(self, card: dict[str, object]) -> None:
        """Response: 200 ms to notice, 250 for the words, 350 and some tokens for the model, 150 for the voice. Yield: 100 ms to notice."""
        assert isinstance(card["response_ms_p50"], int)
        assert 950 <= card["response_ms_p50"] <= 1050
        assert isinstance(card["yield_ms_p50"], int)
        assert 100 <= card["yield_ms_p50"] <= 120
        assert isinstance(card["holds_resumed"], int)
        assert card["holds_resumed"] >= 20

    def test_gets_the_same_card_every_time(self) -> None:
        """Three runs, byte for byte."""
        scenes = list(SCENES.values())[::9]
        assert len({as_json(scorecard(play_all(scripted.agent, scenes), app="a", mode="virtual", turns=None)) for _ in range(3)}) == 1


class Careless(Context):
    """Believes that everything it wrote was heard."""

    def _read(self) -> Conversation:
        kept = Context.conversation.fget(self)  # type: ignore[attr-defined]
        return Conversation(tuple(self._as_written(m) if m.interrupted else m for m in kept.messages))

    @staticmethod
    def _as_written(message: Message) -> Message:
        return Message(message.role, f"{message.text} and so on and so forth")

    conversation = property(_read, Context.conversation.fset)  # type: ignore[attr-defined,assignment]


class Forgetful(Careless):
    """Believes that nothing was heard of what was interrupted but its first word."""

    @staticmethod
    def _as_written(message: Message) -> Message:
        return Message(message.role, message.text.split()[0])


class Hoard(Processor):
    """Keeps the last sound it passed on, and sends it again after an interrupt."""

    takes = (AudioFormat(24000),)

    def __init__(self) -> None:
        self.kept: list[OutputAudioFrame] = []
        self.due: list[OutputAudioFrame] = []

    def process(self, frame: OutputAudioFrame) -> Iterator[OutputAudioFrame]:
        yield from (replace(old, epoch=frame.epoch) for old in self.due)
        self.due = []
        self.kept = [*self.kept[-2:], frame]
        yield frame

    def on_interrupt(self, interrupt: Interruption) -> None:
        self.due, self.kept = self.kept, []


class LateStart(Processor):
    """Loses the first 200 ms of each utterance."""

    def __init__(self) -> None:
        self.utterance = -1

    def process(self, frame: OutputAudioFrame) -> OutputAudioFrame:
        if frame.utterance == self.utterance:
            return frame
        self.utterance = frame.utterance
        return replace(frame, pcm=frame.pcm[2 * 4800 :], words=())


class Gate(Processor):
    """Lets the caller's sound through only while the detector hears speech."""

    def __init__(self) -> None:
        self.is_open = False

    def process(self, frame: InputAudioFrame | SpeechStarted | SpeechStopped) -> Iterator[InputAudioFrame | SpeechStarted | SpeechStopped]:
        if isinstance(frame, InputAudioFrame):
            if self.is_open:
                yield frame
        else:
            self.is_open = isinstance(frame, SpeechStarted)
            yield frame


class Nag(Processor):
    """After a resume says the last two words once more."""

    takes = (AudioFormat(24000),)

    def __init__(self) -> None:
        self.kept: list[OutputAudioFrame] = []
        self.is_due = False

    def process(self, frame: OutputAudioFrame | ResumeFrame) -> Iterator[OutputAudioFrame | ResumeFrame]:
        if isinstance(frame, ResumeFrame):
            self.is_due = True
        elif self.is_due:
            self.is_due = False
            yield from (replace(old) for old in self.kept)
        else:
            self.kept = [*self.kept[-1:], frame]
        yield frame


class TestABrokenAgent:
    def test_that_ignores_the_caller_misses_barge_ins(self) -> None:
        """Nothing interrupts it: the barge-in is missed."""
        figures = score(Agent(options=TurnOptions(barge_in=Never())), "barge-in", "barge-in, stop")
        assert (figures.barge_ins, figures.missed_barge_ins, figures.yield_ms) == (2, 2, [])
        assert "missed barge-in" in figures.problems[0]

    def test_that_stops_at_any_voice_yields_falsely(self) -> None:
        """A cough and a "mhm" each cost the agent its sentence, and it answers the one that has words."""
        figures = score(Agent(options=read_turns("any-voice")), "cough 0, over the bakery", "mhm, heart, over the bakery")
        assert (figures.false_yields, figures.false_replies, figures.hold_ms) == (2, 1, [])

    def test_that_waits_for_words_yields_late(self) -> None:
        """With minimum words the yield takes as long as the recogniser does, and "Stop." is missed."""
        late = score(Agent(options=read_turns("min-words-3")), "barge-in, michael")
        prompt = score(Agent(), "barge-in, michael")
        assert late.yield_ms[0] > prompt.yield_ms[0] + 300
        assert score(Agent(options=read_turns("min-words-2")), "barge-in, stop").missed_barge_ins == 1

    def test_that_remembers_what_was_not_said_has_unheard_words(self) -> None:
        """The six words it adds are counted, and none is missing."""
        figures = score(Agent(context=Careless), "barge-in")
        assert (figures.unheard_words_in_context, figures.heard_words_missing) == (6, 0)
        assert any("6 words that were not heard" in problem for problem in figures.problems)

    def test_that_forgets_what_was_heard_lacks_words(self) -> None:
        """All but the first of the words heard are missing."""
        figures = score(Agent(context=Forgetful), "barge-in")
        assert figures.unheard_words_in_context == 0
        assert figures.heard_words_missing >= 5

    def test_that_plays_old_sound_after_a_stop_is_stale(self) -> None:
        """Three words of 300 ms come again behind the interrupt: 900 ms."""
        figures = score(Agent(before_ear=Hoard), "barge-in")
        assert figures.stale_ms == pytest.approx(900, abs=1)

    def test_that_says_words_again_repeats(self) -> None:
        """Two words that had been heard whole, behind a cough."""
        figures = score(Agent(before_ear=Nag), "cough 0, over the bakery")
        assert figures.repeated_words == 2
        assert any("again, which had not been cut" in problem for problem in figures.problems)

    @pytest.mark.parametrize("agent", [Agent(gate=Gate), Agent(pre_roll_s=0.0)], ids=["gate", "no pre-roll"])
    def test_that_listens_too_late_clips_the_caller(self, agent: Agent) -> None:
        """Without pre-roll the first word of a question is lost."""
        figures = score(agent, "question")
        assert figures.clipped_first_words == 1
        assert "'what'" in figures.problems[-1]

    def test_that_speaks_too_late_clips_itself(self) -> None:
        """The first word of the answer was heard from its middle on."""
        figures = score(Agent(before_ear=LateStart), "question")
        assert figures.clipped_first_words == 1

    def test_that_cannot_wait_talks_over_the_caller(self) -> None:
        """With an end of turn after 100 ms, a pause of 1.2 s is taken for the end: the turn is taken in it."""
        say = partial(Action, voice="heart")
        first = say(at=0.6, say="I would like to, um...", expect="continues")
        then = say(after_previous=1.2, say="book a table.", expect="answered")
        scene = Scene(name="a pause", kind="hesitation", expect="answered", do=(first, then))
        hasty, patient = Agent(options=TurnOptions(end=Silence(0.1))), Agent(options=TurnOptions(end=Silence(1.3)))
        assert play_all(hasty, [scene])[0][1].talked_over == 1
        assert play_all(patient, [scene])[0][1].problems == []

    def test_that_says_nothing_is_counted_as_unanswering(self) -> None:
        """A question without an answer has no response time."""
        figures = score(Agent(says=""), "question")
        assert (figures.unanswered, figures.response_ms) == (1, [])


class TestTheCard:
    def test_percentiles_are_values_that_were_measured(self) -> None:
        """Nearest rank; of nothing there is none."""
        assert percentile([], 50) is None
        assert percentile([7], 95) == 7
        assert percentile([4, 1, 3, 2], 50) == 2
        assert percentile(list(range(1, 101)), 95) == 95

    def test_names_what_failed(self) -> None:
        """A failed scene stands in the card with its kind and its problems, and counts in its kind's row."""
        scene = Scene(name="a", kind="cough", expect="keeps", agent_says="hello")
        card = scorecard([(scene, Figures(problems=["it gave up"], false_yields=1))], app="x", mode="virtual", turns="ours")
        assert card["failed"] == [{"scene": "a", "kind": "cough", "problems": ["it gave up"]}]
        assert card["kinds"]["cough"]["false_yields"] == card["false_yields"] == 1


class TestTheCommand:
    def test_prints_one_object_and_gives_0(self, capsys: pytest.CaptureFixture[str]) -> None:
        """With --json, stdout is one line with the keys that were promised."""
        assert command.main(["--json", "--only", "two-part"]) == 0
        card = json.loads(capsys.readouterr().out)
        promised = "scenes response_ms_p50 yield_ms_p50 false_yields holds_resumed missed_barge_ins clipped_first_words"
        assert set(f"{promised} unheard_words_in_context heard_words_missing stale_ms failed".split()) <= card.keys()
        assert (card["mode"], card["scenes"]) == ("virtual", 4)

    def test_gives_1_when_a_scene_failed(self, capsys: pytest.CaptureFixture[str]) -> None:
        """And the table says which, and why."""
        assert command.main(["--turns", "any-voice", "--only", "cough 0*"]) == 1
        assert "FAILED cough 0, over the bakery: false yield" in capsys.readouterr().out

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (["nowhere.py"], "there is no file nowhere.py"),
            (["--set", "nowhere.toml"], "nowhere.toml cannot be read"),
            (["--turns", "nobody's"], "neither a preset (any-voice, "),
            (["--only", "no such scene"], "no scene has a name or a kind like 'no such scene'"),
            (["examples/echo.py", "--virtual", "--turns", "ours", "--only", "question"], "has 0 Turns nodes"),
        ],
    )
    def test_gives_2_for_wrong_usage(self, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
        """One line says what was wrong."""
        assert command.main(arguments) == 2
        assert said in capsys.readouterr().err

    def test_names_the_field_of_settings_that_are_wrong(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """An unknown policy is named, with its place and the known ones."""
        path = tmp_path / "mine.json"
        path.write_text('{"barge_in": {"policy": "psychic"}}')
        assert command.main(["--turns", str(path)]) == 2
        error = capsys.readouterr().err
        assert "mine.json" in error
        assert "$.barge_in.policy" in error
        assert "psychic" in error

    def test_every_preset_can_be_put_into_an_agent(self) -> None:
        """They are read, and a pipeline with a Turns takes them."""
        assert {"ours", "any-voice", "min-words-2", "min-words-3", "selective"} <= set(preset_names())
        for name in preset_names():
            options = read_turns(name)
            results = play_all(Agent(), [SCENES["question"]], changes=[partial(with_turns, options=options)])
            assert results[0][1].problems == []
