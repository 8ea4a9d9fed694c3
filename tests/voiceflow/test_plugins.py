"""Processors by name, found by entry points of packages that are really on the path."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from voiceflow.plugins import GROUP, Plugin, PluginError, load, plugins
from voiceflow.processor import Processor

ROOT = Path(__file__).resolve().parents[2]

NODE = '''
from voiceflow import Processor, SentenceFrame

class Shout(Processor):
    """Upper case.

    More.
    """

    def __init__(self, marks: int = 1) -> None: ...

    def process(self, frame: SentenceFrame) -> SentenceFrame:
        return frame

number = 3
'''

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Put a package on the path as pip would: its code, and the metadata beside it."""

    def add(package: str, entries: dict[str, str], code: str = NODE, requires: Sequence[str] = ()) -> None:
        folder = tmp_path / package
        metadata = folder / f"{package}-1.2.dist-info"
        metadata.mkdir(parents=True)
        (folder / f"{package}.py").write_text(code, encoding="utf-8")
        needs = "".join(f"Requires-Dist: {requirement}\n" for requirement in requires)
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n{needs}", encoding="utf-8")
        lines = "".join(f"{name} = {target}\n" for name, target in entries.items())
        (metadata / "entry_points.txt").write_text(f"[{GROUP}]\n{lines}", encoding="utf-8")
        monkeypatch.syspath_prepend(folder)

    return add


def _named(name: str) -> list[Plugin]:
    return [plugin for plugin in plugins() if plugin.name == name]


def test_a_package_brings_a_processor(install: Install) -> None:
    """What a package names in the group is listed without being imported, and loads as a class."""
    install("acme_speech", {"acme-shout": "acme_speech:Shout"})
    assert _named("acme-shout") == [Plugin("acme-shout", "acme_speech:Shout", "acme_speech", "1.2")]
    node = load("acme-shout")
    assert issubclass(node, Processor)
    assert node.__name__ == "Shout"


def test_listing_imports_nothing(install: Install) -> None:
    """A plugin that cannot be imported is listed like any other."""
    install("acme_broken", {"acme-broken": "acme_broken:Shout"}, "raise RuntimeError('no licence key')")
    assert len(_named("acme-broken")) == 1
    with pytest.raises(PluginError, match=r"'acme-broken' of acme_broken 1.2 .* raised RuntimeError .* no licence key"):
        load("acme-broken")


def test_an_unknown_name_gets_the_nearest_one(install: Install) -> None:
    """The error says which names there are."""
    install("acme_near", {"acme-near": "acme_near:Shout"})
    with pytest.raises(PluginError, match=r"no processor 'acme-naer'; did you mean 'acme-near'\?"):
        load("acme-naer")


def test_two_packages_with_one_name_are_not_chosen_between(install: Install) -> None:
    """Both are named."""
    install("acme_first", {"acme-twice": "acme_first:Shout"})
    install("acme_second", {"acme-twice": "acme_second:Shout"})
    assert [plugin.package for plugin in _named("acme-twice")] == ["acme_first", "acme_second"]
    with pytest.raises(PluginError, match=r"acme_first \(acme_first:Shout\) and acme_second"):
        load("acme-twice")


@pytest.mark.parametrize(
    ("target", "code", "expected"),
    [
        ("acme_stale:Gone", NODE, "out of date"),
        ("acme_number:number", NODE, "3, not a subclass"),
        ("acme_needy:Shout", "import no_such_vendor", "needs the module 'no_such_vendor'"),
    ],
)
def test_what_does_not_load_says_why(install: Install, target: str, code: str, expected: str) -> None:
    """A stale entry point, something that is no processor, a missing library: each is told apart."""
    install(target.partition(":")[0], {"acme-bad": target}, code)
    with pytest.raises(PluginError, match=expected):
        load("acme-bad")


def test_voiceflows_own_nodes_come_through_the_same_door() -> None:
    """Each entry point that this project declares leads to a processor, and there is one for each part of an agent."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"][GROUP]
    assert {"silero-vad", "whisper", "turns", "context", "sentences", "llama", "piper", "wav-in", "wav-out"} <= declared.keys()
    for name, target in declared.items():
        plugin = Plugin(name, target, "voiceflow-framegraph", "here")
        try:
            node = plugin.load()
        except PluginError as error:
            if "is not installed" not in str(error):
                raise
            pytest.skip(f"pip install -e '.[dev,device]': {error}")
        assert node.__module__ == target.partition(":")[0]
