"""FLAC and Ogg Opus, written as they come. The only module that imports soundfile.

The one rule: what a process leaves that is ended in the middle of a call can be played, and without the library the
module can be imported all the same. Opus is a row of pages, each whole in
itself; a FLAC file states its length in its first block (STREAMINFO, RFC 9639 section 8.2), which is kept up to date here.
"""

from __future__ import annotations

import os
from pathlib import Path as FilePath

import numpy as np

from voiceflow.frames import AudioFormat

try:
    import soundfile  # type: ignore[import-untyped]  # 0.14 ships no py.typed; every use of it stands in this module
except (ModuleNotFoundError, OSError) as missing:  # OSError: without libsndfile
    soundfile, _missing = None, missing

__all__ = ["CODINGS", "OPUS_RATES", "SoundFileWriter", "need_soundfile"]

Path = str | os.PathLike[str]

OPUS_RATES = (8000, 12000, 16000, 24000, 48000)

CODINGS = {".flac": ("FLAC", "PCM_16"), ".opus": ("OGG", "OPUS"), ".ogg": ("OGG", "OPUS")}

FLAC_BLOCK = 4096
"""Samples that the encoder collects before it writes."""

TOTAL_AT = 21
"""Where in a FLAC file the 36 bits of its length begin, in the lower half of this byte."""


def need_soundfile() -> None:
    """Raise ModuleNotFoundError, saying what to install, if soundfile is not here. A recording to WAV does without it."""
    if soundfile is None:
        raise ModuleNotFoundError(
            "FLAC and Opus need soundfile: install the extra 'record', or record to .wav", name="soundfile"
        ) from _missing


class SoundFileWriter:
    """Writes 16-bit PCM as FLAC or Opus, by the name's ending.

    Raises:
        ValueError: another ending, or a sample rate that Opus does not know.
        OSError: it cannot be created; in ``write`` and ``close``, the disk is full.
    """

    def __init__(self, path: Path, format: AudioFormat) -> None:
        suffix = FilePath(path).suffix.lower()
        if suffix not in CODINGS:
            raise ValueError(f"{os.fspath(path)}: the ending must be one of {', '.join(CODINGS)}")
        kind, coding = CODINGS[suffix]
        if coding == "OPUS" and format.sample_rate not in OPUS_RATES:
            raise ValueError(f"{os.fspath(path)}: Opus has {', '.join(map(str, OPUS_RATES))} Hz, not {format.sample_rate}")
        need_soundfile()
        self.format = format
        self._frames = 0
        self._is_flac = kind == "FLAC"
        self._raw = open(path, "w+b", buffering=0)  # noqa: SIM115 - closed in close(); it gives an OSError that names the file
        try:
            self._file = soundfile.SoundFile(
                os.fspath(path), "w", samplerate=format.sample_rate, channels=format.channels, format=kind, subtype=coding
            )
        except BaseException:
            self._raw.close()
            raise

    def write(self, pcm: bytes) -> None:
        """Append whole samples."""
        samples = np.frombuffer(pcm, "<i2").reshape(-1, self.format.channels)
        try:
            self._file.write(samples)
        except soundfile.SoundFileError as error:
            raise OSError(f"{self._file.name}: {error}") from error
        self._frames += len(samples)
        if self._is_flac:
            self._state_length(max(self._frames - 2 * FLAC_BLOCK, 0))

    def close(self) -> None:
        """Write what is still in the encoder, and close the file."""
        try:
            self._file.close()
        except soundfile.SoundFileError as error:
            raise OSError(f"{self._file.name}: {error}") from error
        finally:
            self._raw.close()

    def _state_length(self, frames: int) -> None:
        self._raw.seek(TOTAL_AT)
        first = self._raw.read(1)
        if first:
            self._raw.seek(TOTAL_AT)
            self._raw.write(bytes([first[0] & 0xF0 | frames >> 32]) + (frames & 0xFFFFFFFF).to_bytes(4, "big"))
