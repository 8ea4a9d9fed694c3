"""``voiceflow talk [APP]``: speak with an agent through this machine's microphone and loudspeaker."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
from collections.abc import Callable, Sequence

from voiceflow.apps import load_app
from voiceflow.errors import VoiceflowError
from voiceflow.frames import Frame, Heard, PlaybackStopped, TranscriptFrame, TurnEnded
from voiceflow.session import Session
from voiceflow.transports.device import DeviceIn, DeviceOut

__all__ = ["main"]

LOCAL_AGENT = "voiceflow.demo.agent:agent"


def main(arguments: Sequence[str]) -> int:
    """Talk until Ctrl-C, or for ``--seconds``. 0, or 1 if the agent or the device failed."""
    parser = argparse.ArgumentParser(
        prog="voiceflow talk", description="Speak with an agent. Wear a headset: there is no echo cancellation."
    )
    parser.add_argument(
        "app", nargs="?", default=LOCAL_AGENT, metavar="APP", help="FILE.py[:function] or package.module:function (default: a local agent)"
    )
    parser.add_argument("--input", metavar="DEVICE", help="microphone, by name or number (default: the system's)")
    parser.add_argument("--output", metavar="DEVICE", help="loudspeaker, by name or number (default: the system's)")
    parser.add_argument("--seconds", type=float, metavar="S", help="hang up after so long")
    options = parser.parse_args(arguments)
    try:
        app = load_app(options.app)
        return asyncio.run(
            _talk(lambda: Session(app(DeviceIn(_device(options.input)), DeviceOut(_device(options.output)))), options.seconds)
        )
    except (VoiceflowError, OSError) as error:
        print(f"voiceflow talk: {error}", file=sys.stderr)
    except ExceptionGroup as group:
        for failure in group.exceptions:
            print(f"voiceflow talk: {failure}", file=sys.stderr)
    except KeyboardInterrupt:
        return 0
    return 1


def _device(text: str | None) -> str | int | None:
    return int(text) if text is not None and text.isdigit() else text


async def _talk(make: Callable[[], Session], seconds: float | None) -> int:
    session = make()
    session.tap(_caption)
    call = asyncio.create_task(session.run())
    await asyncio.sleep(0)
    await session.started()
    if session.state == "running":
        print("Speak. Ctrl-C hangs up.", flush=True)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(asyncio.shield(call), seconds)
    session.cancel()
    await call
    return 0


def _caption(frame: Frame, source: str, target: str) -> None:
    if isinstance(frame, TranscriptFrame) and not frame.final:
        print(f"\r\x1b[K  you:   {frame.text} ...", end="", flush=True)
    elif isinstance(frame, TurnEnded):
        print(f"\r\x1b[K  you:   {frame.text}", flush=True)
    elif isinstance(frame, PlaybackStopped) and source.startswith("Device"):
        _print_heard(frame.heard)


def _print_heard(heard: Heard) -> None:
    print(f"\r\x1b[K  agent: {heard.text}{'' if heard.complete else ' ...'}", flush=True)
