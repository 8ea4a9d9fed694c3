"""A caller from a WAV file, and the agent's speech into one.

The one rule: the file on disk is a valid WAV after every block, also when the session is cancelled in the middle of one.
"""

from __future__ import annotations

import asyncio
import os
import wave
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import BinaryIO

import numpy as np

from voiceflow.frames import AudioFormat, InputAudioFrame
from voiceflow.processor import Processor
from voiceflow.transports.speaker import Speaker, SpeakerOptions

__all__ = ["RecordedAudioFrame", "WavIn", "WavOut"]

Path = str | os.PathLike[str]


class RecordedAudioFrame(InputAudioFrame, frozen=True):
    """Sound from the caller that is read faster than it was said: whoever reads it waits, and none is dropped."""

    live = False


class WavIn(Processor):
    """The caller: yields the file block by block, then ends; with no other source that ends the session.

    ``realtime``: each block comes when it would have been said, its ``pts`` the time of its first sample. Otherwise as
    fast as it is taken (RecordedAudioFrame), with the ``pts`` it would have had. Any rate and number of channels; 8, 24
    and 32 bits become 16. ``tail_s``: silence behind the file, for a VAD that waits for the end of speech.

    Raises:
        ValueError: not a WAV file of integer PCM; when the node is made.
        OSError: no such file, likewise.
    """

    def __init__(self, path: Path, *, realtime: bool = True, block_ms: float = 20, tail_s: float = 0.0) -> None:
        if block_ms <= 0 or tail_s < 0:
            raise ValueError(f"WavIn: block_ms {block_ms} must be more than 0 and tail_s {tail_s} not negative")
        self.path = path
        self.realtime = realtime
        self.block_s = block_ms / 1000
        self.tail_s = tail_s
        with _open(path) as file:
            self.makes = self.format = AudioFormat(file.getframerate(), file.getnchannels())
            self.duration_s = file.getnframes() / file.getframerate()
        self._file: wave.Wave_read | None = None

    async def start(self) -> None:
        """Open the file."""
        self._file = _open(self.path)

    async def stop(self) -> None:
        """Close it."""
        if self._file is not None:
            self._file.close()

    async def run(self) -> AsyncIterator[InputAudioFrame]:
        """Yield the file, then the tail."""
        assert self._file is not None
        loop = asyncio.get_running_loop()
        start = loop.time()
        rate = self.format.sample_rate
        done = 0
        tail = round(self.tail_s * rate)
        cls = InputAudioFrame if self.realtime else RecordedAudioFrame
        block = 0
        while True:
            block += 1
            wanted = max(round(block * self.block_s * rate) - done, 1)
            pcm = _as_16_bit(self._file.readframes(wanted), self._file.getsampwidth())
            size = 2 * self.format.channels
            silent = min(wanted - len(pcm) // size, tail)
            tail -= silent
            pcm += bytes(silent * size)
            if not pcm:
                return
            pts = start + done / rate
            done += len(pcm) // size
            if self.realtime:
                await asyncio.sleep(start + done / rate - loop.time())
            yield cls(pcm=pcm, sample_rate=rate, channels=self.format.channels, pts=pts)


class WavOut(Speaker):
    """The agent's speech, into a file that is overwritten.

    ``realtime``: the file is what the caller would have heard, from the start of the session to its end, silence
    included; what an interrupt cut is not in it. Otherwise speech is written as fast as it is made, end to end: an
    interrupt can only keep out what was not made yet, and what is in the file counts as heard. Holds do nothing then.
    ``options``: its ``paced`` and ``continuous`` follow from ``realtime``. At most 4 GiB, a day of 24 kHz mono.
    """

    def __init__(
        self, path: Path, format: AudioFormat | None = None, *, realtime: bool = True, options: SpeakerOptions | None = None
    ) -> None:
        super().__init__(self._write, format, replace(options or SpeakerOptions(), paced=realtime, continuous=realtime))
        self.path = path
        self._file: BinaryIO | None = None
        self._wave: wave.Wave_write | None = None

    async def start(self) -> None:
        """Create the file. Raises OSError where it cannot be."""
        self._file = open(self.path, "wb")  # noqa: SIM115, ASYNC230 - closed in stop(); it takes as long as a write does
        self._wave = wave.open(self._file)  # noqa: SIM115 - likewise
        self._wave.setnchannels(self.format.channels)
        self._wave.setsampwidth(2)
        self._wave.setframerate(self.format.sample_rate)
        self._write(b"")

    async def stop(self) -> None:
        """Close it."""
        if self._wave is not None:
            self._wave.close()
        if self._file is not None:
            self._file.close()

    def _write(self, pcm: bytes) -> None:
        assert self._wave is not None
        self._wave.writeframes(pcm)  # corrects the lengths in the header every time


def _open(path: Path) -> wave.Wave_read:
    name = os.fspath(path)
    try:
        file = wave.open(name, "rb")  # noqa: SIM115 - closed by the caller
    except (wave.Error, EOFError) as error:
        what = str(error) or "it is empty or cut off in its header"
        raise ValueError(
            f"{name} is no WAV file of integer PCM: {what}; convert it, for example: ffmpeg -i {name} -c:a pcm_s16le out.wav"
        ) from error
    if file.getsampwidth() not in (1, 2, 3, 4):
        file.close()
        raise ValueError(f"{name} has {8 * file.getsampwidth()}-bit samples; 8, 16, 24 and 32 bits can be read")
    return file


def _as_16_bit(data: bytes, width: int) -> bytes:
    """The upper 16 bits of samples of 1 (which has no sign), 2, 3 or 4 bytes."""
    if width == 1:
        return ((np.frombuffer(data, "u1").astype("<i2") - 128) << 8).tobytes()
    if width == 2:
        return data
    return np.frombuffer(data, "u1").reshape(-1, width)[:, width - 2 :].tobytes()
