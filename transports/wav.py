"""A caller from a WAV file, and the agent's speech into one.

The one rule: the file on disk is a valid WAV after every block, also when the session is cancelled in the middle of one.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import replace

from voiceflow.frames import AudioFormat, InputAudioFrame
from voiceflow.processor import Processor
from voiceflow.transports.riff import WavReader, WavWriter
from voiceflow.transports.speaker import Speaker, SpeakerOptions

__all__ = ["RecordedAudioFrame", "WavIn", "WavOut"]

Path = str | os.PathLike[str]


class RecordedAudioFrame(InputAudioFrame, frozen=True):
    """Sound from the caller that is read faster than it was said: whoever reads it waits, and none is dropped."""

    live = False


class WavIn(Processor):
    """The caller: yields the file block by block, then ends; with no other source that ends the session.

    ``realtime``: each block comes when it would have been said, its ``pts`` the time of its first sample. Otherwise as
    fast as it is taken (RecordedAudioFrame), with the ``pts`` it would have had. Any rate and number of channels; 8 to
    32 bits, float, A-law and mu-law become 16 bits. A file that is cut off is read as far as it goes. ``tail_s``: silence behind the file, for a VAD that waits for the end of speech.

    Raises:
        ValueError: no WAV file, or one of a coding that is not read; when the node is made.
        OSError: no such file, likewise.
    """

    def __init__(self, path: Path, *, realtime: bool = True, block_ms: float = 20, tail_s: float = 0.0) -> None:
        if block_ms <= 0 or tail_s < 0:
            raise ValueError(f"WavIn: block_ms {block_ms} must be more than 0 and tail_s {tail_s} not negative")
        self.path = path
        self.realtime = realtime
        self.block_s = block_ms / 1000
        self.tail_s = tail_s
        file = WavReader(path)
        file.close()
        self.makes = self.format = file.format
        self.duration_s = file.frames / file.format.sample_rate
        self._file: WavReader | None = None

    async def start(self) -> None:
        """Open the file."""
        self._file = WavReader(self.path)

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
            pcm = self._file.read(wanted)
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
    ``options``: its ``paced`` and ``continuous`` follow from ``realtime``. Beyond 4 GiB the file becomes an RF64.
    """

    def __init__(
        self, path: Path, format: AudioFormat | None = None, *, realtime: bool = True, options: SpeakerOptions | None = None
    ) -> None:
        super().__init__(self._write, format, replace(options or SpeakerOptions(), paced=realtime, continuous=realtime))
        self.path = path
        self._file: WavWriter | None = None

    async def start(self) -> None:
        """Create the file. Raises OSError where it cannot be."""
        self._file = WavWriter(self.path, self.format)

    async def stop(self) -> None:
        """Close it."""
        if self._file is not None:
            self._file.close()

    def _write(self, pcm: bytes) -> None:
        assert self._file is not None
        self._file.write(pcm)
