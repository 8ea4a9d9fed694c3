"""``voiceflow models list | get NAME... | path NAME``.

Owns that command's words. One rule: results go to standard output, everything else to standard error.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from textwrap import fill

from voiceflow.errors import ModelError
from voiceflow.models.download import megabytes
from voiceflow.models.manifest import DEFAULT
from voiceflow.models.store import ModelInfo, ModelStore

__all__ = ["main"]


def main(arguments: Sequence[str], *, store: ModelStore | None = None) -> int:
    """Run the command; return 0, 1 after saying what failed, or 130 after Ctrl-C. Wrong usage leaves by argparse's SystemExit(2)."""
    options = _parser().parse_args(arguments)
    store = ModelStore() if store is None else store
    try:
        if options.verb == "list":
            infos = store.listing()
            _write(_as_json(infos) if options.json else "\n".join(map(_describe, infos)))
        elif options.verb == "path":
            _write(str(store.path(options.name)))
        else:
            names = options.names or [name for name in DEFAULT if name in store.manifest]
            store.fetch(names)
            for name in names:
                _write(f"{name}: {store.get(name)}")
    except ModelError as error:
        sys.stderr.write(f"voiceflow models: {error}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("voiceflow models: interrupted; the same command again goes on from here\n")
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="voiceflow models", description="The model files an agent runs on, kept on this machine.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    listing = verbs.add_parser("list", help="every model: kind, licence, size, where it is, where it comes from")
    listing.add_argument("--json", action="store_true", help="for programs")
    getting = verbs.add_parser("get", help="fetch models and check their hashes; a file that is not right is fetched again")
    getting.add_argument("names", nargs="*", metavar="NAME", help=f"which (default: {' '.join(DEFAULT)})")
    finding = verbs.add_parser("path", help="print what an engine opens, fetching the model if it is missing")
    finding.add_argument("name", metavar="NAME")
    return parser


def _describe(info: ModelInfo) -> str:
    state = f"here: {info.path}" if info.present else f"not here, {megabytes(info.download_size)} to download"
    notes = fill(f"{info.lineage} From {info.origin}.", width=100, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False)
    head = f"{info.name:<16} {info.kind:<5} {megabytes(info.size):>9}  {info.licence}{'  (default set)' if info.default else ''}"
    return f"{head}\n    {state}\n{notes}"


def _as_json(infos: Sequence[ModelInfo]) -> str:
    return json.dumps([asdict(info) for info in infos], indent=2, default=str)


def _write(text: str) -> None:
    sys.stdout.write(text + "\n")
