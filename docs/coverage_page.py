"""The page of coverage, printed from coverage.toml: for each section of the articles its code, its tests, its page."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Article", "Section", "articles", "coverage"]

HERE = Path(__file__).parent
HEAD = """# Source coverage

For maintainers. This page is generated from `docs/coverage.toml` by `make docs`. This project began with five articles
on how consumer groups rebalance, all in Chinese, here called 000 to 004. The tables name, for each of their sections,
the code that implements it, a test that checks it, and the page that explains it. `tests/docs/test_coverage.py` fails
if one of them does not exist. Where an article is older than Kafka 4.3.1, [how a rebalance
works](how-a-rebalance-works.md#where-todays-kafka-differs-from-what-is-often-written) says what has changed.

Code is below `src/coterie`, tests below `tests`.
"""


@dataclass(frozen=True)
class Section:
    title: str
    code: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    page: str = ""
    nothing: str = ""
    """Why it has no subject of its own."""


@dataclass(frozen=True)
class Article:
    number: str
    about: str
    sections: tuple[Section, ...]


def articles() -> list[Article]:
    rows = tomllib.loads((HERE / "coverage.toml").read_text())["article"]
    return [
        Article(
            one["number"],
            one["about"],
            tuple(
                Section(**{**row, "code": tuple(row.get("code", ())), "tests": tuple(row.get("tests", ()))})
                for row in one["section"]
            ),
        )
        for one in rows
    ]


def coverage() -> str:
    return "\n".join([HEAD, *(line for one in articles() for line in _article(one))]).rstrip() + "\n"


def _article(article: Article) -> Iterator[str]:
    yield from (
        f"## {article.number}",
        "",
        f"{article.about}.",
        "",
        "| section | code | tests | page |",
        "|---|---|---|---|",
    )
    for one in article.sections:
        if one.nothing:
            yield f"| {one.title} | | | {one.nothing} |"
        else:
            code, tests = (", ".join(f"`{name}`" for name in names) for names in (one.code, one.tests))
            yield f"| {one.title} | {code} | {tests} | [{one.page.partition('#')[0]}]({one.page}) |"
    yield ""
