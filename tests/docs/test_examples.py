"""Every example is run by a test. What is a test itself is run as its reader runs it."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from docs.blocks import ROOT

EXAMPLES = ROOT / "examples"
RUN_BY = {
    "ten_lines.py": "tests/client/test_consumer.py",
    "own_driver.py": "tests/client/member/test_example.py",
    "read_process_write.py": "tests/client/test_transactions.py",
    "lag_aware_assignor.py": "tests/assignors/test_example.py",
    "group.jsonl": "docs/assignors.md",
    "test_your_consumer.py": "tests/docs/test_examples.py",
    "test_without_waiting.py": "tests/docs/test_examples.py",
    "what_if.py": "tests/docs/test_examples.py",
    "spark_in_a_group.py": "tests/spark/test_docs.py",
    "groups.ipynb": "tests/spark/test_group_views.py",
}


def ran(*words: str) -> str:
    done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_example_is_run_by_somebody() -> None:
    assert {path.name for path in EXAMPLES.iterdir() if path.is_file()} == set(RUN_BY)
    for name, where in RUN_BY.items():
        assert name in (ROOT / where).read_text(), f"{where} does not run examples/{name}"


def test_the_readme_says_what_each_is_for() -> None:
    assert [name for name in RUN_BY if f"examples/{name}" not in (ROOT / "README.md").read_text()] == []


@pytest.mark.parametrize(("name", "tests"), [("test_your_consumer.py", 2), ("test_without_waiting.py", 2)])
def test_an_example_that_is_a_test_passes(name: str, tests: int) -> None:
    assert f"{tests} passed" in ran("-m", "pytest", "-p", "no:cacheprovider", f"examples/{name}")


def test_the_what_if_says_what_a_deploy_would_cost() -> None:
    """Whoever has more members has more rebalances: each restart costs the group two and more."""
    said = ran("examples/what_if.py")
    line = r"( \d) members: (\d+) rebalances, \d+ moves, \d+ unassigned partition-seconds\n"
    assert re.fullmatch(f"(?:{line}){{2}}", said), said
    few, many = (int(rebalances) for _, rebalances in re.findall(line, said))
    assert 2 * 3 * 2 <= few < many, said
