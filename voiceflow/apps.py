"""An application, as the command line takes it: a function that builds the pipeline of one call.

``def agent(source: Processor, sink: Processor) -> Pipeline`` is given the caller's end and the loudspeaker's end, and
is called anew for each call. On the command line it is ``FILE.py``, ``FILE.py:function`` or ``package.module:function``;
the function is ``agent`` unless named.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from voiceflow.errors import VoiceflowError
from voiceflow.pipeline import Pipeline
from voiceflow.processor import Processor

__all__ = ["App", "AppError", "load_app"]

App = Callable[[Processor, Processor], Pipeline]


class AppError(VoiceflowError):
    """The application cannot be loaded."""


def load_app(reference: str) -> App:
    """The function that a reference names. Raises AppError saying what is missing where."""
    place, colon, name = reference.rpartition(":")
    if not colon or (len(place) == 1 and Path(reference).suffix == ".py"):  # no function named, or a Windows drive letter
        place, name = reference, "agent"
    module = _load_file(Path(place)) if place.endswith(".py") else _load_module(place)
    function = getattr(module, name, None)
    if function is None:
        functions = sorted(key for key, value in vars(module).items() if inspect.isfunction(value) and value.__module__ == module.__name__)
        raise AppError(f"{place} has no {name!r}; it defines {', '.join(functions) or 'no function'}: write {place}:FUNCTION")
    if not callable(function):
        raise AppError(f"{place}:{name} is a {type(function).__name__}, not a function of (source, sink) that returns a pipeline")
    return function  # type: ignore[no-any-return]  # what it returns is checked where it is called


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise AppError(f"there is no file {path}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise AppError(f"{path} cannot be read as Python")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # annotations are looked up there
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise AppError(f"{path} raised {type(error).__name__} while it was loaded: {error}") from error
    return module


def _load_module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise AppError(f"there is no module {name!r} (missing: {error.name}); give FILE.py or package.module:function") from error
