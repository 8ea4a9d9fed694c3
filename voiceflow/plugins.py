"""Processors by name: whatever is installed under the entry-point group ``voiceflow.processors``.

Owns that door, and ``voiceflow plugins``. One rule: voiceflow's own nodes come through it like everybody else's.

A package adds its own with two lines in its ``pyproject.toml``::

    [project.entry-points."voiceflow.processors"]
    acme-stt = "acme.speech:AcmeSTT"

Nothing is imported until a plugin is loaded: the list costs no model and no device.
"""

from __future__ import annotations

import argparse
import difflib
import inspect
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import EntryPoint, entry_points

from voiceflow.errors import VoiceflowError, type_names
from voiceflow.processor import Processor

__all__ = ["GROUP", "Plugin", "PluginError", "load", "main", "plugins"]

GROUP = "voiceflow.processors"


class PluginError(VoiceflowError):
    """A processor cannot be had by that name."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """A name, where its class is (``package.module:Class``), and which installed package says so."""

    name: str
    target: str
    package: str
    version: str

    def load(self) -> type[Processor]:
        """Import it. Raises PluginError saying what is missing or wrong, and in whose package."""
        who = f"the processor {self.name!r} of {self.package} {self.version} ({self.target})"
        try:
            loaded = EntryPoint(self.name, self.target, GROUP).load()
        except ModuleNotFoundError as error:
            cure = f"install it, or the extra of {self.package} that brings it"
            raise PluginError(f"{who} needs the module {error.name!r}, which is not installed: {cure}") from error
        except AttributeError as error:
            raise PluginError(f"{who} is not there: {error}; its entry point is out of date") from error
        except Exception as error:
            raise PluginError(f"{who} raised {type(error).__name__} while it was imported: {error}") from error
        if not isinstance(loaded, type) or not issubclass(loaded, Processor):
            raise PluginError(f"{who} is {loaded!r}, not a subclass of voiceflow.Processor")
        return loaded


def plugins() -> list[Plugin]:
    """Every installed processor, by name. Two packages may claim one name; both are listed."""
    found = {
        Plugin(entry.name, entry.value, entry.dist.name if entry.dist else "?", entry.dist.version if entry.dist else "?")
        for entry in entry_points(group=GROUP)
    }
    return sorted(found, key=lambda plugin: (plugin.name, plugin.package))


def load(name: str) -> type[Processor]:
    """The processor class of that name. Raises PluginError: no such name, two of it, or it cannot be imported."""
    return _find(name).load()


def _find(name: str) -> Plugin:
    known = plugins()
    found = [plugin for plugin in known if plugin.name == name]
    if not known:
        raise PluginError(
            f"there is no processor {name!r}: nothing is installed under {GROUP!r}; run pip install -e . in voiceflow's folder"
        )
    if not found:
        near = difflib.get_close_matches(name, [plugin.name for plugin in known], n=1)
        guess = f"; did you mean {near[0]!r}?" if near else ""
        raise PluginError(f"there is no processor {name!r}{guess} Installed: {', '.join(plugin.name for plugin in known)}")
    if len(found) > 1:
        claims = " and ".join(f"{plugin.package} ({plugin.target})" for plugin in found)
        raise PluginError(f"two packages call a processor {name!r}: {claims}; uninstall one, or import the class itself")
    return found[0]


# ------------------------------------------------------------------------------------------------ the command


def main(arguments: Sequence[str]) -> int:
    """List the processors, or describe those named. 0, or 1 after saying what is wrong with one of them."""
    parser = argparse.ArgumentParser(prog="voiceflow plugins", description="The processors that are installed.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="import these and say what they take and yield")
    parser.add_argument("--json", action="store_true", help="for programs")
    options = parser.parse_args(arguments)
    try:
        chosen = [_find(name) for name in options.names] or plugins()
        details = [_contract(plugin) if options.names else {} for plugin in chosen]
    except PluginError as error:
        sys.stderr.write(f"voiceflow plugins: {error}\n")
        return 1
    if options.json:
        sys.stdout.write(json.dumps([asdict(plugin) | detail for plugin, detail in zip(chosen, details, strict=True)], indent=2) + "\n")
    else:
        for plugin, detail in zip(chosen, details, strict=True):
            sys.stdout.write(f"{plugin.name:<16} {plugin.target:<46} {plugin.package} {plugin.version}\n")
            sys.stdout.write("".join(f"    {key}: {value}\n" for key, value in detail.items()))
    if not chosen:
        sys.stderr.write(f"nothing is installed under {GROUP!r}; run pip install -e . in voiceflow's folder\n")
    return 0


def _contract(plugin: Plugin) -> dict[str, str]:
    node = plugin.load()
    about = (inspect.getdoc(node) or "").partition("\n")[0]
    return {
        "about": about,
        "takes": type_names(node.contract.accepts),
        "yields": type_names(node.contract.yields),
        "arguments": str(inspect.signature(node)),
    }
