"""What the callers of a scorecard do and what is expected of the agent: scenes, read from TOML and checked.

The one rule: a scene that could be misunderstood is refused, with its name and the field that is wrong.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from voiceflow.errors import VoiceflowError, what_and_where

__all__ = [
    "EXPECTATIONS",
    "KINDS",
    "NOISES",
    "SOUNDS",
    "VOICES",
    "VOICE_LEVEL_DB",
    "Action",
    "Scene",
    "SceneError",
    "Sound",
    "check_times",
    "default_scenes",
    "length_s",
    "read_scenes",
]

VOICES = ("heart", "michael", "sarah", "eric")
VOICE_LEVEL_DB = -26.0
"""The usual active level of a telephone voice, in dB of full scale (ITU-T P.56, G.100.1)."""
WORD_S = 0.3
"""How long a word takes where no voice speaks it."""

KINDS = (
    "question",
    "two-part",
    "hesitation",
    "short-answer",
    "barge-in",
    "opening",
    "thinking",
    "backchannel",
    "cough",
    "breath",
    "noise",
    "aside",
    "echo",
    "repeated",
    "repetition",
    "silence",
)

EXPECTATIONS = {
    "answered": "the agent replies once, when the caller has finished, and says its reply to the end",
    "continues": "the caller has not finished: the agent says nothing before the next action is over",
    "keeps": "the agent says what it is saying to the end, and does not reply",
    "yields": "the agent falls silent, for good, and then replies",
    "stops": "the agent falls silent, for good; whether it replies is its own affair",
    "ignored": "the call goes on as if nothing had been",
}


class Sound(msgspec.Struct, frozen=True):
    """A sound that is no speech: how long it lasts, and whether the scripted voice detector takes it for a voice."""

    seconds: float
    trips: bool


SOUNDS = {
    "cough": Sound(0.4, True),
    "throat": Sound(0.5, True),
    "ahem": Sound(0.5, True),
    "laugh": Sound(0.8, True),
    "chuckle": Sound(0.4, True),
    "breath": Sound(0.6, True),
    "sigh": Sound(0.7, True),
    "sneeze": Sound(0.5, True),
    "sniff": Sound(0.3, False),
    "mhm": Sound(0.4, True),
    "mm": Sound(0.35, True),
    "uh-huh": Sound(0.45, True),
    "cough-twice": Sound(0.9, True),
    "cough-fit": Sound(1.6, True),
    "bark": Sound(0.4, True),
    "keys": Sound(1.0, False),
    "door": Sound(0.4, False),
    "horn": Sound(0.8, False),
    "white": Sound(2.0, False),
    "pink": Sound(2.0, False),
    "traffic": Sound(2.0, False),
    "hum": Sound(2.0, False),
    "typing": Sound(2.0, False),
    "babble": Sound(2.0, True),
}
NOISES = ("babble", "hum", "pink", "traffic", "typing", "white")
"""The sounds that can lie under a voice or a whole call."""


class SceneError(VoiceflowError):
    """A scene set that cannot be played."""


class Action(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One thing the caller does: says something or makes a sound, at one time.

    ``say`` is what there is to understand, ``sound`` how it sounds if it is not simply spoken: a cough has no words, and
    "mhm" is said with the mouth shut.

    Exactly one of the four times is given, in seconds. ``after_start`` and ``after_end`` are counted from when the agent
    is first heard, or has next finished, since the action before this one ended (or the call began).
    """

    at: float | None = None
    """From the beginning of the call."""
    after_start: float | None = None
    after_end: float | None = None
    after_previous: float | None = None
    """From the end of the action before."""
    say: str | None = None
    sound: str | None = None
    seconds: float | None = None
    """How long a ``sound`` lasts; for words it is only an estimate, used where nothing speaks them."""
    voice: str = ""
    level_db: float = VOICE_LEVEL_DB
    noise: str | None = None
    snr_db: float | None = None
    """Of ``noise`` under these words."""
    far: bool = False
    """Across the room: somebody else."""
    expect: str = ""
    """In place of the scene's."""
    late_s: float = 0.0
    """The scripted recogniser's final is late by so much."""
    seed: int = 0
    """Which of a sound's variants, of a room's, of a noise's."""

    @property
    def is_speech(self) -> bool:
        """Whether it is words."""
        return self.say is not None


class Scene(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One call. Actions are filled in from the scene: each has its voice and its expectation."""

    name: str
    kind: str
    expect: str
    do: tuple[Action, ...] = ()
    agent_says: str = ""
    """What the agent is made to say first, through the session: no model decides how long it takes."""
    voice: str = VOICES[0]
    noise: str | None = None
    snr_db: float | None = None
    """A bed of noise through the whole call, so far below a voice at ``VOICE_LEVEL_DB``."""
    echo_db: float | None = None
    """The agent's own sound comes back into the microphone with this gain."""
    listen_s: float = 3.0
    """How long the caller stays on the line, at least, when nothing more is to come."""


def length_s(action: Action) -> float:
    """How long an action takes, as far as can be told without its sound."""
    if action.seconds is not None:
        return action.seconds
    if action.sound is not None:
        return SOUNDS[action.sound].seconds
    return WORD_S * len((action.say or "").split())


def default_scenes() -> tuple[Scene, ...]:
    """The set that comes with voiceflow."""
    with resources.as_file(resources.files("voiceflow.score") / "scenes.toml") as path:
        return read_scenes(path)


def read_scenes(path: Path) -> tuple[Scene, ...]:
    """The scenes of a file. Raises SceneError naming file, scene and field for anything that is wrong."""
    try:
        whole = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SceneError(f"{path} cannot be read: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SceneError(f"{path} is not TOML: {error}") from error
    tables = whole.pop("scene", None)
    if whole:
        raise SceneError(f"{path}: unknown field {next(iter(whole))!r} at the top; a set is [[scene]] tables and nothing else")
    if not isinstance(tables, list) or not tables:
        raise SceneError(f"{path} holds no scene; write [[scene]] tables")
    scenes = [_read(table, number, path) for number, table in enumerate(tables, 1)]
    names: set[str] = set()
    for scene in scenes:
        if scene.name in names:
            raise SceneError(f"{path}: scene {scene.name!r}: name is used twice")
        names.add(scene.name)
    return tuple(scenes)


def _read(table: Any, number: int, path: Path) -> Scene:
    called = table.get("name") if isinstance(table, dict) else None
    where = f"{path}: scene {called!r}" if isinstance(called, str) else f"{path}: scene number {number}"
    try:
        scene = msgspec.convert(table, Scene, strict=True)
        scene = msgspec.structs.replace(scene, do=tuple(_filled(action, scene) for action in scene.do))
        _check(scene)
        check_times(scene, length_s)
    except msgspec.ValidationError as error:
        raise SceneError(f"{where}: {_plainly(error)}") from error
    except ValueError as error:
        raise SceneError(f"{where}: {error}") from error
    return scene


def _plainly(error: msgspec.ValidationError) -> str:
    """msgspec's message with the place first: ``do[0].sayy: ...``."""
    what, place = what_and_where(error)
    place = place.removeprefix("$").removeprefix(".")
    return f"{place}: {what}" if place else what


def _filled(action: Action, scene: Scene) -> Action:
    return msgspec.structs.replace(action, voice=action.voice or scene.voice, expect=action.expect or scene.expect)


def _check(scene: Scene) -> None:
    """Raises ValueError that begins with the field."""
    if not scene.name.strip():
        raise ValueError("name: is empty")
    _one_of("kind", scene.kind, KINDS)
    _one_of("expect", scene.expect, EXPECTATIONS)
    _one_of("voice", scene.voice, VOICES)
    _number("listen_s", scene.listen_s, 0.0, 600.0)
    if scene.echo_db is not None:
        _number("echo_db", scene.echo_db, -90.0, 0.0)
    _noise("", scene.noise, scene.snr_db)
    for index, action in enumerate(scene.do):
        _check_action(f"do[{index}].", action)
    if scene.do and scene.do[-1].expect == "continues":
        raise ValueError(f"do[{len(scene.do) - 1}].expect: is 'continues', and nothing follows")
    if scene.expect == "keeps" and not scene.agent_says:
        raise ValueError("agent_says: is missing; what the agent is to keep saying must be known")


def _check_action(place: str, action: Action) -> None:
    times = [name for name in ("at", "after_start", "after_end", "after_previous") if getattr(action, name) is not None]
    if len(times) != 1:
        raise ValueError(f"{place}at: give one of at, after_start, after_end, after_previous; this has {', '.join(times) or 'none'}")
    _number(place + times[0], getattr(action, times[0]), 0.0, 600.0)
    if action.say is None and action.sound is None:
        raise ValueError(f"{place}say: is missing, and so is sound; give one of them")
    if action.say is not None and not action.say.strip():
        raise ValueError(f"{place}say: is empty")
    if action.sound is not None:
        _one_of(f"{place}sound", action.sound, SOUNDS)
    if action.seconds is not None:
        _number(f"{place}seconds", action.seconds, 0.05, 60.0)
    _one_of(f"{place}voice", action.voice, VOICES)
    _one_of(f"{place}expect", action.expect, EXPECTATIONS)
    _number(f"{place}level_db", action.level_db, -80.0, 0.0)
    _number(f"{place}late_s", action.late_s, 0.0, 10.0)
    _noise(place, action.noise, action.snr_db)


def _noise(place: str, noise: str | None, snr_db: float | None) -> None:
    if (noise is None) != (snr_db is None):
        raise ValueError(f"{place}{'noise' if noise is None else 'snr_db'}: is missing; noise and snr_db go together")
    if noise is not None and snr_db is not None:
        _one_of(f"{place}noise", noise, NOISES)
        _number(f"{place}snr_db", snr_db, -20.0, 80.0)


def _one_of(field: str, value: str, known: Sequence[str] | dict[str, Any]) -> None:
    if value not in known:
        raise ValueError(f"{field}: {value!r} is not known; it is one of {', '.join(known)}")


def _number(field: str, value: float, low: float, high: float) -> None:
    if not (math.isfinite(value) and low <= value <= high):
        raise ValueError(f"{field}: is {value:g}; it must lie between {low:g} and {high:g}")


def check_times(scene: Scene, length: Callable[[Action], float]) -> None:
    """Raise ValueError if an action with an absolute time would begin before the one in front of it is over.

    ``length(action)`` is how long it takes, in seconds: the caller has one mouth.
    """
    free_at = 0.0
    for index, action in enumerate(scene.do):
        if action.at is not None:
            if action.at < free_at - 1e-6:
                raise ValueError(
                    f"do[{index}].at: is {action.at:g}, but the action before it lasts until {free_at:.2f}: their times overlap"
                )
            free_at = action.at
        elif action.after_previous is not None:
            free_at += action.after_previous
        free_at += length(action)
