"""What the callers of a scorecard sound like: by formula, mixed at stated levels, and in voices that are kept on the disk."""

from __future__ import annotations

import io
import itertools
import math
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("onnxruntime", reason="pip install onnxruntime")
pytest.importorskip("gruut_lang_en", reason="pip install gruut-lang-en")
pytest.importorskip("pycrfsuite", reason="pip install python-crfsuite")

from voiceflow import models
from voiceflow.processors.onnx import open_onnx
from voiceflow.processors.vad import SileroDetector, VadGate
from voiceflow.score import noises, sounds
from voiceflow.score.mixing import EchoPath, active_level_db, active_span, at_level, in_room, with_noise
from voiceflow.score.noises import RATE
from voiceflow.score.sounds import BACKGROUNDS, HUMS, VOICES, background, prepare, render, speech

Floats = npt.NDArray[np.float64]

FORMULAS = [name for name in BACKGROUNDS if name != "babble"]


def _db(samples: Floats) -> float:
    return 10 * math.log10(float(np.mean(np.square(samples))))


def _pulses(level: float, on_s: float, off_s: float, count: int) -> Floats:
    """Noise that comes and goes."""
    rng = np.random.default_rng(1)
    return np.concatenate([np.r_[level * rng.standard_normal(round(on_s * RATE)), np.zeros(round(off_s * RATE))] for _ in range(count)])


# ------------------------------------------------------------------------------------------------ formulas


@pytest.mark.parametrize("name", noises.SOUNDS)
def test_a_sound_is_the_same_every_time_and_another_with_another_variant(name: str) -> None:
    """Same name and variant: same samples. Another variant: other samples. Between 0.2 and 2 s, peak 1, no click at the ends."""
    first = noises.sound(name, 3)
    assert np.array_equal(first, noises.sound(name, 3))
    other = noises.sound(name, 4)
    assert len(first) != len(other) or not np.allclose(first, other)
    assert 0.2 < len(first) / RATE < 2
    assert np.abs(first).max() == pytest.approx(1)
    assert abs(first[-1]) < 0.02


def test_another_throat_is_another_voice() -> None:
    """A hum at 1.7 times the pitch has its first overtone where that pitch has it."""

    def pitch_of(samples: Floats) -> float:
        middle = samples[: round(0.15 * RATE)]
        echo = np.correlate(middle, middle, "full")[len(middle) - 1 :]
        low, high = RATE // 300, RATE // 70
        return RATE / float(low + int(np.argmax(echo[low:high])))

    man, woman = (pitch_of(noises.sound("mm", 1, pitch=p)) for p in (1.0, 1.7))
    assert woman / man == pytest.approx(1.7, rel=0.08)


@pytest.mark.parametrize("name", FORMULAS)
@pytest.mark.parametrize("seconds", [0.0, 0.013, 1.0, 4.7])
def test_a_background_is_as_long_and_as_loud_as_was_asked(name: str, seconds: float) -> None:
    """To the sample, and to a tenth of a decibel."""
    samples = background(name, seconds, -40.0, seed=2) / 32768
    assert len(samples) == round(seconds * RATE)
    if seconds >= 1:
        assert _db(samples) == pytest.approx(-40, abs=0.1)


@pytest.mark.parametrize(("name", "slope_db"), [("white", 0.0), ("pink", -3.0)])
def test_noise_has_the_colour_of_its_name(name: str, slope_db: float) -> None:
    """The power falls by 0 or 3 dB an octave."""
    power = np.abs(np.fft.rfft(noises.bed(name, 8.0))) ** 2
    hertz = np.fft.rfftfreq(8 * RATE, 1 / RATE)
    octaves = [10 * np.log10(power[(hertz >= low) & (hertz < 2 * low)].mean()) for low in (200, 400, 800, 1600, 3200)]
    assert np.diff(octaves).mean() == pytest.approx(slope_db, abs=0.3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: noises.sound("cof"), "no sound 'cof'; there are: cough"),
        (lambda: noises.bed("rain", 1.0), "no noise 'rain'; there are: white"),
        (lambda: render(sound="cof"), "no sound 'cof'"),
        (lambda: render(sound="cough", voice="hal"), "no voice 'hal'; there are: heart"),
        (lambda: render(say="Hello.", voice="hal"), "no voice 'hal'"),
        (render, "nothing to utter"),
        (lambda: render(say="  "), "nothing to utter"),
        (lambda: render(sound="cough", noise="pink"), "go together"),
        (lambda: render(sound="cough", snr_db=3.0), "go together"),
        (lambda: render(sound="cough", noise="rain", snr_db=3.0), "no noise 'rain'"),
        (lambda: EchoPath(-20.0, delay_ms=-1.0), "neither can be negative"),
    ],
)
def test_what_does_not_exist_is_refused_by_name(call: object, message: str) -> None:
    """A wrong name is answered with the right ones."""
    assert callable(call)
    with pytest.raises(ValueError, match=message):
        call()


# -------------------------------------------------------------------------------------------------- levels


@pytest.mark.parametrize("off_s", [0.0, 0.1, 2.0])
def test_silence_makes_a_voice_no_quieter(off_s: float) -> None:
    """Half a second of sound has the same active level however long the pauses, but for the hangover of 200 ms."""
    level = active_level_db(_pulses(0.1, 0.5, off_s, 4))
    assert level == pytest.approx(-20 - 10 * math.log10((0.5 + min(off_s, 0.2)) / 0.5), abs=0.2)


def _p56(samples: Floats) -> float:
    """ITU-T P.56, method B, as it is written: envelope of 30 ms twice, hangover of 200 ms, margin of 15.9 dB."""
    smooth, hang = math.exp(-1 / (RATE * 0.03)), round(0.2 * RATE)
    thresholds = [2.0**-power for power in range(16)]
    counts, hung = np.zeros(16), np.full(16, hang)
    p = q = 0.0
    for sample in np.abs(samples).tolist():
        p = smooth * p + (1 - smooth) * sample
        q = smooth * q + (1 - smooth) * p
        for i, threshold in enumerate(thresholds):
            if q >= threshold:
                counts[i] += 1
                hung[i] = 0
            elif hung[i] < hang:
                counts[i] += 1
                hung[i] += 1
    energy = float(np.sum(samples**2))
    points = [
        (10 * math.log10(energy / n), 10 * math.log10(energy / n) - 20 * math.log10(c))
        for n, c in zip(counts, thresholds, strict=True)
        if n
    ]
    for (level, above), (next_level, next_above) in itertools.pairwise(points):
        if above <= 15.9 <= next_above:
            return level + (next_level - level) * (15.9 - above) / (next_above - above)
    raise AssertionError("no threshold fits")


@pytest.mark.parametrize("samples", [_pulses(0.1, 0.4, 0.7, 2), noises.sound("laugh", 1), np.r_[noises.sound("ahem"), np.zeros(RATE)]])
def test_the_active_level_is_that_of_p56(samples: Floats) -> None:
    """Within 0.7 dB of the recommendation's own method."""
    assert active_level_db(samples) == pytest.approx(_p56(samples), abs=0.7)


@settings(max_examples=40, deadline=None)
@given(name=st.sampled_from(noises.SOUNDS), level=st.floats(-60, -24), seed=st.integers(0, 5), pad=st.integers(0, RATE))
def test_a_sound_is_brought_to_its_level(name: str, level: float, seed: int, pad: int) -> None:
    """Whatever it is and whatever silence stands around it, as far as it fits; nothing is clipped."""
    samples = at_level(np.pad(noises.sound(name, seed), pad), level)
    assert active_level_db(samples) == pytest.approx(level, abs=0.35)
    assert np.abs(samples).max() <= 1


@settings(max_examples=30, deadline=None)
@given(noise=st.sampled_from(FORMULAS), snr=st.floats(-5, 30), level=st.floats(-40, -26))
def test_noise_lies_so_far_below_as_was_said(noise: str, snr: float, level: float) -> None:
    """What is left without the voice has the active level of the voice less the ratio."""
    clean = at_level(np.pad(noises.sound("ahem"), RATE // 4), level)
    left = with_noise(clean, noises.bed(noise, len(clean) / RATE), snr) - clean
    assert _db(left) == pytest.approx(level - snr, abs=0.3)


def test_silence_has_no_level() -> None:
    """It is told as minus infinity, stays silence at any level, and has no span."""
    silence = np.zeros(1000)
    assert active_level_db(silence) == active_level_db(np.zeros(0)) == -math.inf
    assert not at_level(silence, -20).any()
    assert active_span(silence) == (0, 0)


def test_the_voice_in_a_clip_has_its_place() -> None:
    """With noise before and after, begin and end are still those of the sound itself."""
    clean = render(sound="cough", seed=1)
    noisy = render(sound="cough", seed=1, noise="pink", snr_db=5)
    lead = noisy.begin - clean.begin
    assert lead == round(0.3 * RATE)
    assert noisy.end - noisy.begin == clean.end - clean.begin
    assert len(noisy.samples) == len(clean.samples) + 2 * lead
    assert 0.2 < (clean.end - clean.begin) / RATE < 0.5


def test_across_the_room_the_voice_rings_on() -> None:
    """As loud, longer, and not the same."""
    near = at_level(noises.sound("ahem"), -26)
    far = in_room(near)
    assert len(far) > len(near)
    assert active_level_db(far) == pytest.approx(-26, abs=0.3)
    assert np.abs(far[len(near) : len(near) + 800]).max() > 0.001


# ---------------------------------------------------------------------------------------------------- echo


@settings(max_examples=30, deadline=None)
@given(cuts=st.lists(st.integers(0, 3000), max_size=12))
def test_an_echo_is_the_same_however_the_stream_is_cut(cuts: list[int]) -> None:
    """Piece by piece or at once."""
    rng = np.random.default_rng(5)
    played = 0.1 * rng.standard_normal(sum(cuts) + 500)
    whole = EchoPath(-30.0).push(played)
    path, at, pieces = EchoPath(-30.0), 0, []
    for cut in [*cuts, 500]:
        pieces.append(path.push(played[at : at + cut]))
        at += cut
    assert np.concatenate(pieces) == pytest.approx(whole, abs=1e-9)


def test_an_echo_comes_late_and_quieter() -> None:
    """Nothing before the delay; then so far down as was said; then nothing after the room has rung out."""
    played = np.concatenate([0.3 * np.random.default_rng(5).standard_normal(RATE), np.zeros(RATE)])
    heard = EchoPath(-25.0, delay_ms=80.0).push(played)
    delay = round(0.08 * RATE)
    assert np.abs(heard[:delay]).max() < 1e-9
    assert _db(heard[delay + RATE // 4 : RATE]) - _db(played[:RATE]) == pytest.approx(-25, abs=1)
    assert np.abs(heard[RATE + delay + round(0.16 * RATE) :]).max() < 1e-9


# -------------------------------------------------------------------------------------------------- voices


@pytest.fixture(scope="module")
def kokoro() -> None:
    if models.ModelStore().find("kokoro") is None:
        pytest.skip("python -m voiceflow models get kokoro")


@pytest.fixture
def new_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache that has the model."""
    (tmp_path / "kokoro").symlink_to(models.cache_folder() / "kokoro")
    monkeypatch.setenv("VOICEFLOW_MODELS", str(tmp_path))
    return tmp_path


@pytest.mark.usefixtures("kokoro")
def test_a_line_is_spoken_once(new_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second run finds it on the disk and opens no model; it is told how far it is; the words stand in one file whole."""
    out = io.StringIO()
    lines = [("michael", "Yes."), ("michael", "Yes."), ("heart", "Mhm.")]
    assert prepare(lines, out=out) == 1  # once for both, and a hum needs no model
    assert out.getvalue() == "speaking the callers' lines: 1 of 1\n"
    assert [path.suffix for path in (new_cache / ".callers").iterdir()] == [".wav"]
    first = speech("Yes.", "michael")
    monkeypatch.setattr(sounds, "_spoken", lambda *_: pytest.fail("it was spoken again"))
    again = io.StringIO()
    assert prepare(lines, out=again) == 0
    assert again.getvalue() == ""
    assert np.array_equal(speech("Yes.", "michael"), first)
    clip = render(say="Yes.", voice="michael", level_db=-30.0)
    assert clip.samples.dtype == np.int16
    assert active_level_db(clip.samples / 32768) == pytest.approx(-30, abs=0.3)
    assert 0.3 < (clip.end - clip.begin) / RATE < 0.9


@pytest.mark.usefixtures("kokoro", "new_cache")
def test_each_voice_is_another() -> None:
    """The same word in four voices is four sounds."""
    spoken = [speech("Yes.", voice) for voice in list(VOICES)[:2]]
    assert len(spoken[0]) != len(spoken[1]) or not np.allclose(spoken[0], spoken[1])


@pytest.mark.usefixtures("kokoro")
def test_what_cannot_be_said_is_told() -> None:
    """Words in which nothing can be spoken."""
    with pytest.raises(ValueError, match="gives no sound"):
        render(say="...")


@pytest.mark.parametrize("said", ["Mhm.", "uh-huh", "Mm-hmm!"])
def test_what_is_hummed_needs_no_model(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a formula's, in the caller's own pitch."""
    monkeypatch.setattr(sounds, "_spoken", lambda *_: pytest.fail("it was spoken"))
    clips = [render(say=said, voice=voice).samples for voice in ("michael", "heart")]
    assert len(clips[0]) != len(clips[1]) or not np.array_equal(clips[0], clips[1])


def test_every_hum_is_a_sound() -> None:
    """The table names sounds that there are."""
    assert set(HUMS.values()) <= set(noises.SOUNDS)


TRIPPING = ["cough", "throat", "ahem", "laugh", "sigh", "sneeze", "mhm", "mm", "uh-huh"]


@pytest.fixture(scope="module")
def silero() -> object:
    if models.ModelStore().find("silero-vad") is None:
        pytest.skip("python -m voiceflow models get silero-vad")
    return open_onnx(models.path("silero-vad"))


@pytest.mark.parametrize("name", TRIPPING)
def test_a_voice_detector_falls_for_it(name: str, silero: object) -> None:
    """Silero takes these for speech in every voice: otherwise a scene in which the agent does not fall for them shows nothing."""
    for seed, voice in enumerate(VOICES):
        detector, gate = SileroDetector(silero, RATE), VadGate()  # type: ignore[arg-type]  # what open_onnx gave
        samples = np.pad(render(sound=name, voice=voice, seed=seed).samples / 32768, RATE // 2).astype(np.float32)
        edges = [
            gate.push(detector.probability(samples[i : i + 512]), i / RATE, (i + 512) / RATE) for i in range(0, len(samples) - 511, 512)
        ]
        assert any(edges), voice
