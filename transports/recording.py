"""A call on disk: the caller left, the agent right, each sample where it stood on the session's clock.

The one rule: the call never waits for the disk. Sound waits for its place in a ``Track`` (a few seconds, bounded), and goes
to the file second by second in a thread; a disk that is too slow costs sound of the recording, one that is full ends the
recording, and both are said at once in the log and again when the call has ended.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Protocol

import numpy as np
import numpy.typing as npt

from voiceflow.audio import StreamResampler, mix, resample
from voiceflow.errors import SessionError, VoiceflowError
from voiceflow.frames import AudioFormat, InputAudioFrame, StartFrame
from voiceflow.playout.ear import DelayClock, ReportClock
from voiceflow.processor import Processor
from voiceflow.transports.riff import WavWriter
from voiceflow.transports.sound_files import CODINGS, OPUS_RATES, SoundFileWriter, need_soundfile
from voiceflow.transports.speaker import Speaker
from voiceflow.transports.tracks import Track

__all__ = ["Recorder", "RecorderOptions", "RecordingError"]

log = logging.getLogger("voiceflow")

Path = str | os.PathLike[str]
Samples = npt.NDArray[np.int16]

TICK_S = 0.5
"""How often it is seen whether there is a second to write."""

AHEAD_S = 1.0
"""Sound of the caller that is dated later than this from now is no live sound."""

GAP_S = 0.001
"""Blocks closer than this belong to one stretch of speech."""


class RecordingError(VoiceflowError, OSError):
    """The recording is not whole. The text says which file, what it lacks and why. The call was not disturbed."""


@dataclass(frozen=True, slots=True)
class RecorderOptions:
    """How a call is recorded."""

    sample_rate: int | None = None
    """Of the file, in Hz. None: the agent's, for Opus 48000 where Opus does not know that."""
    settle_s: float = 2.0
    """How long sound waits before it is written. Until then a block that came late is put where it belongs, and what the far
    end threw away is taken out again; what a sink sends ahead of its time is waited for besides."""
    limit_s: float = 10.0
    """Sound of each side that waits at most. While the disk is slower than the call the oldest becomes silence."""

    def __post_init__(self) -> None:
        if self.settle_s < 0 or self.limit_s < self.settle_s + 2 * TICK_S + 1:
            raise ValueError(
                f"RecorderOptions: settle_s {self.settle_s} must not be negative, and limit_s {self.limit_s} be 2 s more: as long as it takes to write it"
            )
        if self.sample_rate is not None and self.sample_rate < 1:
            raise ValueError(f"RecorderOptions: sample_rate is {self.sample_rate}, it must be a number of Hz")


class _Writer(Protocol):
    def write(self, pcm: bytes) -> None: ...
    def close(self) -> None: ...


class Recorder(Processor):
    """Records a call to ``path``: stereo, 16 bits; .wav, or with the extra ``record`` .flac, .opus and .ogg (Opus).

    The agent's code stays as it is; the recorder is one more node behind the caller's end, and is told whose sound to keep:

        pipeline = agent(source, sink)
        Session(pipeline.link(source, Recorder("call.wav", sink)))

    The file begins when the call does (when every node is ready, such as a device that takes a second), and ends with it. The caller's sound stands where its ``pts`` says;
    the agent's where it was heard, as far as ``sink`` knows it: nothing of what an interrupt cut, silence in a hold, and
    after a resume the word again. A process that is ended in the middle leaves a file that can be played.

    A recording that fails (``failure``) or lacks sound (``lost_s``) does not disturb the call. When the session has ended,
    ``stop`` raises RecordingError for it, which is then among the errors that ``session.run()`` raises.

    Raises:
        ValueError: an ending that is not known, or a sink that does not pace its sound.
        ModuleNotFoundError: soundfile is needed and not installed.
        OSError: the file cannot be created; when the session starts.
    """

    def __init__(self, path: Path, sink: Speaker, options: RecorderOptions | None = None) -> None:
        self.path = os.fspath(path)
        self.options = options or RecorderOptions()
        suffix = FilePath(path).suffix.lower()
        if suffix != ".wav" and suffix not in CODINGS:
            raise ValueError(f"Recorder: {self.path} must end in one of .wav, {', '.join(CODINGS)}")
        if not sink.options.paced:
            raise ValueError("Recorder: the sink lets its sound go as fast as it is made (paced=False), so it has no place in time")
        if suffix in CODINGS:
            need_soundfile()
        self._make: Callable[[Path, AudioFormat], _Writer] = SoundFileWriter if suffix in CODINGS else WavWriter
        rate = self.options.sample_rate or sink.format.sample_rate
        if self.options.sample_rate is None and suffix in (".opus", ".ogg") and rate not in OPUS_RATES:
            rate = max(OPUS_RATES)
        self.format = AudioFormat(rate, 2)
        self.failure: RecordingError | None = None
        """Why the recording ended before the call."""
        self._sink = sink
        self._settle_s = self.options.settle_s + sink.options.ahead_s
        self._agent = _Side(sink.format.sample_rate, rate, self._limit_s, exact=sink.blocks_on_time)
        self._caller: _Side | None = None
        self._lock = threading.Lock()
        """Around the tracks: a device's thread brings the agent's sound."""
        self._writing = threading.Lock()
        """Around the file, which one thread at a time has in hand."""
        self._file: _Writer | None = None
        self._is_over = False
        self._start: float | None = None
        self._taken_s = 0
        self._goes_on_at = -math.inf
        self._latency_s = 0.0
        self._through: list[list[Samples]] = [[], []]
        """Of each side what is at the file's rate and waits for the other."""
        self._written = 0

    @property
    def _limit_s(self) -> float:
        return self.options.limit_s + self._sink.options.ahead_s

    @property
    def lost_s(self) -> float:
        """Seconds of sound, of both sides, that the file lacks because the disk was too slow."""
        return sum(side.track.dropped / side.rate for side in (self._caller, self._agent) if side is not None)

    @property
    def held_bytes(self) -> int:
        """Bytes of sound that wait to be written."""
        return 2 * sum(side.track.held for side in (self._caller, self._agent) if side is not None)

    # ------------------------------------------------------------------------------- begin and end

    async def start(self) -> None:
        """Create the file. Raises OSError where it cannot be, SessionError for a sink of another call."""
        if self._sink._session is not self.session:
            raise SessionError(f"{self.name} records {self._sink!r}, which is not in this session: give it the sink of its own pipeline")
        await self.run_blocking(self._open)

    def _open(self) -> None:
        with self._writing:
            if not self._is_over:  # a start that was cancelled opens on to its end in its thread
                self._file = self._make(self.path, self.format)

    async def stop(self) -> None:
        """Write what is left and close the file. Raises RecordingError if it is not whole."""
        self._is_over = True
        if self in self._sink.playout.tapes:
            self._sink.playout.tapes.remove(self)
        try:
            await self.run_blocking(self._finish, 0.0 if self._start is None else self.session.time() - self._start)
        except OSError as error:
            self._fail(error)
        if self.failure is not None:
            raise self.failure
        if self.lost_s:
            raise RecordingError(f"{self.path} lacks {self.lost_s:.1f} s of sound: the disk was slower than the call")

    # ------------------------------------------------------------------------------- what comes in

    def process(self, frame: StartFrame | InputAudioFrame) -> None:
        """Begin; keep the caller's sound."""
        if isinstance(frame, StartFrame):
            self._start = self.session.time()
            self._sink.playout.tapes.append(self)
            self.session.spawn(self._write_all(), f"{self.name}/write")
        elif not self._is_over:
            self._hear(frame)

    def _hear(self, frame: InputAudioFrame) -> None:
        now, rate = self.session.time(), frame.sample_rate
        pts = now - frame.duration if frame.pts is None else frame.pts
        if pts > now + AHEAD_S:
            self._fail(ValueError(f"the caller's sound is {pts - now:.1f} s ahead of the clock; only live sound can be recorded"))
            return
        pcm = mix(frame.pcm, frame.channels, 1)
        with self._lock:
            if self._caller is None:
                self._caller = _Side(rate, self.format.sample_rate, self._limit_s, taken_s=self._taken_s)
            side = self._caller
            if rate != side.rate:
                pcm = resample(pcm, rate, side.rate)
            self._put(side, pts, np.frombuffer(pcm, "<i2"))

    def left(self, position: int, pcm: bytes, due: float) -> None:
        """Keep the agent's sound; silence needs no keeping. In the thread that the sink pulls in."""
        samples = np.frombuffer(pcm, "<i2")
        rate = self._agent.rate
        count = len(samples) // self._sink.format.channels
        if abs(due - self._goes_on_at) > GAP_S:  # within a stretch it stays, or each better estimate would be a gap
            clock = self._sink.playout.ledger.clock
            self._latency_s = clock.latency_s if isinstance(clock, DelayClock | ReportClock) else 0.0
        self._goes_on_at = due + count / rate
        if samples.any():
            mono = np.frombuffer(mix(pcm, self._sink.format.channels, 1), "<i2")
            with self._lock:
                self._put(self._agent, due + self._latency_s, mono, position)

    def cut(self, position: int) -> None:
        """What the far end threw away was not heard."""
        with self._lock:
            self._agent.track.cut(position)

    def _put(self, side: _Side, at: float, samples: Samples, position: int = 0) -> None:
        if self._is_over or self._start is None:
            return
        before = side.track.dropped
        side.track.put(round((at - self._start) * side.rate), samples, position)
        if side.track.dropped and not before:
            log.error("the recording %s loses sound: the disk is slower than the call", self.path)

    # ------------------------------------------------------------------------------- what goes out

    async def _write_all(self) -> None:
        """A second at a time, when it has settled. Whole seconds are whole numbers of samples at every rate."""
        assert self._start is not None
        while not self._is_over:
            if self.session.time() - self._start - self._settle_s < self._taken_s + 1:
                await asyncio.sleep(TICK_S)
                continue
            try:
                await self.run_blocking(self._write_to, self._taken_s + 1)
            except OSError as error:
                self._fail(error)

    def _fail(self, error: Exception) -> None:
        """The recording is over; the call goes on."""
        self._is_over = True
        if self.failure is None:
            self.failure = RecordingError(f"the recording {self.path} ends after {self._taken_s} s: {error}")
            self.failure.__cause__ = error
            log.error("%s; the call goes on", self.failure)

    def _write_to(self, until_s: float) -> None:
        """In a thread."""
        with self._writing:
            self._write(until_s)

    def _write(self, until_s: float) -> None:
        assert self._file is not None
        self._file.write(self._second(until_s))

    def _second(self, until_s: float) -> bytes:
        """What there is from where the file stands up to then, as far as it is through the filters."""
        with self._lock:
            sides = self._caller, self._agent
            parts = [side.track.take(round(until_s * side.rate)) if side is not None else None for side in sides]
            seconds, self._taken_s = until_s - self._taken_s, math.ceil(until_s)
        for index, (side, part) in enumerate(zip(sides, parts, strict=True)):
            silent = np.zeros(round(seconds * self.format.sample_rate), np.int16)
            self._through[index] += [silent if side is None or part is None else side.convert(part)]
        return self._both(min(sum(map(len, parts)) for parts in self._through))

    def _both(self, count: int) -> bytes:
        """The first ``count`` samples of each side that are through the filters, interleaved."""
        out = np.zeros((count, 2), "<i2")
        for index, parts in enumerate(self._through):
            ready = np.concatenate([np.zeros(0, np.int16), *parts])
            out[: len(ready), index] = ready[:count]
            self._through[index] = [ready[count:]]
        self._written += count
        return out.tobytes()

    def _finish(self, end_s: float) -> None:
        """In a thread: write all there is up to the end, both sides equally long, and close."""
        with self._writing:
            if self._file is None:
                return
            try:
                if self.failure is None:
                    while self._taken_s + 1 <= end_s:
                        self._write(self._taken_s + 1)
                    self._write(end_s)
                    for index, side in enumerate((self._caller, self._agent)):
                        self._through[index] += [side.tail()] if side is not None else []
                    self._file.write(self._both(max(round(end_s * self.format.sample_rate) - self._written, 0)))
            finally:
                self._file.close()


class _Side:
    """The caller, or the agent: a track at its own rate, and the way to the file's."""

    def __init__(self, rate: int, file_rate: int, limit_s: float, *, exact: bool = False, taken_s: int = 0) -> None:
        self.rate = rate
        self.track = Track(round(limit_s * rate), exact=exact)
        self.track.taken = taken_s * rate
        self._resampler = StreamResampler(rate, file_rate, 1, "HQ")

    def convert(self, samples: Samples) -> Samples:
        return np.frombuffer(self._resampler.process(samples.tobytes()), "<i2")

    def tail(self) -> Samples:
        return np.frombuffer(self._resampler.flush(), "<i2")
