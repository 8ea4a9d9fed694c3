"""The WAV file: its header read and written, its samples made 16-bit.

The one rule: a file that is being written is a valid WAV after every write, and one that was cut off is read as far as it
goes. Formats: RIFF/WAVE with WAVEFORMATEX and WAVEFORMATEXTENSIBLE (Microsoft, multimedia programming interface 1.0 and
its later registrations), RF64 for more than 4 GiB (EBU Tech 3306). Waits for the disk and for nothing else.
"""

from __future__ import annotations

import logging
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np

from voiceflow.audio import alaw_decode, mulaw_decode, to_pcm
from voiceflow.frames import AudioFormat

__all__ = ["WavReader", "WavWriter", "wav_header"]

log = logging.getLogger("voiceflow")

Path = str | os.PathLike[str]

PCM, FLOAT, ALAW, MULAW, EXTENSIBLE = 1, 3, 6, 7, 0xFFFE
UNKNOWN = 0xFFFFFFFF
"""A length of 32 bits that is not known, or stands in the ds64 chunk."""

WIDTHS = {PCM: (1, 2, 3, 4), FLOAT: (4, 8), ALAW: (1,), MULAW: (1,)}
"""Bytes of a sample that can be read."""

GUID_TAIL = bytes.fromhex("000000001000800000aa00389b71")
"""Behind the first two bytes of an extensible format's GUID, where those are one of the numbers above."""

HEADER = 80
"""Bytes before the sound in what is written: RIFF, room for ds64, fmt, data."""


@dataclass(frozen=True, slots=True)
class _Layout:
    format: AudioFormat
    encoding: int
    width: int
    start: int
    size: int
    """Bytes of whole samples that are there."""


class WavReader:
    """Reads a WAV file as signed 16-bit samples: integer PCM of 8 to 32 bits, float, A-law or mu-law.

    Raises:
        ValueError: it is no such file; the text says what it is and how to convert it.
        OSError: it cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        name = os.fspath(path)
        self._file = open(name, "rb")  # noqa: SIM115 - closed in close()
        try:
            self._layout = layout = _read_layout(self._file, name)
            self._file.seek(layout.start)
        except BaseException:
            self._file.close()
            raise
        self.format = layout.format
        self.frames = layout.size // (layout.width * layout.format.channels)
        """Samples per channel."""
        self._left = layout.size

    def read(self, count: int) -> bytes:
        """The next ``count`` samples per channel as s16le, fewer at the end."""
        layout = self._layout
        data = self._file.read(min(count * layout.width * layout.format.channels, self._left))
        self._left -= len(data)
        return _as_16_bit(data[: len(data) - len(data) % (layout.width * layout.format.channels)], layout)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _read_layout(file: BinaryIO, name: str) -> _Layout:
    def bad(what: str) -> ValueError:
        return ValueError(
            f"{name} is no WAV file that can be read: {what}; convert it, for example: ffmpeg -i {name} -c:a pcm_s16le out.wav"
        )

    size = os.fstat(file.fileno()).st_size
    head = file.read(12)
    if len(head) < 12:
        raise bad("it is empty or cut off in its header")
    kind, riff_size, wave = struct.unpack("<4sI4s", head)
    if kind not in (b"RIFF", b"RF64") or wave != b"WAVE":
        raise bad(f"it does not begin with RIFF and WAVE but with {head!r}")
    found: tuple[AudioFormat, int, int] | None = None
    long_size: int | None = None
    while len(chunk := file.read(8)) == 8:
        tag, length = struct.unpack("<4sI", chunk)
        at = file.tell()
        if tag == b"ds64":
            body = file.read(16)
            if len(body) < 16:
                raise bad("its ds64 chunk is cut off")
            long_size = struct.unpack("<QQ", body)[1]
        elif tag == b"fmt ":
            found = _read_format(file.read(min(length, 40)), bad)
        elif tag == b"data":
            if found is None:
                raise bad("its sound comes before its format")
            stated: int | None = long_size if length == UNKNOWN else length
            if not length and riff_size + 8 <= at:
                stated = None  # a program that was stopped before it could say
            return _data(name, found, at, max(size - at, 0), stated)
        file.seek(at + length + length % 2)  # chunks begin at even places
    raise bad("it has no sound: there is no data chunk" if found else "it has no format: there is no fmt chunk")


def _data(name: str, found: tuple[AudioFormat, int, int], at: int, there: int, stated: int | None) -> _Layout:
    """``there``: bytes to the end of the file. ``stated``: bytes that the header says; None: it does not."""
    form, encoding, width = found
    whole = there if stated is None else min(stated, there)
    whole -= whole % (width * form.channels)
    if stated is not None and stated > there:
        rate = width * form.channels * form.sample_rate
        log.warning("%s is cut off: it should hold %.1f s of sound and holds %.1f s", name, stated / rate, whole / rate)
    return _Layout(form, encoding, width, at, whole)


def _read_format(body: bytes, bad: Callable[[str], ValueError]) -> tuple[AudioFormat, int, int]:
    """(format, encoding, bytes of a sample)."""
    if len(body) < 16:
        raise bad("its fmt chunk is cut off")
    encoding, channels, rate, _, align, bits = struct.unpack("<HHIIHH", body[:16])
    if encoding == EXTENSIBLE:
        if len(body) < 40:
            raise bad("its extensible fmt chunk is cut off")
        encoding = struct.unpack("<H", body[24:26])[0] if body[26:40] == GUID_TAIL else EXTENSIBLE
    if encoding not in WIDTHS:
        raise bad(f"its sound is of the kind {encoding}; integer PCM, float, A-law and mu-law can be read")
    if not channels or not rate:
        raise bad(f"it states {channels} channels at {rate} Hz")
    width = align // channels
    if width * channels != align or width not in WIDTHS[encoding] or bits > 8 * width:
        raise bad(f"it has {bits}-bit samples in blocks of {align} bytes; PCM of 8, 16, 24 and 32 bits, float of 32 and 64 can be read")
    return AudioFormat(rate, channels), encoding, width


def _as_16_bit(data: bytes, layout: _Layout) -> bytes:
    """Of PCM the upper 16 bits; samples of one byte have no sign."""
    width = layout.width
    if layout.encoding == FLOAT:
        return to_pcm(np.frombuffer(data, f"<f{width}").astype(np.float32))
    if layout.encoding in (ALAW, MULAW):
        return alaw_decode(data) if layout.encoding == ALAW else mulaw_decode(data)
    if width == 1:
        return ((np.frombuffer(data, "u1").astype("<i2") - 128) << 8).tobytes()
    if width == 2:
        return data
    return np.frombuffer(data, "u1").reshape(-1, width)[:, width - 2 :].tobytes()


class WavWriter:
    """Writes 16-bit PCM. The lengths in the header are right after every write, so that a process that ends leaves a whole file.

    Beyond 4 GiB it becomes an RF64 file; room for that is kept from the start.

    Raises:
        OSError: it cannot be created; in ``write``, the disk is full.
    """

    def __init__(self, path: Path, format: AudioFormat) -> None:
        self.format = format
        self.size = 0
        """Bytes of sound."""
        self._file = open(path, "wb", buffering=0)  # noqa: SIM115 - closed in close(); nothing may be left in a buffer of ours
        try:
            self._put(wav_header(format, 0))
        except BaseException:
            self._file.close()
            raise

    def write(self, pcm: bytes) -> None:
        """Append whole samples."""
        self._file.seek(HEADER + self.size)
        self._put(pcm)
        self.size += len(pcm)
        self._file.seek(0)
        self._put(wav_header(self.format, self.size))

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _put(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[self._file.write(view) :]


def wav_header(format: AudioFormat, size: int) -> bytes:
    """The 80 bytes before ``size`` bytes of 16-bit sound."""
    rate, channels = format.sample_rate, format.channels
    block = 2 * channels
    fmt = struct.pack("<4sIHHIIHH", b"fmt ", 16, PCM, channels, rate, rate * block, block, 16)
    whole = HEADER - 8 + size
    if whole < UNKNOWN:
        return struct.pack("<4sI4s4sI28x", b"RIFF", whole, b"WAVE", b"JUNK", 28) + fmt + struct.pack("<4sI", b"data", size)
    long = struct.pack("<4sIQQQI", b"ds64", 28, whole, size, size // block, 0)
    return struct.pack("<4sI4s", b"RF64", UNKNOWN, b"WAVE") + long + fmt + struct.pack("<4sI", b"data", UNKNOWN)
