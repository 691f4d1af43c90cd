"""Every rule of docs/semantics*.md is cited by a test, or the reason is given here."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent

TRANSACTIONS = r"T[XFSIAEPOLTRDMN]\d+"
"""The numbers of rules of transactions."""
NOT_YET = {
    "D4": "nothing has to be loaded before producer ids are given out",
}


def rules() -> set[str]:
    """Numbered lines: `- **C1.**`, `- **S1.**`, `12. Text` at the start of a line."""
    text = (ROOT / "docs" / "semantics.md").read_text()
    numbered, _, _ = text.partition("\n## 13.")  # the historical designs are a list, not rules
    _, _, data_path = text.partition("\n## 16.")
    named = re.findall(r"^- \*\*([CMD]\d+)\.\*\*", numbered + data_path, re.MULTILINE)
    security = (ROOT / "docs" / "semantics-security.md").read_text()
    secured = re.findall(r"^- \*\*(S\d+)\.\*\*", security, re.MULTILINE)
    newer = (ROOT / "docs" / "semantics-kip848.md").read_text()
    consumer = re.findall(r"^- \*\*(K\d+)\.\*\*", newer, re.MULTILINE)
    transactions = (ROOT / "docs" / "semantics-transactions.md").read_text()
    transactional = re.findall(rf"^- \*\*({TRANSACTIONS})\.\*\*", transactions, re.MULTILINE)
    return {*named, *secured, *consumer, *transactional, *re.findall(r"^(\d+)\. ", numbered, re.MULTILINE)}


def cited() -> dict[str, list[str]]:
    """Rule -> tests whose docstring, or whose module's, cites it: "Rule 9", "Rules 6, 14", "C4", "S13"."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                for rule in citations(ast.get_docstring(node) or ""):
                    found.setdefault(rule, []).append(f"{path.name}::{node.name}")
    return found


def citations(text: str) -> set[str]:
    numbers = [
        one for many in re.findall(r"[Rr]ules? ((?:\d+(?:, | and )?)+)", text) for one in re.findall(r"\d+", many)
    ]
    return {*numbers, *re.findall(rf"\b([CMDSK]\d+|{TRANSACTIONS})\b", text)}


def test_every_rule_is_cited_by_a_test() -> None:
    untested = rules() - set(cited()) - set(NOT_YET)
    assert not untested, f"rules without a test: {sorted(untested)}"


def test_no_rule_is_excused_that_has_a_test_or_does_not_exist() -> None:
    assert not set(NOT_YET) - rules(), "excused, but not a rule"
    assert not set(NOT_YET) & set(cited()), "excused, but tested: take the excuse away"


def test_tests_cite_only_rules_that_exist() -> None:
    unknown = {rule: where for rule, where in cited().items() if rule not in rules()}
    assert not unknown, f"cited, but not a rule: {unknown}"
