"""Every example is run by a test. What is a test itself is run as its reader runs it."""

from __future__ import annotations

import subprocess
import sys

from docs.blocks import ROOT

EXAMPLES = ROOT / "examples"
RUN_BY = {
    "ten_lines.py": "tests/client/test_consumer.py",
    "own_driver.py": "tests/client/member/test_example.py",
    "lag_aware_assignor.py": "tests/assignors/test_example.py",
    "group.jsonl": "docs/assignors.md",
    "test_your_consumer.py": "tests/docs/test_examples.py",
}


def test_every_example_is_run_by_somebody() -> None:
    assert {path.name for path in EXAMPLES.iterdir() if path.is_file()} == set(RUN_BY)
    for name, where in RUN_BY.items():
        assert name in (ROOT / where).read_text(), f"{where} does not run examples/{name}"


def test_the_test_of_a_consumer_passes() -> None:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "examples/test_your_consumer.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0 and "1 passed" in done.stdout + done.stderr, done.stdout + done.stderr
