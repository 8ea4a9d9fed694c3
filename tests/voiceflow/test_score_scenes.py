"""Scenes as data: what is refused, and how a caller keeps their times."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from voiceflow.score.caller import CALLER_RATE, Clip, Patience, Play
from voiceflow.score.scenes import VOICES, Action, Scene, SceneError, check_times, read_scenes

FRAME = CALLER_RATE // 50

GOOD = """
[[scene]]
name = "a question"
kind = "question"
expect = "answered"
do = [{ at = 0.5, say = "what is it" }]
"""


def read(folder: Path, text: str) -> tuple[Scene, ...]:
    path = folder / "set.toml"
    path.write_text(text, encoding="utf-8")
    return read_scenes(path)


def test_a_scene_fills_in_its_actions(tmp_path: Path) -> None:
    """An action has the scene's voice and expectation unless it says otherwise."""
    (scene,) = read(tmp_path, GOOD)
    assert (scene.do[0].voice, scene.do[0].expect) == (VOICES[0], "answered")
    (scene,) = read(tmp_path, GOOD.replace('"what is it"', '"what is it", voice = "michael", expect = "yields"'))
    assert (scene.do[0].voice, scene.do[0].expect) == ("michael", "yields")


BAD = {
    "no expectation": (("expect = ", "#"), "scene 'a question': Object missing required field `expect`"),
    "no kind": (("kind = ", "#"), "scene 'a question': Object missing required field `kind`"),
    "no name": (("name = ", "#"), "scene number 1: Object missing required field `name`"),
    "unknown field": (('name = "a', 'colour = "red"\nname = "a'), "scene 'a question': Object contains unknown field `colour`"),
    "unknown field of an action": (("at = 0.5", "at = 0.5, loud = 1"), "scene 'a question': do[0]: Object contains unknown field `loud`"),
    "wrong type": (("at = 0.5", 'at = "soon"'), "scene 'a question': do[0].at: Expected `float | null`, got `str`"),
    "unknown kind": (('"question"', '"quiz"'), "scene 'a question': kind: 'quiz' is not known; it is one of question, "),
    "unknown expectation": (('"answered"', '"loved"'), "scene 'a question': expect: 'loved' is not known; it is one of answered, "),
    "unknown voice": (("at = 0.5", 'at = 0.5, voice = "nobody"'), "scene 'a question': do[0].voice: 'nobody' is not known"),
    "unknown sound": (('say = "what is it"', 'sound = "moo"'), "scene 'a question': do[0].sound: 'moo' is not known"),
    "unknown noise": (("at = 0.5", 'at = 0.5, noise = "moo", snr_db = 3'), "scene 'a question': do[0].noise: 'moo' is not known"),
    "noise without a ratio": (('kind = "q', 'noise = "pink"\nkind = "q'), "scene 'a question': snr_db: is missing"),
    "ratio without a noise": (("at = 0.5", "at = 0.5, snr_db = 10"), "scene 'a question': do[0].noise: is missing"),
    "nothing to do": ((', say = "what is it"', ""), "scene 'a question': do[0].say: is missing, and so is sound"),
    "no time": (("at = 0.5, ", ""), "scene 'a question': do[0].at: give one of at, after_start, after_end, after_previous; this has none"),
    "two times": (("at = 0.5", "at = 0.5, after_end = 1"), "scene 'a question': do[0].at: give one of"),
    "time in the past": (("at = 0.5", "at = -1"), "scene 'a question': do[0].at: is -1; it must lie between 0 and 600"),
    "not a time": (("at = 0.5", "at = nan"), "scene 'a question': do[0].at: is nan"),
    "blank words": (('"what is it"', '" "'), "scene 'a question': do[0].say: is empty"),
    "too loud": (("at = 0.5", "at = 0.5, level_db = 6"), "scene 'a question': do[0].level_db: is 6; it must lie between -80 and 0"),
    "gain of an echo": (('kind = "q', 'echo_db = 3\nkind = "q'), "scene 'a question': echo_db: is 3"),
    "overlapping times": (
        ("}]", '}, { at = 1.2, say = "and this" }]'),
        "scene 'a question': do[1].at: is 1.2, but the action before it lasts until 1.40: their times overlap",
    ),
    "continues into nothing": (
        ("at = 0.5", 'at = 0.5, expect = "continues"'),
        "scene 'a question': do[0].expect: is 'continues', and nothing",
    ),
    "keeps what": (('"answered"', '"keeps"'), "scene 'a question': agent_says: is missing"),
    "the same name twice": (("[[scene]]", GOOD + "[[scene]]"), "scene 'a question': name is used twice"),
    "no scene": ((GOOD, ""), "holds no scene"),
    "something else": (("[[scene]]", 'title = "x"\n[[scene]]'), "unknown field 'title' at the top"),
    "no TOML": (("[[scene]]", "[[scene"), "is not TOML"),
}


@pytest.mark.parametrize(("change", "said"), BAD.values(), ids=BAD.keys())
def test_what_could_be_misunderstood_is_refused(change: tuple[str, str], said: str, tmp_path: Path) -> None:
    """The error names the file, the scene and the field."""
    with pytest.raises(SceneError) as error:
        read(tmp_path, GOOD.replace(*change, 1))
    assert said in str(error.value)
    assert "set.toml" in str(error.value)


def test_times_are_checked_again_with_true_lengths() -> None:
    """What fits by estimate may not fit when the voice takes its time."""
    scene = Scene(name="a", kind="question", expect="answered", do=(Action(at=0.0, say="hello"), Action(at=1.0, say="again")))
    check_times(scene, lambda action: 0.9)
    with pytest.raises(ValueError, match=r"do\[1\]\.at: is 1, but the action before it lasts until 1\.10"):
        check_times(scene, lambda action: 1.1)


class Room:
    """Half a second of sound for each action, with 100 ms of noise before it and after."""

    texts: list[str]
    levels: dict[int, float]

    def clip(self, action: Action, label: int) -> Clip:
        return Clip(np.full(CALLER_RATE // 2, 100 + label, np.int16), CALLER_RATE // 10, CALLER_RATE * 4 // 10)

    def room(self, speech: np.ndarray, begin: float) -> np.ndarray:
        return speech


def play(*actions: Action, expect: str = "answered", listen_s: float = 1.0) -> Play:
    do = tuple(Action(**{**{f: getattr(a, f) for f in a.__struct_fields__}, "expect": a.expect or expect}) for a in actions)
    return Play(Scene(name="a", kind="question", expect=expect, do=do, listen_s=listen_s), Room(), Patience(2.0))


def until(scene: Play, second: float, begin: float = 0.0) -> tuple[float, np.ndarray]:
    """Let time pass; when the caller hung up, or that second, and what they said."""
    sound, number = [], 0
    while begin + number * 0.02 < second - 1e-9:
        frame = scene.frame(begin + number * 0.02, FRAME)
        if frame is None:
            break
        sound.append(frame)
        number += 1
    return begin + number * 0.02, np.concatenate(sound) if sound else np.zeros(0, np.int16)


def test_a_caller_speaks_at_the_very_sample() -> None:
    """0.513 s is 8,208 samples after the beginning; what counts as said is without the noise around it."""
    scene = play(Action(at=0.513, say="hello"))
    _, sound = until(scene, 2.0)
    assert np.flatnonzero(sound)[0] == round(0.513 * CALLER_RATE)
    assert len(np.flatnonzero(sound)) == CALLER_RATE // 2
    assert scene.done[0].begin == pytest.approx(0.613)
    assert scene.done[0].end == pytest.approx(0.913)


def test_a_caller_counts_from_the_agents_next_beginning_and_end() -> None:
    """The first action waits for the agent to begin; the next for it to end after that."""
    scene = play(Action(after_start=0.5, say="one"), Action(after_end=0.3, say="two"), Action(after_previous=0.4, say="three"))
    scene.agent_began(1.0)
    until(scene, 3.0)
    assert [round(d.begin, 3) for d in scene.done] == [1.6]
    scene.agent_stopped(3.0)
    until(scene, 6.0, 3.0)
    assert [round(d.begin, 3) for d in scene.done] == [1.6, 3.4, 4.3]


def test_a_caller_loses_patience_but_not_while_the_agent_talks() -> None:
    """After two seconds without a word the action's moment will not come, and that is noted; the scene ends."""
    scene = play(Action(at=0.0, say="one"), Action(after_start=0.5, say="two"))
    ended, _ = until(scene, 60.0)
    assert scene.waited_in_vain == 1
    assert ended < 6.0
    scene = play(Action(after_end=0.5, say="one"))
    scene.agent_began(0.1)
    until(scene, 20.0)
    assert scene.waited_in_vain is None


def test_a_caller_hears_the_agent_out_and_then_hangs_up() -> None:
    """A second after the answer's end."""
    scene = play(Action(at=0.0, say="one"))
    until(scene, 1.0)
    scene.agent_began(1.0)
    assert until(scene, 9.0, 1.0)[0] == pytest.approx(9.0)
    scene.agent_stopped(9.0)
    assert until(scene, 60.0, 9.0)[0] == pytest.approx(10.0)
