"""What the callers of a scorecard sound like in real time: synthetic voices, hums and coughs, at a level, with noise.

The one rule: an action has one sound. Words are spoken once, by a model, and kept on the disk; all else is made by formula.

Words are spoken by Kokoro-82M, which is not the agent's own voice. What no synthetic voice can say, and every recogniser
mishears from one ("mhm", "uh-huh"), is hummed by formula at the voice's pitch; see ``HUMS``.
"""

from __future__ import annotations

import hashlib
import os
import sys
import wave
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TextIO

import numpy as np
import numpy.typing as npt

from voiceflow import models
from voiceflow.audio import resample, to_float, to_pcm
from voiceflow.processors.marks import spoken_words
from voiceflow.processors.tts_kokoro import SAMPLE_RATE, Kokoro, KokoroOptions
from voiceflow.score import noises
from voiceflow.score.caller import Clip
from voiceflow.score.mixing import active_level_db, active_span, at_level, in_room, with_noise
from voiceflow.score.noises import RATE
from voiceflow.score.scenes import VOICE_LEVEL_DB

__all__ = ["BACKGROUNDS", "HUMS", "VOICES", "Voice", "background", "prepare", "render", "speech"]

Floats = npt.NDArray[np.float64]
Samples = npt.NDArray[np.int16]

MODEL = "kokoro"
_VERSION = 1
"""Of how a clip is made. Another number, and no clip that was kept is used again."""
_NOISE_AROUND_S = 0.3
"""How long noise is heard before and after the words it lies under."""
_BABBLE = (
    "I told him that the boxes would have to be gone by the end of the week, and he just laughed.",
    "We could take the train on Friday, but then somebody has to feed the cats.",
    "She said that the kitchen was too small for all of us, so we ate in the garden.",
    "Do you remember the restaurant by the river, with the yellow chairs and the loud music?",
)


@dataclass(frozen=True, slots=True)
class Voice:
    """A caller. ``pitch`` and ``throat``: of what is hummed or coughed, against the man of the formulas."""

    pitch: float = 1.0
    throat: float = 1.0


VOICES: Mapping[str, Voice] = {
    "heart": Voice(1.7, 1.1),
    "michael": Voice(1.0, 1.0),
    "sarah": Voice(1.6, 1.12),
    "eric": Voice(0.9, 0.97),
}
"""The callers, by name. Each has a file in ``voices/``, with a note on where it is from."""

HUMS = {
    "mhm": "mhm", "mm-hmm": "mhm", "mm-hm": "mhm", "mmhm": "mhm", "uh-huh": "uh-huh", "uhuh": "uh-huh", "mm": "mm", "mmm": "mm",
    "hm": "mm", "hmm": "mm",
}  # fmt: skip
"""Words that are hummed, each with the name of its sound."""

BACKGROUNDS = (*noises.BEDS, "babble")
"""Noise for ``background``, and to lie under words."""


def render(
    *,
    say: str | None = None,
    sound: str | None = None,
    voice: str = "heart",
    level_db: float = VOICE_LEVEL_DB,
    noise: str | None = None,
    snr_db: float | None = None,
    seconds: float | None = None,
    seed: int = 0,
    far: bool = False,
) -> Clip:
    """What the caller utters: ``sound`` if it is given, else the words of ``say``.

    ``level_db``: active level, in dB of full scale. ``noise`` lies under it, from 0.3 s before to 0.3 s after, ``snr_db``
    below it. ``seconds``: how long a background given as ``sound`` lasts (2 s). ``seed``: which of a sound's variants.
    ``far``: across the room, as somebody else in it is heard. Speaks what is not kept yet, which blocks.

    Raises ValueError: an unknown name, nothing to utter, a noise without its ratio. ModelError: no voice model.
    """
    if (noise is None) != (snr_db is None):
        raise ValueError("noise and snr_db go together: one was given without the other")
    clean = _uttered(say, sound, voice, 2.0 if seconds is None else seconds, seed)
    clean = at_level(in_room(clean, seed=seed) if far else clean, level_db)
    begin, end = active_span(clean)
    if noise is None or snr_db is None:
        return Clip(_int16(clean), begin, end)
    around = round(_NOISE_AROUND_S * RATE)
    padded = np.pad(clean, around)
    bed = _faded(_bed(noise, len(padded) / RATE, seed))[: len(padded)]
    return Clip(_int16(with_noise(padded, bed, snr_db)), begin + around, end + around)


def speech(say: str, voice: str) -> Floats:
    """Words in a voice, as the model speaks them. Kept on the disk; words that are not there yet are spoken first, which blocks."""
    return to_float(_speak([(voice, say)], None)[0]).astype(np.float64)


def background(name: str, seconds: float, level_db: float, seed: int = 0) -> Samples:
    """So much of one of BACKGROUNDS, its RMS in dB of full scale. Raises ValueError for an unknown name."""
    return _int16(_bed(name, seconds, seed) * 10 ** ((level_db + 20) / 20))


def prepare(lines: Iterable[tuple[str, str]], *, babble: bool = False, out: TextIO | None = None) -> int:
    """Speak all ``(voice, words)`` that are not kept yet, so that ``render`` never waits; how many those were.

    ``babble``: what babble is made of too. Tells on ``out`` (standard error) how it goes, if there is anything to do.
    Blocks, a second or so for each new line. Raises ModelError, ValueError as ``render``.
    """
    wanted = [(voice, say) for voice, say in lines if _hum(say) is None]
    wanted += _babblers() if babble else []
    new = [line for line in dict.fromkeys(wanted) if not _place(*line).is_file()]
    _speak(new, sys.stderr if out is None else out)
    return len(new)


def _uttered(say: str | None, sound: str | None, voice: str, seconds: float, seed: int) -> Floats:
    person = _voice(voice)
    sound = sound or (None if say is None else _hum(say))
    if sound in BACKGROUNDS:
        return _faded(_bed(sound, seconds, seed))
    if sound is not None:
        return noises.sound(sound, seed, pitch=person.pitch, throat=person.throat)
    if say is None or not say.strip():
        raise ValueError("there is nothing to utter: give say or sound")
    return speech(say, voice)


def _voice(name: str) -> Voice:
    if name not in VOICES:
        raise ValueError(f"there is no voice {name!r}; there are: {', '.join(VOICES)}")
    return VOICES[name]


def _hum(say: str) -> str | None:
    words = spoken_words(say)
    return HUMS.get(" ".join(words)) if words else None


def _bed(name: str, seconds: float, seed: int) -> Floats:
    """RMS 0.1."""
    if name != "babble":
        return noises.bed(name, seconds, seed)
    length = round(seconds * RATE)
    rng = np.random.Generator(np.random.PCG64(seed))
    out = np.zeros(length)
    for pcm in _speak(_babblers(), None):
        talk = to_float(pcm).astype(np.float64)
        talk = talk / 10 ** (active_level_db(talk) / 20)
        talk = np.tile(talk, -(-length // len(talk)) + 1)
        out += np.roll(talk, int(rng.integers(len(talk))))[:length]
    power = float(np.mean(out**2)) if length else 0.0
    return out * (0.1 / np.sqrt(power)) if power else out


def _babblers() -> list[tuple[str, str]]:
    return [(voice, say) for voice in VOICES for say in _BABBLE[:2]] + [(voice, say) for voice in list(VOICES)[:2] for say in _BABBLE[2:]]


def _faded(samples: Floats, ms: float = 30.0) -> Floats:
    length = min(round(ms * RATE / 1000), len(samples) // 2)
    if not length:
        return samples
    ramp = np.sin(np.linspace(0, np.pi / 2, length)) ** 2
    return np.concatenate([samples[:length] * ramp, samples[length:-length], samples[-length:] * ramp[::-1]])


def _int16(samples: Floats) -> Samples:
    return np.frombuffer(to_pcm(samples), "<i2")


# ------------------------------------------------------------------------------------------ spoken and kept


def _speak(lines: list[tuple[str, str]], out: TextIO | None) -> list[Samples]:
    """The sound of each line, from the disk if it is there; what is not is spoken and put there."""
    missing = [line for line in dict.fromkeys(lines) if not _place(*line).is_file()]
    for number, line in enumerate(missing, 1):
        if out is not None:
            _tell(out, number, len(missing))
        _keep(_place(*line), _spoken(*line))
    return [_read(_place(*line)) for line in lines]


def _tell(out: TextIO, number: int, total: int) -> None:
    """One line that grows on a terminal; one in ten where it would not."""
    words = f"speaking the callers' lines: {number} of {total}"
    if out.isatty():
        out.write("\r" + words + ("\n" if number == total else ""))
    elif number == total or number % 10 == 1:
        out.write(words + "\n")
    out.flush()


def _spoken(voice: str, say: str) -> bytes:
    kokoro = _KOKORO.get(voice)
    if kokoro is None:
        with resources.as_file(_file(voice)) as path:
            kokoro = _KOKORO[voice] = Kokoro(models.resolve(MODEL), path)
    made = kokoro.synthesize(say, KokoroOptions())
    if not made.pcm:
        raise ValueError(f"{say!r} gives no sound: there is nothing in it that can be spoken")
    return resample(made.pcm, SAMPLE_RATE, RATE)


_KOKORO: dict[str, Kokoro] = {}


def _file(voice: str) -> Traversable:
    _voice(voice)
    return resources.files("voiceflow.score") / "voices" / f"{voice}.bin"


def _place(voice: str, say: str) -> Path:
    """Where a line is kept: its name tells of all that it depends on."""
    weights = models.MANIFEST[MODEL].files[0].sha256
    told = [str(_VERSION), weights, hashlib.sha256(_file(voice).read_bytes()).hexdigest(), say.strip()]
    key = hashlib.sha256("\0".join(told).encode()).hexdigest()[:24]
    return models.cache_folder() / ".callers" / f"{voice}-{key}.wav"


def _keep(place: Path, pcm: bytes) -> None:
    """Whole or not at all, whoever else writes the same."""
    place.parent.mkdir(parents=True, exist_ok=True)
    part = place.with_suffix(f".{os.getpid()}.part")
    with wave.open(str(part), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(pcm)
    part.replace(place)


def _read(place: Path) -> Samples:
    with wave.open(str(place), "rb") as file:
        return np.frombuffer(file.readframes(file.getnframes()), "<i2")
