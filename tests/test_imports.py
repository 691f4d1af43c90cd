"""Every module of the package can be the first that is imported.

An import can fail because of the order of imports only if it asks something of a module that is itself being imported.
So the imports are followed in the source, from each of 400 modules as the first, and none may do that. To import each
of them in an interpreter of its own takes two minutes; made-up packages show that the interpreter finds no more.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

import coterie

_IMPORT_EACH_FIRST = """
import importlib, sys
for name in sys.argv[2:]:
    for known in [one for one in sys.modules if one.partition(".")[0] == sys.argv[1]]:
        del sys.modules[known]
    try:
        importlib.import_module(name)
    except ImportError as error:
        print(f"{name}: {error}")
"""


class Import(NamedTuple):
    module: str
    names: Sequence[str]
    """Empty for `import module`."""


def imports_of(body: Sequence[ast.stmt]) -> Iterator[Import]:
    """Return what is imported when a module is, in order; not what its functions import, nor types alone."""
    for statement in body:
        if isinstance(statement, ast.Import):
            yield from (Import(alias.name, ()) for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom):
            assert statement.level == 0 and statement.module, "imports are absolute"
            yield Import(statement.module, [alias.name for alias in statement.names])
        elif isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.unparse(statement.test):
            yield from imports_of(statement.orelse)
        elif not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            for part in ("body", "handlers", "orelse", "finalbody"):
                yield from imports_of(getattr(statement, part, []))


def read_package(home: Path) -> dict[str, list[Import]]:
    """Return the imports of each module of a package. `__main__` is run, not imported."""
    found = {}
    for path in sorted(home.rglob("*.py")):
        parts = [home.name, *path.relative_to(home).with_suffix("").parts]
        if parts[-1] != "__main__":
            name = ".".join(parts).removesuffix(".__init__")
            found[name] = list(imports_of(ast.parse(path.read_text()).body))
    return {name: [one for one in some if one.module.split(".")[0] == home.name] for name, some in found.items()}


def half_imported(package: Mapping[str, list[Import]], first: str) -> list[str]:
    """Return what is asked of a module that is being imported, if `first` is the first to be imported."""
    found: list[str] = []
    is_done: dict[str, bool] = {}

    def load(name: str) -> None:
        parents = [name[:at] for at, letter in enumerate(name) if letter == "."]
        for one in (*parents, name):
            if one not in is_done:
                is_done[one] = False
                run(one)
                is_done[one] = True

    def run(name: str) -> None:
        for module, names in package[name]:
            load(module)
            if not names and not is_done[module]:
                found.append(f"{name} asks for {module}")
            for each in names:
                if f"{module}.{each}" in package:
                    load(f"{module}.{each}")
                asked = f"{module}.{each}" if f"{module}.{each}" in package else module
                if not is_done[asked]:
                    found.append(f"{name} asks for {each} of {module}")

    load(first)
    return found


def failures(home: Path, names: Sequence[str]) -> str:
    """Import each module as the first of its package, in one interpreter; return the errors."""
    command = [sys.executable, "-c", _IMPORT_EACH_FIRST, home.name, *names]
    return subprocess.run(command, cwd=home.parent, capture_output=True, text=True, check=True).stdout


def circular_imports(home: Path) -> dict[str, list[str]]:
    """Return for each module that cannot be sure to be imported first what it meets half imported."""
    package = read_package(home)
    met = {name: half_imported(package, name) for name in package}
    return {name: asked for name, asked in met.items() if asked}


def test_every_module_can_be_the_first_that_is_imported() -> None:
    assert circular_imports(Path(coterie.__file__).parent) == {}


@pytest.mark.parametrize(
    ("source", "fails"),
    [
        ({"__init__": "", "a": "from {p}.b import B\nA = 1", "b": "from {p}.a import A\nB = 1"}, ["a", "b"]),
        ({"__init__": "from {p}.b import B", "a": "A = 1", "b": "from {p}.a import A\nB = A"}, []),
        ({"__init__": "", "a": "import {p}.b\nA = 1", "b": "def f():\n    from {p}.a import A"}, []),
        (
            {"__init__": "", "a": "try:\n    from {p}.b import B\nfinally:\n    A = 1", "b": "from {p}.a import A"},
            ["a", "b"],
        ),
        (
            {"__init__": "", "x/__init__": "from {p}.y import Y", "x/z": "Z = 1", "y": "from {p}.x.z import Z\nY = Z"},
            ["y"],
        ),
    ],
)
def test_a_circular_import_is_found(source: Mapping[str, str], fails: Sequence[str], tmp_path: Path) -> None:
    """As the interpreter says. The last one is a package that imports what needs the package."""
    home = tmp_path / "made_up"
    for name, text in source.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / f"{name}.py").write_text(text.replace("{p}", home.name))
    expected = [f"{home.name}.{name}" for name in fails]
    said = failures(home, [*read_package(home)])
    assert [line.partition(":")[0] for line in said.splitlines()] == expected
    assert list(circular_imports(home)) == expected
