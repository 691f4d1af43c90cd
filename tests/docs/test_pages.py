"""Pages that are made from the code say what the code says; what points at them points somewhere."""

from __future__ import annotations

import re
import subprocess

import pytest

from docs.blocks import ROOT
from generate import PAGES


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_is_up_to_date(name: str) -> None:
    assert (ROOT / "docs" / name).read_text() == PAGES[name](), "run `make docs`"


def test_links_of_the_readme_lead_somewhere() -> None:
    """Those of the pages are held by test_built.py."""
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", (ROOT / "README.md").read_text()):
        if not target.startswith(("http:", "https:")):
            assert (ROOT / target).exists(), f"README.md links to {target}"


def test_every_make_target_has_a_line_of_help() -> None:
    makefile = (ROOT / "Makefile").read_text()
    (phony,) = re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    shown = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for target in phony.split():
        assert f"make {target} " in shown, f"make help says nothing of {target}"
