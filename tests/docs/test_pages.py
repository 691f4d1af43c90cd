"""Pages that are made from the code say what the code says; what points at them points somewhere."""

from __future__ import annotations

import re
import subprocess
from importlib.util import find_spec

import pytest

from docs.blocks import ROOT
from generate import PAGES


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_is_up_to_date(name: str) -> None:
    assert (ROOT / "docs" / name).read_text() == PAGES[name](), "run `make docs`"


@pytest.mark.parametrize("name", ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"])
def test_links_of_a_page_in_the_root_lead_somewhere(name: str) -> None:
    """Those of the pages are held by test_built.py."""
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", (ROOT / name).read_text()):
        if not target.startswith(("http:", "https:")):
            assert (ROOT / target).exists(), f"{name} links to {target}"


def test_what_contributing_names_is_there() -> None:
    """Paths from the root, packages in the table of the walk, modules, and targets of make."""
    page = (ROOT / "CONTRIBUTING.md").read_text()
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    asked = {target for command in re.findall(r"(?:`|\$ )make ([a-z -]+)", page) for target in command.split()}
    packages = re.findall(r"^\| .* \| `([\w/]+/)`", page, re.MULTILINE)
    modules = re.findall(r"`coterie\.([\w.]+)`", page)
    paths = re.findall(r"\b(?:src|tests|docs)/[\w/.-]*\w", page)
    assert asked <= targets and {"venv", "test", "properties"} <= asked
    assert packages and modules and paths
    for path in [*paths, *(f"src/coterie/{package}" for package in packages)]:
        assert (ROOT / path).exists(), f"CONTRIBUTING.md names {path}"
    for module in modules:
        assert find_spec(f"coterie.{module}"), f"CONTRIBUTING.md names coterie.{module}"


def test_every_make_target_has_a_line_of_help() -> None:
    makefile = (ROOT / "Makefile").read_text()
    (phony,) = re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    shown = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for target in phony.split():
        assert f"make {target} " in shown, f"make help says nothing of {target}"
