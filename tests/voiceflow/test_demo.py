"""The demo: its play, its book-keeping and its picture by themselves, and the whole call on real models."""

from __future__ import annotations

import json
import subprocess
import sys
import wave
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

from voiceflow import (
    ContextFrame,
    Heard,
    LLMTextFrame,
    OutputAudioFrame,
    PlaybackStarted,
    PlaybackStopped,
    SpeechStopped,
    TranscriptFrame,
    TurnEnded,
    Word,
)
from voiceflow.demo.journal import Journal, word_error_rate
from voiceflow.demo.script import RATE, SCRIPT, Caller, Line, Spoken, load_line, read_wav
from voiceflow.demo.timeline import svg
from voiceflow.interruption import Interruption
from voiceflow.models import DEFAULT, ModelStore
from voiceflow.score.recording import Recording
from voiceflow.score.words import edits, normal_words

FRAME = 320


def loud(seconds: float) -> np.ndarray:
    return np.full(round(seconds * RATE), 8000, np.int16)


class Play:
    """A caller on a clock of its own."""

    def __init__(self, *lines: tuple[Line, np.ndarray]) -> None:
        self.caller = Caller(lines, pause_s=0.6, patience_s=15.0)
        self.now = 0.0

    def until(self, second: float) -> bool:
        """Let time pass; whether the caller is still there at the end."""
        while self.now < second - 1e-9:
            if self.caller.frame(self.now, FRAME) is None:
                return False
            self.now += 0.02
        return True


class TestTheCaller:
    def test_waits_for_the_answer_to_be_heard(self) -> None:
        """The second line begins a pause after the first one's answer is over, not before."""
        play = Play((Line("one"), loud(0.5)), (Line("two"), loud(0.5)))
        play.until(3.0)
        play.caller.agent_began(1.5)
        play.until(5.0)
        assert [s.line.text for s in play.caller.spoken] == ["one"]
        play.caller.agent_stopped(5.0)
        play.until(7.0)
        assert [round(s.begin, 1) for s in play.caller.spoken] == [0.6, 5.6]

    def test_cuts_in_so_long_after_the_answer_began(self) -> None:
        """A line with cuts_in_s is said over the answer."""
        play = Play((Line("one"), loud(0.5)), (Line("stop", cuts_in_s=1.0), loud(0.5)))
        play.until(2.0)
        play.caller.agent_began(2.0)
        play.until(4.0)
        assert round(play.caller.spoken[1].begin, 1) == 3.0

    def test_goes_on_when_no_answer_comes(self) -> None:
        """Patience has an end, so that a broken agent does not hang the demo."""
        play = Play((Line("one"), loud(0.5)), (Line("two"), loud(0.5)))
        assert play.until(20.0)
        assert len(play.caller.spoken) == 2
        assert not play.until(40.0)

    def test_knows_when_its_voice_began_and_ended(self) -> None:
        """Silence at the edges of a recording is not voice."""
        sound = np.concatenate([np.zeros(1600, np.int16), loud(0.3), np.zeros(1600, np.int16)])
        play = Play((Line("one"), sound))
        play.until(2.0)
        assert (round(play.caller.spoken[0].begin, 2), round(play.caller.spoken[0].end, 2)) == (0.7, 1.0)

    def test_has_a_recording_for_each_line(self) -> None:
        """Every line of the script is shipped, with voice in it."""
        for line in SCRIPT:
            assert np.abs(load_line(line)).max() > 3000

    def test_reads_any_16_bit_wav(self, tmp_path: Path) -> None:
        """Other rates and stereo are brought to 16 kHz mono; other widths are refused by name."""
        path = tmp_path / "a.wav"
        write_wav(path, 44100, 2, 2, bytes(4 * 44100))
        assert abs(len(read_wav(path)) - RATE) <= 16
        write_wav(path, 8000, 1, 1, bytes(100))
        with pytest.raises(ValueError, match=r"a\.wav: 8-bit samples"):
            read_wav(path)
        write_wav(path, 8000, 4, 2, bytes(800))
        with pytest.raises(ValueError, match="4 channels"):
            read_wav(path)
        for junk in (b"", b"no WAV at all"):
            path.write_bytes(junk)
            with pytest.raises(ValueError, match=r"a\.wav is not a WAV file"):
                read_wav(path)


def write_wav(path: Path, rate: int, channels: int, width: int, data: bytes) -> None:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes(data)


def told(journal: Journal) -> list[Spoken]:
    """Two lines; the answer to the first is cut by the second."""
    journal.see(SpeechStopped(at=1.1, silence=0.2), 1.3)
    journal.see(TranscriptFrame("what is 2 plus two"), 1.35)
    end = TurnEnded(text="what is 2 plus two", speech_ended=1.1)
    journal.see(end, 1.4)
    journal.see(end, 1.4)  # the same frame on another edge
    journal.see(ContextFrame(utterance=1), 1.4)
    journal.see(LLMTextFrame("It is ", utterance=1), 1.5)
    journal.see(LLMTextFrame("four.", utterance=1), 1.6)
    journal.see(OutputAudioFrame(bytes(4410), 22050, words=(Word("It", 0.0, 0.1),), utterance=1), 1.7)
    journal.see(OutputAudioFrame(bytes(4410), 22050, words=(Word("is", 0.02, 0.1),), utterance=1), 1.7)
    journal.see(PlaybackStarted(utterance=1, at=1.75), 1.8)
    journal.cut(Interruption("", 1, 3.3, heard=[Heard(1, "It is", complete=False)]))
    journal.see(TurnEnded(text="goodbye", speech_ended=4.0), 4.4)
    journal.see(ContextFrame(utterance=2), 4.4)
    journal.see(PlaybackStarted(utterance=2, at=5.0), 5.0)
    journal.see(PlaybackStopped(heard=Heard(2, "Bye.", complete=True)), 6.0)
    return [Spoken(Line("What is two plus two?"), 0.2, 1.0), Spoken(Line("Good buy.", cuts_in_s=1.0), 3.0, 4.0)]


class TestTheJournal:
    def test_tells_each_line_what_was_heard_and_answered(self) -> None:
        """Turns are found by time, replies by their utterance."""
        journal = Journal()
        first, second = journal.turns(told(journal))
        assert (first.heard, first.reply.text, first.reply.heard, first.reply.interrupted) == (
            "what is 2 plus two",
            "It is four.",
            "It is",
            True,
        )
        assert (second.heard, second.reply.heard, second.reply.interrupted) == ("goodbye", "Bye.", False)

    def test_counts_the_waterfall_from_the_end_of_the_voice(self) -> None:
        """Stages in milliseconds; the stages after each other make the sum."""
        journal = Journal()
        steps = journal.turns(told(journal))[0].waterfall()
        assert steps["endpointing"] == 400
        assert (steps["of_it_vad"], steps["of_it_stt"]) == (300, 50)
        assert (steps["llm_first_token"], steps["voice_to_voice"]) == (100, 750)

    def test_knows_a_turn_that_was_taken_up_again(self) -> None:
        """Its first words are told twice and heard once."""
        journal = Journal()
        journal.see(TurnEnded(text="Wait."), 1.0)
        journal.see(TurnEnded(text="Wait. What is it?"), 2.0)
        assert journal.turns([Spoken(Line("Wait. What is it?"), 0.0, 1.9)])[0].heard == "Wait. What is it?"

    def test_without_a_script_the_turns_are_those_heard(self) -> None:
        """A WAV file's caller is known by what was made out."""
        journal = Journal()
        told(journal)
        turns = journal.turns([Spoken(Line(None), 0.0, 6.0)])
        assert [(turn.said, turn.heard) for turn in turns] == [(None, "what is 2 plus two"), (None, "goodbye")]
        assert word_error_rate(turns) is None

    def test_a_line_nobody_heard_has_no_answer(self) -> None:
        """It is a turn all the same."""
        turn = Journal().turns([Spoken(Line("hello"), 0.0, 1.0)])[0]
        assert (turn.heard, turn.reply) == ("", None)

    def test_words_lie_where_their_sound_begins(self) -> None:
        """Counted through all the frames of the utterance."""
        journal = Journal()
        told(journal)
        made = journal.made(22050)
        assert len(made.samples()) == 4410
        assert [(word.text, word.begin) for word in made.utterances[0].words] == [("It", 0), ("is", round(0.12 * 22050))]

    def test_the_word_error_rate_is_over_all_lines(self) -> None:
        """Two wrong of seven words."""
        journal = Journal()
        assert word_error_rate(journal.turns(told(journal))) == pytest.approx(2 / 7)


def test_words_are_compared_as_spoken() -> None:
    """Figures, marks and capitals make no difference."""
    assert normal_words("What is 2 plus 2?") == normal_words("what is two plus two")
    assert edits(["a", "b", "c"], ["a", "x", "c", "d"]) == 2
    assert edits([], ["a"]) == edits(["a"], []) == 1


def test_a_recording_keeps_both_sides_on_one_clock(tmp_path: Path) -> None:
    """Left is the caller, right the agent, each where it was on the clock."""
    now = [10.0]
    recording = Recording(RATE, 22050, lambda: now[0])
    recording.caller.add(loud(0.5).tobytes(), 10.0)
    now[0] = 11.0
    recording.play(np.full(2205, 4000, "<i2").tobytes())
    now[0] = 11.101  # a little late: it goes right behind
    recording.play(np.full(2205, 4000, "<i2").tobytes())
    recording.save(tmp_path / "c.wav")
    with wave.open(str(tmp_path / "c.wav")) as file:
        both = np.frombuffer(file.readframes(file.getnframes()), "<i2").reshape(-1, 2)
    left, right = np.flatnonzero(np.abs(both[:, 0]) > 1000), np.flatnonzero(both[:, 1])
    assert left[0] < 100
    assert abs(left[-1] - 11025) < 100
    assert (right[0], right[-1]) == (22050, 22050 + 4409)
    assert recording.agent.last_sound(10.5, 12.0) == pytest.approx(11.2, abs=0.001)
    assert recording.agent.last_sound(11.3, 12.0) is None


def test_the_picture_is_svg_and_shows_the_words() -> None:
    """Well-formed XML with the words escaped."""
    journal = Journal()
    spoken = told(journal)
    recording = Recording(RATE, 22050, lambda: 0.0)
    recording.caller.add(loud(1.0).tobytes(), 0.0)
    turns = journal.turns(spoken)
    turns[0].heard = "<what> & why"
    picture = svg(recording, turns, [Interruption("", 1, 3.3, heard=[Heard(1, "It is", complete=False)])])
    text = " ".join(ET.fromstring(picture).itertext())
    assert "<what> & why" in text
    assert "It is" in text
    assert "interrupt" in text


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], Path]:
    store = ModelStore()
    missing = [name for name in DEFAULT if store.find(name) is None]
    if missing:
        pytest.skip(f"the models are not here; run: voiceflow models get {' '.join(missing)}")
    folder = tmp_path_factory.mktemp("demo")
    command = [sys.executable, "-m", "voiceflow", "demo", "--json", "--out", str(folder)]
    return subprocess.run(command, capture_output=True, text=True, timeout=110, check=False), folder


class TestTheCall:
    """On real models, in real time."""

    def test_every_turn_is_heard_and_answered(self, demo: tuple[subprocess.CompletedProcess[str], Path]) -> None:
        """The exit code says so, and the last line on stdout is one object with the figures."""
        run, _ = demo
        assert run.returncode == 0, run.stderr
        report = json.loads(run.stdout.splitlines()[-1])
        assert report["problems"] == []
        assert [turn["said"] for turn in report["turns"]] == [line.text for line in SCRIPT]
        assert all(turn["heard"] and turn["answer"] and turn["heard_answer"] for turn in report["turns"])
        assert report["wer"] <= 0.1

    def test_the_barge_in_leaves_nothing_stale(self, demo: tuple[subprocess.CompletedProcess[str], Path]) -> None:
        """The cut answer is in the context as far as its sound is in the recording, to the word."""
        run, _ = demo
        report = json.loads(run.stdout.splitlines()[-1])
        assert [turn["interrupted"] for turn in report["turns"]] == [False, False, True, False, False]
        assert report["stale_ms"] == 0
        assert report["context_error_words"] <= 1

    def test_it_writes_what_it_says(self, demo: tuple[subprocess.CompletedProcess[str], Path]) -> None:
        """The recording has two channels with sound, the transcript is JSON, the timeline is SVG."""
        _, folder = demo
        with wave.open(str(folder / "conversation.wav")) as file:
            both = np.frombuffer(file.readframes(file.getnframes()), "<i2").reshape(-1, 2)
        assert (np.abs(both.astype(int)).max(axis=0) > 3000).all()
        context = json.loads((folder / "transcript.json").read_text())["context"]
        assert [m["role"] for m in context][:2] == ["user", "assistant"]
        assert sum(m["interrupted"] for m in context) == 1
        ET.parse(folder / "timeline.svg")
