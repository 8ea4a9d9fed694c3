"""``voiceflow serve APP``: a web page on which anybody who is let in can speak with an agent, one call a visitor.

Its one rule: nobody is hung up on by a shutdown that could wait. The first signal stops new calls and lets those under way
go on, or say what they are saying; the second ends them.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import math
import os
import signal
import socket
import ssl
import sys
import webbrowser
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from aiohttp import web

from voiceflow.apps import App, load_app
from voiceflow.copies import READY, Copies
from voiceflow.errors import VoiceflowError
from voiceflow.frames import AudioFormat
from voiceflow.plugins import load_door
from voiceflow.session import Session
from voiceflow.tasks import unless
from voiceflow.transports.calls import Calls
from voiceflow.transports.memory import MemoryIn, MemoryOut
from voiceflow.transports.web.offer import offer_routes
from voiceflow.transports.web.server import ServerOptions, WebServer
from voiceflow.transports.web.socket import call_handler
from voiceflow.transports.web.view import show
from voiceflow.transports.wire_frames import FramesWire

__all__ = ["ServeError", "main"]

TOKEN_VARIABLE = "VOICEFLOW_TOKEN"

WORKER = "import sys; from voiceflow.serve import main; sys.exit(main(sys.argv[1:]))"

SAY_S = 10.0
"""How long a call that is ended may take to say what it is saying."""


class ServeError(VoiceflowError):
    """The server cannot be started as asked."""


def main(arguments: Sequence[str]) -> int:
    """Serve until Ctrl-C or SIGTERM, also one that comes while the models load. 0, or 1 if the agent cannot be started or the port cannot be had."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(format="%(asctime)s %(message)s")
    logging.getLogger("voiceflow").setLevel(logging.INFO)  # a line for each call
    try:
        # Before anything that may load models: a wrong certificate and a port that is taken are to be told of at once.
        server_options = ServerOptions(options.host, options.port, options.token, shared=options.worker, tls=_tls(options))
        if not options.worker:
            _bound(options, socket.SO_REUSEADDR).close()
        app = load_app(options.app)
        if options.workers > 1:
            return asyncio.run(_serve_with_workers(server_options, options, list(arguments)))
        return asyncio.run(_serve(app, server_options, options))
    except KeyboardInterrupt:  # while the application was loaded: later it is a signal like any other
        return 0
    except (VoiceflowError, OSError) as error:
        _complain(f"voiceflow serve: {error}")
    except ExceptionGroup as group:
        for failure in group.exceptions:
            _complain(f"voiceflow serve: {failure}")
    return 1


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _complain(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="voiceflow serve",
        description="Serve a web page on which one can speak with an agent.",
        epilog=f"The token is better given in the environment, as {TOKEN_VARIABLE}: a command line can be seen by every user of the machine.",
    )
    add = parser.add_argument
    add("app", metavar="APP", help="FILE.py[:function] or package.module:function")
    add("--host", default="127.0.0.1", help="address to listen on; 0.0.0.0 for all (default: %(default)s, this machine only)")
    add("--port", type=_number(0, 65535), default=8080, help="0 for any that is free (default: %(default)s)")
    add("--token", default=os.environ.get(TOKEN_VARIABLE, ""), help="callers must show it: the page's address then ends in #token=TOKEN")
    add("--max-calls", type=_number(1, 100000), default=16, metavar="N", help="at a time, of each worker (default: %(default)s)")
    add("--workers", type=_number(1, 256), default=1, metavar="N", help="processes that share the port (default: %(default)s)")
    add("--drain", type=_seconds, default=60.0, metavar="S", help="how long calls may go on after SIGTERM (default: %(default)s)")
    add("--webrtc", action="store_true", help="take calls over WebRTC too")
    add("--open", action="store_true", help="open the page in a browser")
    add("--no-warm", action="store_true", help="load the models with the first call, not before")
    add("--tls-certificate", type=Path, metavar="FILE", help="serve HTTPS: browsers give other machines no microphone without it")
    add("--tls-key", type=Path, metavar="FILE", help="the certificate's key, if it is in a file of its own")
    add("--worker", action="store_true", help=argparse.SUPPRESS)
    return parser


def _number(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        number = int(text) if text.isascii() and text.isdigit() else -1
        if not least <= number <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least} to {most}")
        return number

    return read


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds, 0 or more")
    return seconds


def _tls(options: argparse.Namespace) -> ssl.SSLContext | None:
    if options.tls_certificate is None:
        if options.tls_key is not None:
            raise ServeError("--tls-key has no meaning without --tls-certificate")
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(options.tls_certificate, options.tls_key)
    except OSError as error:  # ssl.SSLError is one
        raise ServeError(f"the certificate {options.tls_certificate} cannot be used: {error}") from error
    return context


async def _warm(app: App) -> None:
    """Start one call with nobody in it, and end it: the models it loads stay in the process."""
    async with Session(app(MemoryIn(AudioFormat(16000)), MemoryOut(AudioFormat(24000)))) as session:
        session.cancel()


class _Signals:
    """SIGINT and SIGTERM, counted: ``first`` and ``second`` are done once they came."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.first: asyncio.Future[None] = loop.create_future()
        self.second: asyncio.Future[None] = loop.create_future()
        self.urgent = False
        """The first was Ctrl-C: somebody is waiting."""
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.came, number)

    def came(self, number: signal.Signals) -> None:
        """One of them came."""
        if not self.first.done():
            self.urgent = number == signal.SIGINT
            self.first.set_result(None)
        elif not self.second.done():
            self.second.set_result(None)

    def watch_stdin(self) -> None:
        """In a worker: the end of standard input counts as SIGTERM, since its keeper is gone."""

        def ended() -> None:
            if not os.read(sys.stdin.fileno(), 1024):
                loop.remove_reader(sys.stdin.fileno())
                self.came(signal.SIGTERM)

        loop = asyncio.get_running_loop()
        loop.add_reader(sys.stdin.fileno(), ended)


async def _serve(app: App, server_options: ServerOptions, options: argparse.Namespace) -> int:
    """Serve in this process, until a signal or, in a worker, the end of standard input."""
    webrtc_class = load_door("webrtc") if options.webrtc else None
    signals = _Signals()
    if options.worker:
        signals.watch_stdin()
    if not options.no_warm:
        await unless(signals.first, _warm(app), "warming up")
        if signals.first.done():
            return 0
    calls = Calls(app, limit=options.max_calls, watch=show)
    webrtc = webrtc_class(calls, words=FramesWire) if webrtc_class is not None else None
    doors = [web.get("/call", call_handler(calls)), *(offer_routes("/offer", webrtc) if webrtc is not None else [])]
    server = WebServer(
        server_options,
        about=lambda: {"app": _name(options.app), "webrtc": options.webrtc},
        health=lambda: _health(calls, signals),
        doors=doors,
    )
    with _listening_on(options):
        await server.start()
    try:
        if options.worker:
            sys.stdout.buffer.write(READY)
            sys.stdout.flush()
        else:
            _announce(options, server.options.address)
        await signals.first
        await server.shut_doors()
        await _drain(calls, signals, options)
    finally:
        calls.cancel()
        await calls.drain(0)
        if webrtc is not None:
            await webrtc.close()
        await server.close()
    return 0


async def _drain(calls: Calls, signals: _Signals, options: argparse.Namespace) -> None:
    """Let the calls end by themselves, or finish what they are saying; a second signal ends the wait."""
    if calls.running and not options.worker:
        _complain(f"{calls.running} calls are under way; once more ends them at once")
    await unless(signals.second, calls.drain(0.0 if signals.urgent else options.drain, say_s=SAY_S), "drain")


def _health(calls: Calls, signals: _Signals) -> dict[str, Any]:
    ready, full = not signals.first.done(), bool(calls.refusal())
    return {"ready": ready, "full": full, "calls": calls.running, "limit": calls.limit, "answered": calls.answered}


def _name(reference: str) -> str:
    """Of an application, for the page: ``examples/local_agent.py`` is ``local_agent``."""
    place, _, function = reference.rpartition(":")
    name = Path(place or function).name.removesuffix(".py")
    return f"{name}:{function}" if place and function != "agent" else name


def _announce(options: argparse.Namespace, address: str) -> None:
    _say(f"{address}  {_name(options.app)}")
    if options.token:
        _say("Put #token= and the token behind the address.")
    if options.open:
        page = f"{address}#{urlencode({'token': options.token})}" if options.token else address
        webbrowser.open(page)


# ------------------------------------------------------------------------------------------------- several processes


async def _serve_with_workers(server_options: ServerOptions, options: argparse.Namespace, arguments: list[str]) -> int:
    """Keep the workers; each is this command again, on the same port."""
    with _reserved(options) as port:
        again = [*arguments, "--worker", "--workers", "1", "--port", str(port)]
        copies = Copies([sys.executable, "-c", WORKER, *again], options.workers, options.drain + 2 * SAY_S)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, copies.stop, number)
        await copies.run(lambda: _announce(options, replace(server_options, port=port).address))
    return 0


@contextmanager
def _reserved(options: argparse.Namespace) -> Iterator[int]:
    """Hold the port, without listening on it, so that it stays ours while workers come and go."""
    if not hasattr(socket, "SO_REUSEPORT"):
        raise ServeError("--workers needs SO_REUSEPORT, which this system does not have; start several servers on ports of their own")
    with _bound(options, socket.SO_REUSEPORT) as held:
        yield held.getsockname()[1]


def _bound(options: argparse.Namespace, reuse: int) -> socket.socket:
    """A socket on the port, which does not listen."""
    with _listening_on(options):
        found = socket.getaddrinfo(options.host or None, options.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        bound = socket.socket(family, kind, protocol)
        try:
            bound.setsockopt(socket.SOL_SOCKET, reuse, 1)
            bound.bind(address)
        except BaseException:
            bound.close()
            raise
        return bound


@contextmanager
def _listening_on(options: argparse.Namespace) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ServeError(f"cannot listen on {options.host or 'all addresses'}, port {options.port}: {error.strerror or error}") from error
