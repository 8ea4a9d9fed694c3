"""Microphone and loudspeaker of this machine, by PortAudio.

The one rule: PortAudio's thread never waits for the event loop. Its callback takes a lock for microseconds, moves one
block and leaves a note for the loop.

What the device has taken cannot be called back: after an interrupt it plays out its own buffer (``latency_s``, on most
systems 20 to 60 ms), and no more. Set PULSE_LATENCY_MSEC to 20 to keep it short under PulseAudio and PipeWire.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping

from voiceflow.backoff import BackoffOptions
from voiceflow.frames import AudioFormat, InputAudioFrame, PlaybackStarted, PlaybackStopped, WordsHeard
from voiceflow.playout.ear import DelayClock
from voiceflow.processor import Processor
from voiceflow.transports.portaudio import Device, DeviceError, Stream, devices, find
from voiceflow.transports.speaker import Speaker, SpeakerOptions

__all__ = ["Device", "DeviceError", "DeviceIn", "DeviceOut", "devices"]

WAITING_S = 2.0
"""Sound from the microphone that may wait for the loop before the oldest is dropped."""

PLAUSIBLE_S = 0.5
"""The longest age of a block from the microphone that is believed."""


class DeviceIn(Processor):
    """The caller at this machine's microphone.

    ``device``: an index, a name or a unique part of one; None: the system's default. ``format``: None for the device's
    own rate, mono. ``reopen``: a device that is gone (unplugged, or its sound server ended) is opened again, or the system's
    default in its place, with growing waits between the tries; None: that ends the session. ``pts`` is when the first sample of a block was picked up, by the device's clock.

    Raises:
        DeviceError: no such device, when the node is made; it cannot be opened, when the session starts; or it is gone,
            some 3 s after its last block.
    """

    def __init__(
        self,
        device: int | str | None = None,
        format: AudioFormat | None = None,
        *,
        block_ms: float = 20,
        reopen: BackoffOptions | None = None,
    ) -> None:
        self.device = find(device, "in", format.channels if format else 1)
        self.makes = self.format = format or AudioFormat(self.device.sample_rate)
        self.dropped = 0
        """Blocks lost because the loop was late."""
        self.overflows = 0
        """Times that the device had to drop sound itself."""
        self._block = max(round(block_ms * self.format.sample_rate / 1000), 1)
        self._blocks: deque[tuple[bytes, float]] = deque(maxlen=max(round(WAITING_S * self.format.sample_rate / self._block), 1))
        self._came = asyncio.Event()
        self._stream = Stream(self.device, self.format, self._block, self._take, self._came, is_input=True, reopen=reopen)

    async def start(self) -> None:
        """Open the device and wait until it runs."""
        await self._stream.start(self.run_blocking)
        self._blocks.clear()

    async def stop(self) -> None:
        """Close it."""
        await self._stream.stop(self.run_blocking)

    async def run(self) -> AsyncIterator[InputAudioFrame]:
        """Yield what the microphone picks up."""
        while True:
            await self._stream.wait(self._came, self.run_blocking)
            while self._blocks:
                pcm, pts = self._blocks.popleft()
                yield InputAudioFrame(pcm=pcm, sample_rate=self.format.sample_rate, channels=self.format.channels, pts=pts)

    def _take(self, pcm: bytes, count: int, times: Mapping[str, float], missed: bool) -> None:
        """In PortAudio's thread."""
        loop = self._stream.loop
        age_s = times["current_time"] - times["input_buffer_adc_time"] if times["input_buffer_adc_time"] > 0 else 0.0
        if not 0 < age_s < PLAUSIBLE_S:  # not every driver says, and a null sink's monitor errs in its first second
            age_s = count / self.format.sample_rate + self._stream.latency_s
        loop.call_soon_threadsafe(self._arrived, pcm, loop.time() - age_s, missed)

    def _arrived(self, pcm: bytes, pts: float, missed: bool) -> None:
        self.dropped += len(self._blocks) == self._blocks.maxlen
        self.overflows += missed
        self._blocks.append((pcm, pts))
        self._came.set()


class DeviceOut(Speaker):
    """The agent's speech on this machine's loudspeaker, paced by the device.

    ``device``, ``reopen`` and errors: as in DeviceIn. ``format``: None for the device's own rate, mono. ``options``: ``block_ms``,
    ``lead_s`` and ``playout`` count. What was heard follows the device's own account of when each block sounds.
    """

    blocks_on_time = False

    def __init__(
        self,
        device: int | str | None = None,
        format: AudioFormat | None = None,
        options: SpeakerOptions | None = None,
        *,
        reopen: BackoffOptions | None = None,
    ) -> None:
        self.device = find(device, "out", format.channels if format else 1)
        form = format or AudioFormat(self.device.sample_rate)
        self._clock = DelayClock(form.sample_rate)
        super().__init__(self._played_by_the_device, form, options, clock=self._clock)
        self.underflows = 0
        """Times that the device had nothing to play because the callback was late."""
        block = max(round(self.options.block_ms * form.sample_rate / 1000), 1)
        self._stream = Stream(self.device, form, block, self._give, self._stirred, is_input=False, reopen=reopen)

    @property
    def latency_s(self) -> float:
        """From the callback to the ear, as the device last told it."""
        return self._clock.latency_s

    async def start(self) -> None:
        """Open the device and wait until it runs, so that the first word is not lost in its start."""
        await self._stream.start(self.run_blocking)

    async def stop(self) -> None:
        """Close it."""
        await self._stream.stop(self.run_blocking)

    async def run(self) -> AsyncIterator[PlaybackStarted | WordsHeard | PlaybackStopped]:
        """Report what the ear comes past."""
        while True:
            for event in self._news():
                yield event
            if self.playout.queued_s < self.options.lead_s:
                self._room.set()
            if self.playout.idle:
                self._quiet.set()
            await self._stream.wait(self._stirred, self.run_blocking)

    def _give(self, _: bytes, count: int, times: Mapping[str, float], missed: bool) -> bytes:
        """In PortAudio's thread."""
        loop = self._stream.loop
        now = loop.time()
        ahead_s = times["output_buffer_dac_time"] - times["current_time"]
        with self._lock:
            # Not every driver tells when the block will sound; a block that the device was already waiting for sounds at once.
            self._clock.latency_s = max(ahead_s, 0.0) if times["output_buffer_dac_time"] > 0 else self._stream.latency_s
            pcm = self.playout.pull(count, now, self.session.epoch)
            has_room = self.playout.queued_s < self.options.lead_s and not self._room.is_set()
            has_news = bool(self.playout.ledger.events) or (self.playout.idle and not self._quiet.is_set())
        self.underflows += missed
        if has_room or has_news:
            loop.call_soon_threadsafe(self._stirred.set)
        return pcm

    def _played_by_the_device(self, pcm: bytes) -> None:
        raise AssertionError("the device pulls by itself")
