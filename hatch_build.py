"""Puts the top-level folders ``processors/`` and ``transports/`` into the wheel as ``voiceflow/processors`` and ``voiceflow/transports``.

In the source they are reached through symlinks. A static ``force-include`` would do the same, but would also leave unused copies in
site-packages when the project is installed with ``pip install -e``; so it is done here, for real wheels only.
"""

from __future__ import annotations

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

__all__ = ["FoldersIntoPackage"]

FOLDERS = ("processors", "transports")


class FoldersIntoPackage(BuildHookInterface):  # type: ignore[type-arg]  # hatchling's own parameter, of no use here
    """The hook that hatchling looks for in this file."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """``version`` is "standard" for a wheel, "editable" for ``pip install -e``."""
        if version == "standard":
            build_data["force_include"].update({folder: f"voiceflow/{folder}" for folder in FOLDERS})
