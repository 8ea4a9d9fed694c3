"""The command ``voiceflow``.

Owns the table of subcommands, and nothing of what they do. One rule: a subcommand's module is imported when it is called, so
that ``voiceflow --version`` loads no model, no device and no web server.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import shorten

import voiceflow
from voiceflow.errors import VoiceflowError

__all__ = ["COMMANDS", "Command", "main"]


@dataclass(frozen=True, slots=True)
class Command:
    """A subcommand: the module whose ``main(arguments) -> int`` it is, what it does, and the extra that brings what it needs."""

    module: str
    summary: str
    extra: str | None = None


COMMANDS = {
    "demo": Command("voiceflow.demo", "hold a spoken conversation on this machine's own models, and measure it", "local"),
    "talk": Command("voiceflow.talk", "speak with an agent through the microphone and the loudspeaker", "device"),
    "serve": Command("voiceflow.serve", "answer callers in the browser, from programs and over WebRTC", "web"),
    "score": Command("voiceflow.score.command", "hold scripted calls with an agent, and measure how it takes turns", "local"),
    "models": Command("voiceflow.models.command", "list and fetch the model files that agents run on"),
    "graph": Command("voiceflow.graph", "draw an application's pipeline, as text, Mermaid or DOT"),
    "inspect": Command("voiceflow.inspection", "say what each installed processor takes, yields, needs and can be told"),
    "bench": Command("voiceflow.bench", "measure the engine on this machine"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code. Wrong usage leaves by argparse's SystemExit(2).

    A subcommand that needs a package which is not installed says so and gives 2; one that is interrupted by Ctrl-C gives 130.
    """
    options = _parser().parse_args(arguments)
    command = COMMANDS[options.command]
    try:
        module = importlib.import_module(command.module)
    except ModuleNotFoundError as error:
        sys.stderr.write(f"voiceflow {options.command}: {_missing(command, error)}\n")
        return 2
    try:
        code: int = module.main(options.arguments)
    except VoiceflowError as error:
        sys.stderr.write(f"voiceflow {options.command}: {error}\n")
        return 1
    except ModuleNotFoundError as error:
        sys.stderr.write(f"voiceflow {options.command}: {_missing(command, error)}\n")
        return 2
    except KeyboardInterrupt:
        return 130
    return code


def _missing(command: Command, error: ModuleNotFoundError) -> str:
    """What to install. Raises the error again if it is a module of voiceflow's own: that is a bug, not a missing package."""
    name = error.name or str(error)
    if name.partition(".")[0] == "voiceflow":
        raise error
    if command.extra is None:
        return f"the package {name!r} is not installed, and voiceflow needs it: install voiceflow again"
    return f"the package {name!r} is not installed: it comes with the extra {command.extra!r}, pip install -e '.[{command.extra}]' in the project's folder"


def _parser() -> argparse.ArgumentParser:
    lines = "\n".join(f"  {name:<9}{shorten(command.summary, 100)}" for name, command in COMMANDS.items())
    parser = argparse.ArgumentParser(
        prog="voiceflow",
        description="Real-time voice agents as a graph of processors.",
        epilog=f"commands:\n{lines}\n\n`voiceflow COMMAND --help` says more.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"voiceflow {voiceflow.__version__}")
    parser.add_argument("command", choices=COMMANDS, metavar="COMMAND")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help=argparse.SUPPRESS)
    return parser
