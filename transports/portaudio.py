"""PortAudio: the sound devices of this machine, and one open stream. The only module that imports PyAudio.

The one rule: PortAudio's thread never waits, and what is raised in it is raised again where somebody listens.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import random
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from time import perf_counter, sleep
from typing import Any

from voiceflow.backoff import Backoff, BackoffOptions
from voiceflow.errors import VoiceflowError
from voiceflow.frames import AudioFormat

try:
    import pyaudio
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        "sound devices need PyAudio: install the extra 'device' (it is built against PortAudio: apt-get install portaudio19-dev)",
        name="pyaudio",
    ) from missing

__all__ = ["Device", "DeviceError", "Stream", "devices", "find"]

log = logging.getLogger("voiceflow")

FIRST_SOUND_S = 10.0
"""How long a device may take until it runs. A null sink of PulseAudio needs 1 to 4 s."""

RUNS_AGAIN_S = 5.0
"""How long one that is opened again may take. PortAudio's thread is busy all the while if the device is suspended."""

SETTLED = 10
"""A device runs steadily when this many blocks have come in about their own length."""

STALLED_S = 3.0
"""A device that calls no more for this long is gone."""

CLOSING_S = 0.5
"""A device that is to be closed calls once more within this time, or is cut off."""

_portaudio = threading.Lock()
"""PortAudio opens and closes for one thread at a time."""

InThread = Callable[[Callable[[], None]], Awaitable[None]]


class DeviceError(VoiceflowError, OSError):
    """There is no such device, or it cannot be used. The text names those there are."""


@dataclass(frozen=True, slots=True)
class Device:
    """A sound device of this machine: its channels in and out, and its own sample rate in Hz."""

    index: int
    name: str
    inputs: int
    outputs: int
    sample_rate: int

    def __str__(self) -> str:
        return f"{self.index} {self.name!r} ({self.inputs} in, {self.outputs} out, {self.sample_rate} Hz)"


def devices() -> list[Device]:
    """The sound devices there are. May take a few 100 ms: PortAudio tries them all."""
    with _library() as library:
        return _devices(library)


class Stream:
    """One PortAudio stream in 16-bit samples, calling ``callback(sound, samples, times, missed)`` in PortAudio's thread.

    ``sound``: what was picked up (input); the callback returns what is to be played (output). ``times``: PortAudio's.
    ``missed``: the device lost sound or had none since the last call. What the callback raises sets ``failed``; ``check``
    raises it.
    """

    def __init__(
        self,
        device: Device,
        format: AudioFormat,
        block: int,
        callback: Callable[[bytes, int, Mapping[str, float], bool], bytes | None],
        failed: asyncio.Event,
        *,
        is_input: bool,
        reopen: BackoffOptions | None = None,
    ) -> None:
        self.loop: asyncio.AbstractEventLoop
        self.latency_s = 0.0
        """As the device states it."""
        self._device = self._wanted = device
        self._format = format
        self._block = block
        self._callback = callback
        self._is_input = is_input
        self._reopen = reopen
        self._open: contextlib.ExitStack | None = None
        self._opening = threading.Lock()
        self._stopped = False
        self._closing = False
        self._lately: deque[float] = deque(maxlen=SETTLED)
        """When the last blocks came."""
        self._settled = asyncio.Event()
        self._failed = failed
        self._failure: Exception | None = None

    async def start(self, in_thread: InThread) -> None:
        """Open it, in a thread, and wait until it runs steadily. Raises DeviceError."""
        self.loop = asyncio.get_running_loop()
        await self._start_up(in_thread, FIRST_SOUND_S)

    async def _start_up(self, in_thread: InThread, timeout_s: float) -> None:
        self._settled.clear()
        self._lately.clear()
        await in_thread(self._open_now)
        try:
            async with asyncio.timeout(timeout_s):
                await self._settled.wait()
        except TimeoutError as error:
            raise DeviceError(f"{self._device} was opened but is not running after {timeout_s:g} s; is it suspended or muted?") from error
        self.check()

    async def stop(self, in_thread: InThread) -> None:
        """Close it, if it was opened: after this the callback is not called again."""
        self._stopped = True
        await in_thread(self._close_now)

    def check(self) -> None:
        """Raise what went wrong in PortAudio's thread."""
        if self._failure is not None:
            raise self._failure

    async def wait(self, event: asyncio.Event, in_thread: InThread) -> None:
        """Wait for the event, and clear it; meanwhile, and then, see that the device lives. Raises DeviceError.

        With ``reopen`` a device that is gone is opened again first, or the system's default in its place.
        """
        while not event.is_set():
            try:
                async with asyncio.timeout(STALLED_S / 3):
                    await event.wait()
            except TimeoutError:
                if self.loop.time() - self._lately[-1] > STALLED_S:
                    await self._try_again(in_thread)
        event.clear()
        self.check()

    async def _try_again(self, in_thread: InThread) -> None:
        gone = DeviceError(
            f"{self._device} has stopped: not one block for {STALLED_S:g} s; was it unplugged, or its sound server ended? "
            "Choose another device, or give reopen=BackoffOptions() to go on with the system's default"
        )
        if self._reopen is None:
            raise gone
        log.warning("%s has stopped: not one block for %g s; it is opened again, or the system's default", self._device, STALLED_S)
        reconnect, error = Backoff(self._reopen, random.random), gone
        while (wait_s := reconnect.failed()) is not None:
            await in_thread(self._close_now)
            await asyncio.sleep(wait_s)
            try:
                # The device itself first, then the system's default, in turns.
                await in_thread(partial(self._find, self._wanted.name if reconnect.failures % 2 else None))
                await self._start_up(in_thread, RUNS_AGAIN_S)
            except DeviceError as again:
                error = again
            else:
                log.warning("%s is used now", self._device)
                return
        raise DeviceError(f"{self._wanted} has stopped, and no device could be opened in {reconnect.failures} tries: {error}") from error

    def _find(self, name: str | None) -> None:
        self._device = find(name, "in" if self._is_input else "out", self._format.channels)

    def _close_now(self) -> None:
        with self._opening:  # a start that was cancelled opens on to its end in its thread
            if self._open is not None:
                self._closing = True
                self._open.close()
                self._open = None

    def _close(self, stream: Any) -> None:
        """Let the callback end the stream, so that its thread is not stopped within Python; only one that hangs is cut off.

        PortAudio's own stop waits until all has been played, which on a suspended device is for ever.
        """
        deadline = perf_counter() + CLOSING_S
        while stream.is_active() and perf_counter() < deadline:
            sleep(CLOSING_S / 100)
        with _portaudio:
            stream.close()

    def _open_now(self) -> None:
        with self._opening, contextlib.ExitStack() as stack:
            if self._stopped:
                return
            self._closing = False
            library = stack.enter_context(_library())
            way = "input" if self._is_input else "output"
            options = {way: True, f"{way}_device_index": self._device.index}
            try:
                with _portaudio:
                    stream = library.open(
                        rate=self._format.sample_rate,
                        channels=self._format.channels,
                        format=pyaudio.paInt16,
                        frames_per_buffer=self._block,
                        stream_callback=self._called,
                        **options,
                    )
                    self.latency_s = stream.get_input_latency() if self._is_input else stream.get_output_latency()
            except OSError as error:
                raise DeviceError(
                    f"{self._device} could not be opened for {way} at {self._format}: {error}; is another program using it? {_there_are(library)}"
                ) from error
            stack.callback(self._close, stream)
            self._open = stack.pop_all()

    def _called(self, data: bytes | None, count: int, times: Mapping[str, float], status: int) -> tuple[bytes | None, int]:
        """In PortAudio's thread."""
        if self._closing:
            return None, pyaudio.paAbort
        try:
            out = self._callback(data or b"", count, times, bool(status & (pyaudio.paInputOverflow | pyaudio.paOutputUnderflow)))
        except Exception as error:  # noqa: BLE001 - there is no caller in this thread: check() raises it in the node's run()
            self._failure = error
            self.loop.call_soon_threadsafe(self._failed.set)
            self.loop.call_soon_threadsafe(self._settled.set)
            return None, pyaudio.paAbort
        self._lately.append(self.loop.time())
        if not self._settled.is_set() and self._is_steady(count):
            self.loop.call_soon_threadsafe(self._settled.set)
        return out, pyaudio.paContinue

    def _is_steady(self, count: int) -> bool:
        """A device that starts asks for its buffer's worth at once, and some then for nothing for a second."""
        took_s = self._lately[-1] - self._lately[0]
        length_s = (SETTLED - 1) * count / self._format.sample_rate
        return len(self._lately) == SETTLED and length_s / 2 < took_s < length_s * 1.5


# --------------------------------------------------------------------------------------------- finding devices


@contextlib.contextmanager
def _library() -> Iterator[Any]:
    """PortAudio, initialised for as long as the block lasts. It counts its users."""
    with _portaudio:
        _hear_drivers(1)
        library = pyaudio.PyAudio()
    try:
        yield library
    finally:
        with _portaudio:
            library.terminate()
            _hear_drivers(-1)


def _devices(library: Any) -> list[Device]:
    infos = [library.get_device_info_by_index(i) for i in range(library.get_device_count())]
    return [
        Device(int(d["index"]), str(d["name"]), int(d["maxInputChannels"]), int(d["maxOutputChannels"]), round(d["defaultSampleRate"]))
        for d in infos
    ]


def _there_are(library: Any) -> str:
    return "devices: " + (
        "; ".join(map(str, _devices(library))) or "none at all (on a machine without a sound card start PulseAudio or PipeWire)"
    )


def find(wanted: int | str | None, way: str, channels: int) -> Device:
    """The device meant, with that many channels. ``way`` is "in" or "out". Raises DeviceError, naming those there are."""
    with _library() as library:
        usable = [device for device in _devices(library) if (device.inputs if way == "in" else device.outputs)]
        if wanted is None:
            try:
                info = library.get_default_input_device_info() if way == "in" else library.get_default_output_device_info()
            except OSError as error:
                raise DeviceError(f"there is no default device for sound {way}; {_there_are(library)}") from error
            wanted = int(info["index"])
        if isinstance(wanted, int):
            found = [device for device in usable if device.index == wanted]
        else:
            exact = [device for device in usable if device.name == wanted]
            found = exact or [device for device in usable if wanted.casefold() in device.name.casefold()]
        if not found:
            raise DeviceError(f"there is no device {wanted!r} for sound {way}; {_there_are(library)}")
        if len(found) > 1 and isinstance(wanted, str) and found[0].name != wanted:
            raise DeviceError(
                f"{wanted!r} is part of the names of {len(found)} devices for sound {way}: {'; '.join(map(str, found))}; use an index"
            )
        if channels > (most := found[0].inputs if way == "in" else found[0].outputs):
            raise DeviceError(f"{found[0]} has {most} channels {way}, not {channels}")
        return found[0]


# ------------------------------------------------------------------------------------------- PortAudio's chatter

_AlsaHandler = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p)
_JackHandler = ctypes.CFUNCTYPE(None, ctypes.c_char_p)
_users = 0


def _alsa_says(file: bytes, line: int, function: bytes, error: int, format: bytes) -> None:
    log.debug("ALSA: %s: %s", function.decode(errors="replace"), format.decode(errors="replace"))


def _jack_says(message: bytes) -> None:
    log.debug("JACK: %s", message.decode(errors="replace"))


_to_log_alsa = _AlsaHandler(_alsa_says)
_to_log_jack = _JackHandler(_jack_says)


def _hear_drivers(more: int) -> None:
    """While PortAudio is in use, what ALSA and JACK say goes to the log, at debug level.

    PortAudio tries every driver there could be, and they print pages on stderr about those there are not. Their own hooks
    are used; the process's stderr is left alone. Call it with ``_portaudio`` held; ``more``: users, 1 or -1.
    """
    global _users  # noqa: PLW0603 - the hooks are the process's, like PortAudio itself
    _users += more
    if _users == 1 and more == 1 and (jack := _shared("libjack.so.0")) is not None:
        # JACK has no way back to its default, and nothing else in this process uses it.
        jack.jack_set_error_function(_to_log_jack)
        jack.jack_set_info_function(_to_log_jack)
    if (alsa := _shared("libasound.so.2")) is not None:
        alsa.snd_lib_error_set_handler(_to_log_alsa if _users else None)


def _shared(name: str) -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(name)
    except OSError:
        return None  # not Linux, or a PortAudio without it
