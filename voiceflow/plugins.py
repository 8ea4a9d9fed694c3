"""Processors by name: whatever is installed under the entry-point group ``voiceflow.processors``.

Owns that door. One rule: voiceflow's own nodes come through it like everybody else's.

A package adds its own with two lines in its ``pyproject.toml``::

    [project.entry-points."voiceflow.processors"]
    acme-stt = "acme.speech:AcmeSTT"

and ``"acme.speech:AcmeSTT [grpc]"`` if its library comes with an extra of the package. A node that talks to a service names the
environment variable of its key in a class attribute, ``key_variable``. ``voiceflow inspect`` shows all of that.
Nothing is imported until a plugin is loaded: the list costs no model and no device.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from voiceflow.errors import VoiceflowError
from voiceflow.processor import Processor

__all__ = ["DOORS", "GROUP", "Plugin", "PluginError", "find", "load", "load_door", "plugins"]

GROUP = "voiceflow.processors"
DOORS = "voiceflow.doors"
"""Ways by which calls come in that need a package of their own. For each, a class that ``voiceflow serve`` knows how to use."""


class PluginError(VoiceflowError):
    """A processor cannot be had by that name."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """A name, where its class is (``package.module:Class``), and which installed package says so."""

    name: str
    target: str
    package: str
    version: str

    @property
    def extras(self) -> tuple[str, ...]:
        """Extras of its package that bring what it stands on."""
        return tuple(EntryPoint(self.name, self.target, GROUP).extras)

    def load(self) -> type[Processor]:
        """Import it. Raises PluginError saying what is missing or wrong, and in whose package."""
        who = f"the processor {self.name!r} of {self.package} {self.version} ({self.target})"
        loaded = _imported(EntryPoint(self.name, self.target, GROUP), who, self.package)
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
    return find(name).load()


def find(name: str) -> Plugin:
    """Where the processor of that name is. Raises PluginError: no such name, or two of it."""
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


def load_door(name: str) -> Any:
    """What is installed under ``voiceflow.doors`` by that name: a class that brings calls in, such as ``webrtc``.

    Raises PluginError: no such name, or it cannot be imported.
    """
    entry = next(iter(entry_points(group=DOORS, name=name)), None)
    if entry is None:
        raise PluginError(f"there is no way in called {name!r}: nothing is installed under {DOORS!r} by that name")
    package = entry.dist.name if entry.dist else "?"
    return _imported(entry, f"the way in {name!r} of {package} ({entry.value})", package)


def _imported(entry: EntryPoint, who: str, package: str) -> Any:
    """What an entry point names. Raises PluginError saying what is missing or wrong, and what brings it."""
    try:
        return entry.load()
    except ModuleNotFoundError as error:
        cure = (
            f"pip install '{package}[{','.join(entry.extras)}]'"
            if entry.extras
            else f"install it, or the extra of {package} that brings it"
        )
        raise PluginError(f"{who} needs the module {error.name!r}, which is not installed: {cure}") from error
    except AttributeError as error:
        raise PluginError(f"{who} is not there: {error}; its entry point is out of date") from error
    except Exception as error:
        raise PluginError(f"{who} raised {type(error).__name__} while it was imported: {error}") from error
