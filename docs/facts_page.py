"""The page about facts, printed from `coterie.facts`: each with its fields, in the words of the code."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator

from coterie import facts

__all__ = ["facts_page"]

HEAD = """# Events of a group

This page is generated from `coterie.facts` by `make docs`. An event of a group is called a *fact* in the code. \
`coterie serve` writes them to stderr ([its log](web.md#the-log-of-coterie-serve); `--log all`: also commits, \
rejoins and reconciliations, `--log json`: all as JSON) and keeps them in the topic `__coterie_facts`; \
`coterie report` makes rebalances of them. In a test: \
`Broker(on_fact=...)`.

Every event has `at_ms` (milliseconds since 1970, by the broker's clock) and `group_id`.
"""
CAUSES = """## Why a rebalance starts

Every `RebalanceStarted` has exactly one cause. The rules are in [section 12](semantics.md#12-what-starts-a-rebalance)
of the specification.

| cause | in words |
|---|---|"""


def facts_page() -> str:
    lines = [HEAD, CAUSES]
    lines += [f"| `{cause.name}` | {cause.value} |" for cause in facts.Cause]
    lines += ["", "## All events", ""]
    for node in ast.parse(inspect.getsource(facts)).body:
        if isinstance(node, ast.ClassDef) and node.name in facts.__all__ and node.name not in {"Cause", "Fact"}:
            lines += _fact(node)
    return "\n".join(lines).rstrip() + "\n"


def _fact(node: ast.ClassDef) -> Iterator[str]:
    yield from (f"### {node.name}", "")
    about = ast.get_docstring(node)
    if about:
        yield from (" ".join(about.split()), "")
    fields = list(_fields(node))
    if fields:
        yield from ("| field | type | |", "|---|---|---|", *fields, "")


def _fields(node: ast.ClassDef) -> Iterator[str]:
    """A string right behind a field is what there is to say about it."""
    for here, behind in zip(node.body, [*node.body[1:], None], strict=True):
        if isinstance(here, ast.AnnAssign) and isinstance(here.target, ast.Name):
            about = ""
            if isinstance(behind, ast.Expr) and isinstance(behind.value, ast.Constant):
                about = str(behind.value.value)
            kind = ast.unparse(here.annotation).replace("|", "\\|")
            yield f"| `{here.target.id}` | `{kind}` | {about} |"
