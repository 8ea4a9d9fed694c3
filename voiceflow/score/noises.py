"""Sounds that are no words, made by formula: coughs, laughs, hums, doors; and beds of noise to talk in.

The one rule: the same name, variant and length give the same samples on every machine, so that a scene is the same scene everywhere.
Pure: no file, no clock, no model. 16 kHz mono.

A voice is made as in formant synthesis (Klatt, "Software for a cascade/parallel formant synthesizer", JASA 67, 1980): pulses of the
glottis and noise of the breath, through the resonances of a throat. A cough is its three phases, burst, turbulence and voiced end, with
the lengths that phonetics gives them (Korpas et al., "Analysis of the cough sound", Pulmonary Pharmacology 9, 1996).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["BEDS", "RATE", "SOUNDS", "bed", "sound"]

RATE = 16000
Floats = npt.NDArray[np.float64]

_FADE_S = 0.004
_BANDWIDTHS = (80.0, 110.0, 170.0, 250.0)
"""Of the resonances of a throat, in Hz."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A stretch of a sound in which the throat does not change.

    ``voice`` and ``breath`` are the amplitudes of the two sources; ``pitch`` in Hz, first and last; ``formants`` in Hz. The sound rises
    within ``attack`` ms and, if ``decay`` is not 0, falls by half every ``decay`` ms from there; else it stays and ends in ``release`` ms.
    """

    ms: float
    formants: tuple[float, ...] = ()
    voice: float = 0.0
    breath: float = 0.0
    pitch: tuple[float, float] = (120.0, 100.0)
    attack: float = 10.0
    release: float = 30.0
    decay: float = 0.0
    jitter: float = 0.02
    """How unsteady the pulses are: the spread of their lengths, of one."""


_OPEN = (720.0, 1240.0, 2550.0, 3500.0)
_NEUTRAL = (520.0, 1500.0, 2500.0, 3500.0)
_NOSE = (250.0, 1020.0, 2200.0, 3100.0)
_ROUND = (440.0, 1020.0, 2240.0, 3300.0)
_TEETH = (1900.0, 2800.0, 4300.0, 6200.0)


def _gap(ms: float) -> _Part:
    return _Part(ms)


_COUGH = (
    _Part(55, _OPEN, breath=1.0, voice=0.15, pitch=(190, 160), attack=3, release=20),
    _Part(150, _NEUTRAL, breath=0.45, voice=0.08, pitch=(150, 130), attack=6, decay=70),
    _Part(90, _OPEN, breath=0.10, voice=0.40, pitch=(190, 130), attack=15, release=50, jitter=0.08),
)
_HA = (
    _Part(70, _OPEN, breath=0.25, attack=15),
    _Part(110, _OPEN, voice=0.8, breath=0.05, pitch=(235, 190), attack=15, release=40),
)
_TALKED = {
    "cough": _COUGH,
    "cough-twice": (*_COUGH, _gap(110), *_COUGH),
    "cough-fit": (*_COUGH, _gap(90), *_COUGH, _gap(140), *_COUGH),
    "throat": (
        _Part(230, _NEUTRAL, voice=0.7, breath=0.25, pitch=(75, 62), attack=25, release=50, jitter=0.15),
        _gap(40),
        _Part(330, _OPEN, voice=0.9, breath=0.20, pitch=(105, 72), attack=20, release=90, jitter=0.12),
    ),
    "ahem": (
        _Part(160, _OPEN, voice=0.8, breath=0.05, pitch=(120, 115), attack=15, release=25),
        _Part(50, _NOSE, breath=0.3),
        _Part(260, _NOSE, voice=1.0, pitch=(125, 95), attack=20, release=90),
    ),
    "laugh": (*_HA, *_HA, *_HA, *_HA, *_HA),
    "chuckle": (*_HA, _gap(30), *_HA),
    "breath": (_Part(650, _NEUTRAL, breath=0.5, attack=200, release=300),),
    "sigh": (
        _Part(200, _NEUTRAL, breath=0.4, attack=80),
        _Part(520, _OPEN, voice=0.35, breath=0.30, pitch=(170, 95), attack=60, release=320),
    ),
    "sneeze": (
        _Part(260, _NEUTRAL, breath=0.20, attack=150, release=60),
        _gap(90),
        _Part(130, _TEETH, breath=1.0, attack=4, decay=60),
        _Part(230, _ROUND, voice=0.7, breath=0.25, pitch=(280, 150), attack=15, release=150),
    ),
    "sniff": (_Part(280, _TEETH, breath=0.5, attack=120, release=60),),
    "mhm": (
        _Part(190, _NOSE, voice=1.0, pitch=(112, 108), attack=25, release=25),
        _Part(70, _NOSE, breath=0.12, attack=20),
        _Part(270, _NOSE, voice=1.0, pitch=(135, 122), attack=20, release=90),
    ),
    "mm": (_Part(340, _NOSE, voice=1.0, pitch=(125, 100), attack=35, release=110),),
    "uh-huh": (
        _Part(150, (620, 1180, 2500, 3500), voice=1.0, breath=0.02, pitch=(118, 110), attack=12, release=25),
        _Part(85, (640, 1200, 2500, 3500), breath=0.22, attack=20),
        _Part(240, (620, 1180, 2500, 3500), voice=1.0, breath=0.03, pitch=(142, 122), attack=20, release=90),
    ),
    "bark": (
        _Part(150, (650, 1300, 2600, 3900), voice=1.0, breath=0.25, pitch=(520, 300), attack=6, release=70),
        _gap(170),
        _Part(160, (650, 1300, 2600, 3900), voice=1.0, breath=0.25, pitch=(500, 280), attack=6, release=80),
    ),
}


def sound(name: str, variant: int = 0, *, pitch: float = 1.0, throat: float = 1.0) -> Floats:
    """One of SOUNDS, peak 1. Another ``variant`` is another cough: other lengths, throat and pitch.

    ``pitch`` and ``throat`` make it another person's: they multiply the frequencies of the voice and of the resonances (a
    woman's are about 1.7 and 1.15 times a man's). Raises ValueError for an unknown name.
    """
    rng = _rng(name, variant)
    if name in _TALKED:
        return _normal(_talked(_TALKED[name], rng, pitch, throat))
    if name in _STRUCK:
        return _normal(_STRUCK[name](rng))
    raise ValueError(f"there is no sound {name!r}; there are: {', '.join(SOUNDS)}")


def bed(name: str, seconds: float, variant: int = 0) -> Floats:
    """So much of one of BEDS, RMS 0.1. Raises ValueError for an unknown name."""
    if name not in _BEDS:
        raise ValueError(f"there is no noise {name!r}; there are: {', '.join(BEDS)}")
    samples = _BEDS[name](round(seconds * RATE), _rng(name, variant))
    power = float(np.mean(np.square(samples))) if samples.size else 0.0
    return np.asarray(samples * (0.1 / np.sqrt(power))) if power else samples


def _rng(name: str, variant: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(zlib.crc32(name.encode()) + 1_000_003 * variant))


def _normal(samples: Floats) -> Floats:
    return samples / max(float(np.abs(samples).max(initial=0.0)), 1e-9)


# ------------------------------------------------------------------------------------------------- throats


def _talked(parts: Sequence[_Part], rng: np.random.Generator, pitch: float, throat: float) -> Floats:
    """Each part through its throat, one after the other; what rings on runs into the next."""
    size = rng.uniform(0.85, 1.15)
    tune, throat = pitch * rng.uniform(0.85, 1.2), throat * rng.uniform(0.93, 1.08)
    pieces: list[tuple[int, Floats]] = []
    at = 0
    for part in parts:
        length = round(part.ms * size * rng.uniform(0.9, 1.1) * RATE / 1000)
        if part.formants:
            source = part.voice * _pulses(length, (part.pitch[0] * tune, part.pitch[1] * tune), part.jitter, rng)
            source += part.breath * rng.standard_normal(length)
            pieces.append((at, _resonate(source * _envelope(length, part), [f * throat for f in part.formants])))
        at += length
    whole = np.zeros(max(at, *(start + len(piece) for start, piece in pieces)))
    for start, piece in pieces:
        whole[start : start + len(piece)] += piece
    return whole


def _pulses(length: int, pitch: tuple[float, float], jitter: float, rng: np.random.Generator) -> Floats:
    """What the glottis gives, as a derivative of its flow (Klatt and Klatt, JASA 87, 1990): RMS near 1, each period a little off."""
    out = np.zeros(length)
    at = 0.0
    while at < length:
        hertz = pitch[0] + (pitch[1] - pitch[0]) * at / max(length, 1)
        period = RATE / hertz * max(0.5, 1 + jitter * rng.standard_normal())
        open_for = max(4, round(0.6 * period))
        phase = np.arange(open_for) / open_for
        pulse = (2 * phase - 3 * phase**2) * (1 + 2 * jitter * rng.standard_normal())
        first = round(at)
        last = min(length, first + open_for)
        out[first:last] += 3 * pulse[: last - first]
        at += period
    return out


def _envelope(length: int, part: _Part) -> Floats:
    seconds = np.arange(length) / RATE
    rise = np.clip(seconds / (part.attack / 1000), 0, 1)
    if part.decay:
        fall = 0.5 ** (np.maximum(0, seconds - part.attack / 1000) / (part.decay / 1000))
        fall *= np.clip((length / RATE - seconds) / _FADE_S, 0, 1)
    else:
        fall = np.clip((length / RATE - seconds) / (part.release / 1000), 0, 1)
    return np.asarray(np.sin(rise * np.pi / 2) ** 2 * np.sin(fall * np.pi / 2) ** 2)


def _resonate(source: Floats, formants: Sequence[float]) -> Floats:
    """Two-pole resonators in a row, each of gain 1 at 0 Hz; 60 ms more than the source, in which they ring out."""
    size = len(source) + round(0.06 * RATE)
    spectrum = np.fft.rfft(source, 2 * size)
    z = np.exp(-1j * np.linspace(0, np.pi, len(spectrum)))
    for hertz, width in zip(formants, _BANDWIDTHS, strict=True):
        radius = np.exp(-np.pi * width / RATE)
        turn = 2 * radius * np.cos(2 * np.pi * hertz / RATE)
        spectrum = spectrum * (1 - turn + radius**2) / (1 - turn * z + radius**2 * z**2)
    out = np.fft.irfft(spectrum, 2 * size)[:size]
    out[-64:] *= np.linspace(1, 0, 64)
    return np.asarray(out)


# --------------------------------------------------------------------------------------------- things struck


def _click(rng: np.random.Generator) -> Floats:
    """One key: a snap and the plate under it."""
    seconds = np.arange(round(0.06 * RATE)) / RATE
    snap = rng.standard_normal(len(seconds)) * np.exp(-seconds / 0.0025)
    plate = np.sin(2 * np.pi * rng.uniform(900, 1600) * seconds) * np.exp(-seconds / 0.012)
    return np.asarray(snap + 0.3 * plate)


def _keys(rng: np.random.Generator, count: int = 9) -> Floats:
    out = np.zeros(round((0.15 * count + 0.3) * RATE))
    at = 0.0
    for _ in range(count):
        for after, gain in ((0.0, 1.0), (rng.uniform(0.06, 0.09), 0.4)):  # down and up
            first = round((at + after) * RATE)
            click = gain * rng.uniform(0.5, 1) * _click(rng)
            out[first : first + len(click)] += click[: len(out) - first]
        at += rng.uniform(0.09, 0.19)
    return out


def _door(rng: np.random.Generator) -> Floats:
    """A blow, the panel's low modes, the latch behind it."""
    seconds = np.arange(round(0.6 * RATE)) / RATE
    blow = _shaped(rng.standard_normal(len(seconds)), lambda hertz: 1 / (1 + (hertz / 400) ** 2)) * np.exp(-seconds / 0.05)
    panel = sum(
        np.sin(2 * np.pi * hertz * rng.uniform(0.9, 1.1) * seconds) * np.exp(-seconds / tau)
        for hertz, tau in ((62, 0.12), (118, 0.09), (187, 0.07))
    )
    out = 3 * blow / np.abs(blow).max() + panel
    latch, at = _click(rng), round(rng.uniform(0.08, 0.12) * RATE)
    out[at : at + len(latch)] += latch
    out[-320:] *= np.linspace(1, 0, 320)
    return np.asarray(out)


def _horn(rng: np.random.Generator) -> Floats:
    """A car's two notes, with their overtones."""
    seconds = np.arange(round(0.45 * RATE)) / RATE
    low = rng.uniform(380, 420)
    notes = sum(np.sin(2 * np.pi * n * hertz * seconds) / n for hertz in (low, 1.26 * low) for n in range(1, 8))
    return np.asarray(notes * np.clip(seconds / 0.02, 0, 1) * np.clip((0.45 - seconds) / 0.05, 0, 1))


_STRUCK: Mapping[str, Callable[[np.random.Generator], Floats]] = {"keys": _keys, "door": _door, "horn": _horn}

SOUNDS = (*_TALKED, *_STRUCK)
"""What ``sound`` makes."""


# ---------------------------------------------------------------------------------------------------- beds


def _shaped(samples: Floats, gain: Callable[[Floats], Floats]) -> Floats:
    """The same noise with another spectrum; ``gain`` of the amplitude at each frequency in Hz."""
    spectrum = np.fft.rfft(samples)
    return np.asarray(np.fft.irfft(spectrum * gain(np.asarray(np.fft.rfftfreq(len(samples), 1 / RATE), np.float64)), len(samples)))


def _white(length: int, rng: np.random.Generator) -> Floats:
    return rng.standard_normal(length)


def _pink(length: int, rng: np.random.Generator) -> Floats:
    return _shaped(rng.standard_normal(length), lambda hertz: np.maximum(hertz, 30) ** -0.5) if length else np.zeros(0)


def _traffic(length: int, rng: np.random.Generator) -> Floats:
    """Brown noise that swells and fades as cars pass, every few seconds."""
    if not length:
        return np.zeros(0)
    rumble = _shaped(rng.standard_normal(length), lambda hertz: np.where(hertz < 40, 0.0, np.maximum(hertz, 40) ** -1.0))
    seconds = np.arange(length) / RATE
    swell = 1 + 0.5 * np.sin(2 * np.pi * seconds / rng.uniform(2.5, 4) + rng.uniform(0, 6))
    return np.asarray(rumble * swell)


def _hum(length: int, rng: np.random.Generator) -> Floats:
    """Mains: 50 Hz and its overtones, the odd ones stronger, over a little hiss."""
    seconds = np.arange(length) / RATE
    tone = sum((1.0 if n % 2 else 0.4) / n * np.sin(2 * np.pi * 50 * n * seconds + rng.uniform(0, 6)) for n in range(1, 12))
    return np.asarray(tone + 0.02 * rng.standard_normal(length))


def _typing(length: int, rng: np.random.Generator) -> Floats:
    return _keys(rng, round(length / RATE / 0.09) + 1)[:length] if length else np.zeros(0)


_BEDS: Mapping[str, Callable[[int, np.random.Generator], Floats]] = {
    "white": _white,
    "pink": _pink,
    "traffic": _traffic,
    "hum": _hum,
    "typing": _typing,
}

BEDS = tuple(_BEDS)
"""What ``bed`` makes; ``sounds`` adds babble, which takes voices."""
