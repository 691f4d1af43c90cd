"""What the pages point at is there: the code, tests and anchors of coverage.toml, and every test that a page names."""

from __future__ import annotations

import ast
import re
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from myst_parser.slugs import github_slugify

from coverage_page import Section, articles
from docs.blocks import ROOT, pages

SECTIONS = {f"{article.number} {one.title}": one for article in articles() for one in article.sections}
NAMED = re.compile(r"`tests/([\w/]+\.py)(?:::(\w+))?`")


@cache
def names_in(path: Path) -> set[str]:
    """What a file defines: functions, classes, and names that are given a value; nothing, if there is no such file."""
    nodes = list(ast.walk(ast.parse(path.read_text()))) if path.is_file() else []
    defined = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}
    return defined | {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


@cache
def anchors_of(path: Path) -> set[str]:
    tokens = MarkdownIt("commonmark").parse(path.read_text())
    return {github_slugify(behind.content) for here, behind in pairwise(tokens) if here.type == "heading_open"}


def missing(one: Section) -> list[str]:
    lost = [f"src/coterie/{name}" for name in one.code if not (ROOT / "src" / "coterie" / name).is_file()]
    for test in one.tests:
        file, _, name = test.partition("::")
        if name not in names_in(ROOT / "tests" / file):
            lost.append(f"tests/{test}")
    page, _, anchor = one.page.partition("#")
    path = ROOT / "docs" / page
    if not path.is_file() or (anchor and anchor not in anchors_of(path)):
        lost.append(f"docs/{one.page}")
    return lost


@pytest.mark.parametrize("name", SECTIONS)
def test_a_section_has_its_code_its_test_and_its_page(name: str) -> None:
    one = SECTIONS[name]
    if one.nothing:
        assert not one.code and not one.tests and not one.page, "either there is something to it or there is not"
        return
    assert one.code and one.tests and one.page, "each section has all three"
    assert not missing(one), "docs/coverage.toml names what is not there: if it has moved, say where to"


def test_all_five_articles_are_there_and_no_section_twice() -> None:
    assert [one.number for one in articles()] == ["000", "001", "002", "003", "004"]
    assert len(SECTIONS) == sum(len(one.sections) for one in articles())


def test_what_is_not_there_would_be_noticed() -> None:
    lost = Section("x", code=("group/nothing.py",), tests=("docs/test_coverage.py::test_x",), page="states.md#nowhere")
    assert missing(lost) == [
        "src/coterie/group/nothing.py",
        "tests/docs/test_coverage.py::test_x",
        "docs/states.md#nowhere",
    ]


@pytest.mark.parametrize(
    "page", [page for page in pages() if NAMED.search(page.read_text())], ids=lambda page: page.name
)
def test_every_test_that_a_page_names_is_there(page: Path) -> None:
    lost = [
        found[0]
        for found in NAMED.finditer(page.read_text())
        if not (ROOT / "tests" / found[1]).is_file()
        or (found[2] and found[2] not in names_in(ROOT / "tests" / found[1]))
    ]
    assert not lost, "the page names tests that are not there: if they have moved, say where to"
