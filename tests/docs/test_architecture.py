"""docs/architecture.md names every package, every file it names exists, and its layers are those of the contract."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.blocks import ROOT

PACKAGE = ROOT / "src" / "coterie"
PAGE = (ROOT / "docs" / "architecture.md").read_text()
TREE = PAGE.split("```")[1]
MODULE = re.compile(r"[\w/]+\.pyx?\b")
FILE = re.compile(r"[\w/]+\.(?:py|pyx|md)\b")


def named_in_the_tree() -> set[str]:
    """What stands first in a line."""
    inside = TREE.split("src/coterie/\n")[1].split("\ntests/")[0]
    return set(re.findall(r"^  (\w+(?:/|\.py))", inside, re.MULTILINE))


def test_every_package_is_in_the_tree_and_every_line_of_it_is_a_package() -> None:
    packages = {f"{path.parent.name}/" for path in PACKAGE.glob("*/__init__.py")}
    files = {path.name for path in PACKAGE.glob("*.py")} - {"__init__.py", "__main__.py"}
    assert named_in_the_tree() <= packages | files
    assert packages <= named_in_the_tree()
    assert not [name for name in files if name not in TREE]


def files_named() -> set[str]:
    return set(FILE.findall(PAGE))


@pytest.mark.parametrize("name", sorted(files_named()))
def test_every_file_that_is_named_is_there(name: str) -> None:
    """A path in the package, from the root or beside the page; in the tree the name of a file in any package."""
    if (PACKAGE / name).is_file() or (ROOT / name).is_file() or (ROOT / "docs" / name).is_file():
        return
    assert "/" not in name and name in TREE and list(PACKAGE.rglob(name)), f"{name} is not there: say where it is now"


def docstrings_of(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""


def missing_in(docstring: str, path: Path) -> list[str]:
    """The modules that a docstring of a file names and that are neither beside the file nor in a folder above it."""
    folders = path.parents[: len(path.relative_to(ROOT).parents)]
    return [name for name in MODULE.findall(docstring) if not any((folder / name).is_file() for folder in folders)]


def test_every_module_that_a_docstring_names_is_there() -> None:
    sources = list((ROOT / "src").rglob("*.py"))
    found = {path: [name for text in docstrings_of(path) for name in missing_in(text, path)] for path in sources}
    assert len(sources) > 100
    assert not {str(path.relative_to(ROOT)): names for path, names in found.items() if names}


def test_a_docstring_that_names_a_module_of_before_would_be_noticed() -> None:
    text = (
        "Read `shard.py` first, then `timers.py`; `coordinator/classic/states.py` and docs/generate.py are elsewhere."
    )
    assert missing_in(text, PACKAGE / "coordinator" / "runtime" / "__init__.py") == ["timers.py"]


def test_the_layers_are_those_of_the_contract() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = [re.findall(r"\w+", layer) for layer in contracts[0]["layers"]]
    told = PAGE.split("Imports only go down, in this order:")[1].split(". `pyproject.toml`")[0]
    assert re.findall(r"`(\w+)`", told) == [package for layer in layers for package in layer]
    assert "with five more:" in PAGE and len(contracts) == 6


def test_what_is_not_there_would_be_noticed() -> None:
    with pytest.raises(AssertionError, match=r"group/nothing\.py is not there"):
        test_every_file_that_is_named_is_there("group/nothing.py")
