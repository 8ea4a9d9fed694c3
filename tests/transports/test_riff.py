"""WAV files of every kind in, and whole ones out at any time; libsndfile is the other side."""

from __future__ import annotations

import importlib.util
import struct
import wave

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voiceflow import AudioFormat
from voiceflow.transports.riff import HEADER, WavReader, WavWriter, wav_header

if importlib.util.find_spec("soundfile") is None:
    pytest.skip("needs soundfile: pip install soundfile", allow_module_level=True)

import soundfile

RAMP = np.stack([np.linspace(-0.9, 0.9, 1001), np.linspace(0.9, -0.9, 1001)], axis=1)
KINDS = [(kind, coding) for kind in ("WAV", "WAVEX", "RF64") for coding in ("PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE")]
KINDS += [("WAV", "ALAW"), ("WAV", "ULAW"), ("WAVEX", "ALAW"), ("WAVEX", "ULAW")]


def read_all(path, step=10**6):
    reader = WavReader(path)
    parts = []
    while part := reader.read(step):
        parts.append(part)
    reader.close()
    return np.frombuffer(b"".join(parts), "<i2").reshape(-1, reader.format.channels)


def chunk(tag, body):
    return struct.pack("<4sI", tag, len(body)) + body + bytes(len(body) % 2)


def riff(*chunks, size=None):
    body = b"WAVE" + b"".join(chunks)
    return struct.pack("<4sI", b"RIFF", len(body) if size is None else size) + body


def fmt(encoding=1, channels=1, rate=8000, bits=16, align=None, more=b""):
    align = channels * bits // 8 if align is None else align
    return chunk(b"fmt ", struct.pack("<HHIIHH", encoding, channels, rate, rate * align, align, bits) + more)


SOUND = np.arange(-50, 50, dtype="<i2").tobytes()


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize(("kind", "coding"), KINDS)
def test_every_kind_that_libsndfile_writes_is_read(tmp_path, kind, coding, channels):
    """Integer, float, A-law and mu-law, plain, extensible and RF64, are the samples that were written, to their own precision."""
    path = tmp_path / "a.wav"
    soundfile.write(path, RAMP[:, :channels], 11025, format=kind, subtype=coding)
    reader = WavReader(path)
    assert (reader.format, reader.frames) == (AudioFormat(11025, channels), 1001)
    reader.close()
    got = read_all(path, 77) / 32768
    assert got.shape == (1001, channels)
    tolerance = {"PCM_U8": 1 / 120, "ALAW": 0.035, "ULAW": 0.035}.get(coding, 2 / 32768)
    assert np.abs(got - RAMP[:, :channels]).max() < tolerance


def test_float_over_full_scale_is_clipped(tmp_path):
    """Sound louder than full scale does not wrap around."""
    soundfile.write(tmp_path / "a.wav", np.array([2.0, -2.0]), 8000, subtype="FLOAT")
    assert read_all(tmp_path / "a.wav").ravel().tolist() == [32767, -32768]


@pytest.mark.parametrize("before", [b"", b"x", b"odd"])
def test_other_chunks_are_passed_over(tmp_path, before):
    """Chunks before, between and behind, of odd lengths too, are no sound."""
    path = tmp_path / "a.wav"
    path.write_bytes(riff(chunk(b"bext", before), fmt(), chunk(b"LIST", b"INFO" + before), chunk(b"data", SOUND), chunk(b"id3 ", b"tag")))
    assert read_all(path).tobytes() == SOUND


def test_sound_that_ends_within_a_sample_ends_before_it(tmp_path):
    """A data chunk of an odd length gives whole samples of all channels."""
    path = tmp_path / "a.wav"
    path.write_bytes(riff(fmt(channels=2), chunk(b"data", SOUND[:43])))
    assert read_all(path).tobytes() == SOUND[:40]


@pytest.mark.parametrize("cut", [1, 2, 99, 200])
def test_a_file_that_is_cut_off_is_read_as_far_as_it_goes(tmp_path, cut, caplog):
    """The samples that are there come, and the log says how much is missing."""
    path = tmp_path / "a.wav"
    path.write_bytes(riff(fmt(), chunk(b"data", SOUND))[:-cut])
    assert read_all(path).tobytes() == SOUND[: (200 - cut) // 2 * 2]
    assert "is cut off: it should hold 0.0 s of sound" in caplog.text


@pytest.mark.parametrize(("length", "size"), [(0xFFFFFFFF, 0xFFFFFFFF), (0, 0), (0, 8), (0, 36)])
def test_lengths_that_were_never_written_mean_to_the_end(tmp_path, length, size):
    """What a program wrote into a pipe, or left when it was ended, is read to the end of the file."""
    path = tmp_path / "a.wav"
    path.write_bytes(riff(fmt(), struct.pack("<4sI", b"data", length) + SOUND, size=size))
    assert read_all(path).tobytes() == SOUND


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "empty or cut off in its header"),
        (riff(fmt())[:30], "its fmt chunk is cut off"),
        (riff(fmt()), "no data chunk"),
        (riff(chunk(b"junk", b"")), "no fmt chunk"),
        (riff(chunk(b"data", SOUND), fmt()), "sound comes before its format"),
        (b"RIFX" + riff(fmt())[4:], "does not begin with RIFF"),
        (b"OggS" + bytes(60), "does not begin with RIFF"),
        (riff(fmt(encoding=85), chunk(b"data", SOUND)), "of the kind 85"),
        (riff(fmt(encoding=0xFFFE), chunk(b"data", SOUND)), "extensible fmt chunk is cut off"),
        (riff(fmt(encoding=0xFFFE, more=bytes(24)), chunk(b"data", SOUND)), "of the kind 65534"),
        (riff(fmt(channels=0, align=2), chunk(b"data", SOUND)), "0 channels"),
        (riff(fmt(rate=0), chunk(b"data", SOUND)), "at 0 Hz"),
        (riff(fmt(bits=12, align=1), chunk(b"data", SOUND)), "12-bit samples in blocks of 1"),
        (riff(fmt(encoding=3, bits=16), chunk(b"data", SOUND)), "16-bit samples"),
        (riff(fmt(channels=2, align=5), chunk(b"data", SOUND)), "blocks of 5"),
    ],
)
def test_what_cannot_be_read_is_said_by_name(tmp_path, data, says):
    """Each fault is named, with the file and what to do."""
    path = tmp_path / "bad.wav"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=rf"bad\.wav is no WAV file that can be read: .*{says}.* ffmpeg -i"):
        WavReader(path)


@given(st.binary(max_size=120), st.booleans())
def test_no_bytes_break_the_reader(tmp_path_factory, data, begun):
    """Any bytes are samples or a ValueError."""
    path = tmp_path_factory.mktemp("any") / "a.wav"
    path.write_bytes(riff(fmt()) + data if begun else data)
    try:
        reader = WavReader(path)
    except ValueError:
        return
    reader.read(10**6)
    reader.close()


def test_what_is_written_is_whole_after_every_write(tmp_path):
    """wave, libsndfile and the reader here find all the samples after each write, without a close."""
    path = tmp_path / "a.wav"
    writer = WavWriter(path, AudioFormat(8000, 2))
    for n in range(1, 4):
        writer.write(SOUND)
        assert soundfile.info(path).frames == 50 * n
        with wave.open(str(path)) as file:
            assert file.readframes(10**6) == SOUND * n
        assert read_all(path).tobytes() == SOUND * n
    writer.close()


def test_more_than_4_gib_is_an_rf64_file(tmp_path):
    """On the way over the limit of a RIFF file the header changes, and the last samples are found where they are (the file is sparse)."""
    path = tmp_path / "a.wav"
    writer = WavWriter(path, AudioFormat(48000, 2))
    writer.size = 2**32 - HEADER - 100
    writer.write(bytes(80))
    with path.open("rb") as file:
        assert file.read(4) == b"RIFF"
    writer.write(SOUND)
    writer.close()
    frames = (2**32 - HEADER - 20 + 200) // 4
    with path.open("rb") as file:
        assert file.read(4) == b"RF64"
    with soundfile.SoundFile(path) as file:
        assert file.frames == frames
        file.seek(frames - 50)
        assert file.read(50, dtype="int16").tobytes() == SOUND
    reader = WavReader(path)
    assert reader.frames == frames
    reader.close()


def test_the_header_never_moves():
    """Short or long, the sound begins at the same place."""
    assert {len(wav_header(AudioFormat(8000), size)) for size in (0, 2**32 - 100, 2**32, 2**40)} == {HEADER}
