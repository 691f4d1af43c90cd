"""docs/architecture.md names every package, every file it names exists, and its layers are those of the contract."""

from __future__ import annotations

import re
import tomllib

import pytest

from docs.blocks import ROOT

PACKAGE = ROOT / "src" / "coterie"
PAGE = (ROOT / "docs" / "architecture.md").read_text()
TREE = PAGE.split("```")[1]
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


def test_the_layers_are_those_of_the_contract() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = [re.findall(r"\w+", layer) for layer in contracts[0]["layers"]]
    told = PAGE.split("Imports only go down, in this order:")[1].split(". `pyproject.toml`")[0]
    assert re.findall(r"`(\w+)`", told) == [package for layer in layers for package in layer]
    assert "with five more:" in PAGE and len(contracts) == 6


def test_what_is_not_there_would_be_noticed() -> None:
    with pytest.raises(AssertionError, match=r"group/nothing\.py is not there"):
        test_every_file_that_is_named_is_there("group/nothing.py")
