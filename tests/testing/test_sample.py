"""The sample project of examples/testing_sample: it is complete, its tests are 50, none sleeps, and some are run.

`make sample` runs all of them, outside the clone.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SAMPLE = Path(__file__).parents[2] / "examples" / "testing_sample"
LIBRARIES = ("confluent-kafka", "kafka-python", "aiokafka")
SCENARIOS = (
    "asyncio",
    "coordinator_move",
    "crash",
    "lost_answer",
    "lost_commit",
    "poison_record",
    "rolling_deploy",
    "slow_poll",
    "static_restart",
)
SOME = (
    "tests/test_crash.py::test_what_a_member_had_not_committed_is_billed_by_another[aiokafka]",
    "tests/test_lost_commit.py::test_a_commit_waits_until_the_coordinator_has_loaded[confluent-kafka]",
    "tests/test_slow_poll.py::test_a_member_that_does_not_poll_in_time_loses_its_partitions[kafka-python]",
    "tests/test_static_restart.py::test_a_restart_is_no_rebalance[confluent-kafka]",
    "tests/test_poison_record.py::test_a_poison_record_does_not_stop_the_others[aiokafka]",
)


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    """A copy, so that nothing is written to the clone."""
    copy = tmp_path / "sample"
    shutil.copytree(SAMPLE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


def run(sample: Path, *args: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "coterie.testing.plugin", "-p", "no:cacheprovider", *args],
        cwd=sample,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "PYTEST_ADDOPTS": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )
    return done.returncode, done.stdout + done.stderr


def test_it_has_fifty_tests_of_all_scenarios_with_each_library(sample: Path) -> None:
    code, said = run(sample, "--collect-only")
    assert code == 0, said
    tests = [line for line in said.splitlines() if "::" in line]
    assert len(tests) == 50
    assert tuple(sorted(path.stem.removeprefix("test_") for path in sample.glob("tests/test_*.py"))) == SCENARIOS
    for library in LIBRARIES:
        assert sum(f"[{library}]" in test for test in tests) >= 16


def test_none_of_its_tests_sleeps() -> None:
    for path in [*SAMPLE.glob("tests/*.py"), *SAMPLE.glob("src/**/*.py"), SAMPLE / "compare" / "test_with_coterie.py"]:
        assert "sleep" not in path.read_text(), path


def test_both_sides_of_the_comparison_have_the_same_ten_tests() -> None:
    sides = [
        [line for line in (SAMPLE / "compare" / name).read_text().splitlines() if line.startswith("def test_")]
        for name in ("test_with_coterie.py", "test_with_apache_kafka.py")
    ]
    names = [[line.partition("(")[0] for line in side] for side in sides]
    assert names[0] == names[1]
    assert len(names[0]) == 10


def test_some_of_its_tests_pass(sample: Path) -> None:
    code, said = run(sample, *SOME)
    assert code == 0, said
    assert f"{len(SOME)} passed" in said
