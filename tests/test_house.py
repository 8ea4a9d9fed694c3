"""The rules of the house, kept over the source itself: who imports whom, what is public, how large, how named."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import os
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("voiceflow", "processors", "transports")
CORE = {"numpy", "msgspec", "soxr"}
WEB = {"aiohttp", "websockets"}
CODECS = {"av"}
"""Of these a module of each of the two folders may have one: they may not import each other."""

COMMANDS = ("voiceflow/bench/ttfa.py", "voiceflow/demo/", "voiceflow/score/", "voiceflow/serve.py", "voiceflow/talk.py")
"""Modules of the command line: the only ones of voiceflow/ that may name a processor or a transport."""

LATE = {
    ("voiceflow/frames.py", "numpy"): "a program that looks at no samples does not load numpy",
    ("voiceflow/plan.py", "voiceflow.audio"): "nor does one whose formats all meet",
    ("voiceflow/bench/command.py", "voiceflow.bench.ttfa"): "the other benches run without the web libraries",
    ("voiceflow/wiring.py", "voiceflow.convert"): "nor does one whose formats all meet",
}
"""The imports inside functions that there may be: never for a cycle, only because numpy and soxr cost more than all the rest."""

BY_NAME = {"voiceflow/cli.py", "voiceflow/apps.py"}
"""Modules that import what a table or the user names."""


def _modules() -> list[Path]:
    """Every module, by its real place."""
    return sorted(path for package in PACKAGES for path in _files(ROOT / package))


def _files(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        if path.suffix == ".py":
            yield path
        elif path.is_dir() and not path.is_symlink() and path.name != "__pycache__":
            yield from _files(path)


def _relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _name(path: Path) -> str:
    """The name under which a module is imported."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts if parts[0] == "voiceflow" else ("voiceflow", *parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports(tree: ast.AST) -> Iterator[str]:
    """The modules that import statements name; for `from a import b` both `a` and `a.b`, as `b` may be a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in _modules()}


@pytest.mark.parametrize("path", TREES, ids=_relative)
def test_a_module_imports_only_what_its_folder_may(path: Path) -> None:
    """The engine knows no node and no transport; nodes and transports know the engine and not each other."""
    forbidden = {
        "voiceflow": ["voiceflow.processors", "voiceflow.transports"],
        "processors": ["voiceflow.transports"],
        "transports": ["voiceflow.processors"],
    }[path.relative_to(ROOT).parts[0]]
    if _relative(path).startswith(COMMANDS):
        forbidden = []
    imported = list(_imports(TREES[path]))
    assert [name for name in imported for package in [*forbidden, "processors", "transports"] if _within(name, package)] == []


def test_a_third_party_library_is_imported_in_one_module_only() -> None:
    """A vendor's, model's or device's library has one module of ours around it, codecs one in each folder; of the two for the web a module uses one."""
    users: dict[str, set[str]] = defaultdict(set)
    for path, tree in TREES.items():
        for name in _imports(tree):
            top = name.partition(".")[0]
            if top not in sys.stdlib_module_names and top not in CORE | {"voiceflow"}:
                users[top].add(_relative(path))
    assert {library: modules for library, modules in users.items() if len(modules) > 1 and library not in WEB | CODECS} == {}
    assert all(len({module.partition("/")[0] for module in users[library]}) == len(users[library]) for library in CODECS)
    assert users["aiohttp"] & users["websockets"] == set()
    assert users.keys() >= {"onnxruntime", "ctranslate2", "xllamacpp", "pyaudio", "pocketsphinx", "gruut_lang_en", "pycrfsuite"}


def test_importing_voiceflow_loads_nothing_but_the_core() -> None:
    """`import voiceflow` brings the standard library, numpy, msgspec and soxr at most."""
    loaded = "import sys{}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    ours = set(_python(loaded.format(", voiceflow")).split())
    core = set(_python(loaded.format(", numpy, msgspec, soxr")).split())
    assert "voiceflow" in ours
    assert ours - core - set(sys.stdlib_module_names) - {"voiceflow"} == set()


def test_importing_voiceflow_does_not_load_numpy() -> None:
    """Whoever touches no samples does not wait for numpy."""
    assert _python("import sys, voiceflow; print('numpy' in sys.modules, 'soxr' in sys.modules)").split() == ["False", "False"]


@pytest.mark.parametrize("path", TREES, ids=_relative)
def test_nothing_is_imported_inside_a_function(path: Path) -> None:
    """Imports stand at the top; what is imported late is named above with its reason, and nothing is imported late by name."""
    late = set()
    for function in ast.walk(TREES[path]):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.Import | ast.ImportFrom):
                late.add(node.module or "" if isinstance(node, ast.ImportFrom) else node.names[0].name)
            elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
                late.add("by name")
    allowed = {module for place, module in LATE if place == _relative(path)} | ({"by name"} if _relative(path) in BY_NAME else set())
    assert late == allowed


@pytest.mark.parametrize("path", TREES, ids=_relative)
def test_all_lists_what_is_public(path: Path) -> None:
    """Each public class and function is in `__all__`, and each name in it exists."""
    tree = TREES[path]
    listed = _listed(tree)
    assert listed is not None, "the module has no __all__"
    defined = {
        node.name
        for node in tree.body
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_")
    }
    assert defined - set(listed) == set(), "public, but not in __all__: list it, or begin its name with _"
    assert len(listed) == len(set(listed))
    try:
        module = importlib.import_module(_name(path))
    except ModuleNotFoundError as error:
        pytest.skip(f"pip install -e '.[dev,device]': {error.name} is not here")
    assert [name for name in listed if not hasattr(module, name)] == []


def _listed(tree: ast.Module) -> list[str] | None:
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if [target.id for target in targets if isinstance(target, ast.Name)] == ["__all__"]:
                return list(ast.literal_eval(node.value))
    return None


def test_star_import_gives_the_public_names() -> None:
    """`from voiceflow import *` gives what `__all__` lists, and that is the vocabulary: frames, Processor, Pipeline, Session."""
    names: dict[str, object] = {}
    exec("from voiceflow import *", names)
    assert {"AudioFrame", "InterruptFrame", "Processor", "Pipeline", "Session", "processor", "replace"} <= names.keys()


@pytest.mark.parametrize("path", TREES, ids=_relative)
def test_a_module_says_what_it_owns_and_stays_small(path: Path) -> None:
    """A docstring first; at most 450 lines."""
    assert ast.get_docstring(TREES[path])
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 450


@pytest.mark.parametrize("path", TREES, ids=_relative)
def test_names_say_what_a_thing_is(path: Path) -> None:
    """No Base-, -Manager, -Helper, -Utils, -Mixin, for modules, classes or functions."""
    names = [path.stem, path.parent.name]
    names += [n.name for n in ast.walk(TREES[path]) if isinstance(n, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)]
    vague = re.compile(r"^_?base(?=[A-Z_]|$)|^_?Base(?=[A-Z]|$)|(manager|helpers?|utils?|mixin)$", re.IGNORECASE)
    assert [name for name in names if vague.search(name) and not re.match(r"^_?base[a-z]", name, re.IGNORECASE)] == []


@pytest.mark.parametrize("path", TREES, ids=_relative)
def test_no_wall_clock(path: Path) -> None:
    """Time comes from the loop, or from a monotonic clock where there is none: never `time.time()` or `datetime.now()`."""
    tree = TREES[path]
    calls = [ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)]
    assert [call for call in calls if call in ("time.time", "datetime.now", "datetime.datetime.now")] == []
    assert "time.time" not in set(_imports(tree))


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=_relative)
def test_an_example_fits_on_a_page(path: Path) -> None:
    """Under 80 lines."""
    assert len(path.read_text(encoding="utf-8").splitlines()) < 80


@pytest.mark.parametrize("folder", ["processors", "transports"])
def test_the_folders_are_reached_through_relative_links(folder: str) -> None:
    """The code stands at the top level and is imported from the package."""
    link = ROOT / "voiceflow" / folder
    assert link.is_symlink()
    assert link.readlink() == Path("..") / folder
    assert (ROOT / folder).is_dir()
    assert not (ROOT / folder).is_symlink()


def test_nothing_drags_in_torch() -> None:
    """No declared dependency, and nothing that the core or the extra `local` brings along here, is torch."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = [*project["dependencies"], *(line for extra in project["optional-dependencies"].values() for line in extra)]
    assert [line for line in declared if _distribution(line).startswith("torch")] == []
    pending = [_distribution(line) for line in [*project["dependencies"], *project["optional-dependencies"]["local"]]]
    seen: set[str] = set()
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        try:
            needs = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue  # not on this machine, or for another platform
        pending += [_distribution(line) for line in needs if "extra ==" not in line]
    assert {"numpy", "msgspec", "soxr"} <= seen
    assert [name for name in seen if name.startswith("torch")] == []


def _distribution(requirement: str) -> str:
    match = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert match
    return re.sub(r"[-_.]+", "-", match[0]).lower()


def test_skipping_can_be_made_a_failure(tmp_path: Path) -> None:
    """With VOICEFLOW_NO_SKIPS=1 a skipped test and a skipped module fail with their reasons; an expected failure does not."""
    (tmp_path / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "test_one.py").write_text(
        "import pytest\n"
        "def test_skip(): pytest.skip('a sound server')\n"
        "@pytest.mark.xfail(reason='known', strict=True)\n"
        "def test_known(): assert False\n",
        encoding="utf-8",
    )
    (tmp_path / "test_two.py").write_text("import pytest\npytest.importorskip('no_such_module')\n", encoding="utf-8")
    outcomes = []
    for strict in ("0", "1"):
        environment = _environment() | {"VOICEFLOW_NO_SKIPS": strict}
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        outcomes.append((done.returncode, done.stdout))
    (lenient, said), (strict_code, strictly_said) = outcomes
    assert (lenient, strict_code) == (0, 2), said + strictly_said
    assert "1 skipped" not in strictly_said
    assert "no_such_module" in strictly_said
    # A module that cannot be collected stops the run before its tests; without it the skipped test itself is seen to fail.
    (tmp_path / "test_two.py").unlink()
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "a sound server" in done.stdout
    assert "1 failed, 1 xfailed" in done.stdout


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def _python(code: str) -> str:
    """What a fresh interpreter prints, which finds this voiceflow."""
    return subprocess.run([sys.executable, "-P", "-c", code], env=_environment(), check=True, capture_output=True, text=True).stdout
