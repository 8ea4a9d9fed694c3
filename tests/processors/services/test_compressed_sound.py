"""MP3 and Opus made into PCM while they come."""

from __future__ import annotations

import io

import numpy as np
import pytest

pytest.importorskip("av", reason="pip install av")

import av

from voiceflow.processors.services.compressed_sound import CompressedSound, decoder
from voiceflow.processors.services.retry import ServiceError

RATE, SECONDS = 24000, 1.0
TONE = (8000 * np.sin(2 * np.pi * 440 * np.arange(int(RATE * SECONDS)) / RATE)).astype("<i2")
LIBRARIES = {"mp3": ("libmp3lame", "mp3", 44100), "opus": ("libopus", "ogg", 48000)}


def encoded(codec: str) -> bytes:
    library, container, rate = LIBRARIES[codec]
    file = io.BytesIO()
    with av.open(file, "w", format=container, options={"page_duration": "20000"} if codec == "opus" else {}) as out:
        stream = out.add_stream(library, rate=rate, layout="mono")
        fit = av.AudioResampler(format=stream.format, layout="mono", rate=rate, frame_size=stream.frame_size or 960)
        frame = av.AudioFrame.from_ndarray(TONE.reshape(1, -1), format="s16", layout="mono")
        frame.sample_rate = RATE
        for fitted in [*fit.resample(frame), *fit.resample(None), None]:
            out.mux(stream.encode(fitted))
    return file.getvalue()


@pytest.mark.parametrize("size", [1, 7, 1000, 1 << 20])
@pytest.mark.parametrize("codec", LIBRARIES)
def test_it_sounds_as_it_did_however_it_is_cut(codec: str, size: int) -> None:
    """The tone, for as long as it was, with the delay of the codec at most."""
    data, one = encoded(codec), decoder(codec, RATE)
    sound = np.frombuffer(b"".join(one.push(data[at : at + size]) for at in range(0, len(data), size)) + one.end(), "<i2")
    assert len(sound) / RATE == pytest.approx(SECONDS, abs=0.06)
    peak = np.argmax(np.abs(np.fft.rfft(sound))) * RATE / len(sound)
    assert peak == pytest.approx(440, abs=2)
    assert np.abs(sound).max() == pytest.approx(8000, rel=0.1)


@pytest.mark.parametrize("codec", LIBRARIES)
def test_sound_comes_before_the_data_ends(codec: str) -> None:
    """Half of the data gives nearly half of the sound."""
    data, one = encoded(codec), CompressedSound(codec, RATE)
    assert len(one.push(data[: len(data) // 2])) / 2 / RATE > 0.3


@pytest.mark.parametrize("codec", LIBRARIES)
def test_what_is_something_else_is_an_error(codec: str) -> None:
    """Not noise, and not silence for ever."""
    one = CompressedSound(codec, RATE)
    with pytest.raises(ServiceError, match=f"no {codec.upper()}"):
        one.push(b'{"error": "a message"}' * 5000)


def test_a_codec_that_it_does_not_know_is_refused() -> None:
    """By name."""
    with pytest.raises(ValueError, match="'flac' is neither"):
        CompressedSound("flac", RATE)
