"""``voiceflow talk [APP]``: speak with an agent through this machine's microphone and loudspeaker.

The one rule: what is said stays on the screen line by line; the last line, with the levels, is there in a terminal only.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import shutil
import sys
from collections.abc import Sequence
from typing import TextIO

from voiceflow.apps import App, load_app
from voiceflow.backoff import BackoffOptions
from voiceflow.errors import VoiceflowError
from voiceflow.frames import Frame, Heard, InputAudioFrame, PlaybackStopped, TranscriptFrame, TurnEnded
from voiceflow.meter import StatusLine
from voiceflow.session import Session
from voiceflow.transports.device import DeviceIn, DeviceOut, devices
from voiceflow.transports.recording import Recorder

__all__ = ["main"]

LOCAL_AGENT = "voiceflow.demo.agent:agent"

REDRAWN_S = 0.1


def main(arguments: Sequence[str]) -> int:
    """Talk until Ctrl-C, or for ``--seconds``. 0, or 1 if the agent, the device or the recording failed."""
    options = _parser().parse_args(arguments)
    try:
        if options.list:
            print("\n".join(map(str, devices())) or "no sound devices; on a machine without a sound card start PulseAudio or PipeWire")
            return 0
        app = load_app(options.app)
        return asyncio.run(_Call(app, options, sys.stdout).hold(options.seconds))
    except (VoiceflowError, OSError) as error:
        print(f"voiceflow talk: {error}", file=sys.stderr)
    except ExceptionGroup as group:
        for failure in group.exceptions:
            print(f"voiceflow talk: {failure}", file=sys.stderr)
    except KeyboardInterrupt:
        return 0
    return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="voiceflow talk", description="Speak with an agent. Wear a headset: there is no echo cancellation."
    )
    parser.add_argument(
        "app", nargs="?", default=LOCAL_AGENT, metavar="APP", help="FILE.py[:function] or package.module:function (default: a local agent)"
    )
    parser.add_argument("--list", action="store_true", help="list the sound devices and exit")
    parser.add_argument("--input", metavar="DEVICE", help="microphone, by name or number (default: the system's)")
    parser.add_argument("--output", metavar="DEVICE", help="loudspeaker, by name or number (default: the system's)")
    parser.add_argument("--reopen", action="store_true", help="when a device is gone, open it again or the system's, instead of hanging up")
    parser.add_argument("--record", metavar="FILE", help="record the call: .wav, .flac or .opus, you left and the agent right")
    parser.add_argument("--seconds", type=float, metavar="S", help="hang up after so long")
    return parser


def _device(text: str | None) -> str | int | None:
    return int(text) if text is not None and text.isdigit() else text


def _recorder(path: str, sink: DeviceOut) -> Recorder:
    try:
        return Recorder(path, sink)
    except (ValueError, ModuleNotFoundError) as error:
        raise VoiceflowError(f"--record: {error}") from error


class _Call:
    """One call, and what is shown of it."""

    def __init__(self, app: App, options: argparse.Namespace, out: TextIO) -> None:
        reopen = BackoffOptions(longest_wait_s=5.0, tries=8) if options.reopen else None
        self._source = DeviceIn(_device(options.input), reopen=reopen)
        self._sink = DeviceOut(_device(options.output), reopen=reopen)
        pipeline = app(self._source, self._sink)
        if options.record:
            pipeline.link(self._source, _recorder(options.record, self._sink))
        self._session = Session(pipeline)
        self._out = out
        self._shown: Frame | None = None
        is_terminal = out.isatty() and os.environ.get("TERM") != "dumb"
        self._status = StatusLine("you", "agent", colour=not os.environ.get("NO_COLOR")) if is_terminal else None

    async def hold(self, seconds: float | None) -> int:
        session = self._session
        session.tap(self._caption)
        if self._status is not None:
            session.tap(self._hear, source=self._source.name)
            self._sink.playout.tapes.append(self)
        call = asyncio.create_task(session.run())
        await asyncio.sleep(0)
        await session.started()
        if session.state == "running":
            self._say("Speak. Ctrl-C hangs up.")
        meter = asyncio.create_task(self._draw_on())
        try:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(call), seconds)
            session.cancel()
            await call
        finally:
            meter.cancel()
            if self._status is not None:
                self._write("\r\x1b[K")
        return 0

    # ------------------------------------------------------------------------------- what is shown

    async def _draw_on(self) -> None:
        while self._status is not None:
            self._draw(self._status)
            await asyncio.sleep(REDRAWN_S)

    def _draw(self, status: StatusLine) -> None:
        self._write(status.draw(self._session.time(), shutil.get_terminal_size().columns))

    def _say(self, text: str) -> None:
        if self._status is None:
            self._write(f"{text}\n")
        else:
            self._write(self._status.over(text))

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()

    def _caption(self, frame: Frame, source: str, target: str) -> None:
        if isinstance(frame, TranscriptFrame) and not frame.final:
            if self._status is not None:
                self._status.partial = f"{frame.text} ..."
        elif frame is self._shown:
            return  # the same on another edge
        elif isinstance(frame, TurnEnded):
            self._shown = frame
            if self._status is not None:
                self._status.partial = ""
            self._say(f"  you:   {frame.text}")
        elif isinstance(frame, PlaybackStopped) and source == self._sink.name:
            self._shown = frame
            self._say_heard(frame.heard)

    def _say_heard(self, heard: Heard) -> None:
        self._say(f"  agent: {heard.text}{'' if heard.complete else ' ...'}")

    # ------------------------------------------------------------------------------- what is heard

    def _hear(self, frame: Frame, source: str, target: str) -> None:
        if isinstance(frame, InputAudioFrame) and self._status is not None:
            self._status.add("you", frame.pcm)

    def left(self, position: int, pcm: bytes, due: float) -> None:
        """The agent's sound, in the device's thread."""
        if self._status is not None:
            self._status.add("agent", pcm)

    def cut(self, position: int) -> None:
        """The device throws nothing away."""
