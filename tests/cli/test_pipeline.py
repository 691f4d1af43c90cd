"""`coterie pipeline show`: prints a table without Spark. The pipeline itself is in tests/spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from coterie.cli.app import app
from coterie.spark.schemas import TABLES


def put(out: Path, name: str, batch: int, *rows: dict[str, Any]) -> None:
    folder = out / name / f"batch={batch}"
    folder.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(list(rows), TABLES[name].arrow), folder / "part-0.parquet")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    for batch in range(2):
        move = {"topic": "t", "partition": 0, "old_owner": "", "new_owner": "a"}
        first = {"group_id": "orders", "generation": batch + 1, "ended_ms": 1_000 * batch, "log_ms": 1_000 * batch}
        put(tmp_path, "rounds", batch, first | {"came": ["a", "b"], "moved": [move]}, first | {"group_id": "other"})
        put(
            tmp_path, "health", batch, {"group_id": "orders", "at_ms": batch, "verdict": "well", "seconds_behind": 1.25}
        )
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["pipeline", *arguments])


def test_a_table_is_shown_for_eyes(out: Path) -> None:
    shown = run("show", "rounds", "--out", str(out), "--group", "orders")
    assert shown.exit_code == 0
    header, first, second = shown.stdout.splitlines()
    assert header.split()[:2] == ["GROUP_ID", "EVIDENCE"]
    assert "a,b" in first and "1970-01-01 00:00:00.000" in first and "1970-01-01 00:00:01.000" in second
    assert "other" not in shown.stdout


def test_json_has_everything(out: Path) -> None:
    rows = json.loads(run("show", "rounds", "--out", str(out), "-o", "json").stdout)
    assert len(rows) == 4
    assert rows[0]["moved"] == [{"topic": "t", "partition": 0, "old_owner": "", "new_owner": "a"}]
    assert list(rows[0]) == [column.name for column in TABLES["rounds"].columns]


def test_csv_has_lists_as_json(out: Path) -> None:
    assert '[""a"", ""b""]' in run("show", "rounds", "--out", str(out), "-o", "csv").stdout


def test_only_the_latest_are_shown_and_that_is_said(out: Path) -> None:
    shown = run("show", "rounds", "--out", str(out), "--last", "1", "-o", "json")
    assert [row["log_ms"] for row in json.loads(shown.stdout)] == [1_000]
    assert "the last 1 of 4 rows" in shown.stderr


def test_of_a_snapshot_only_the_newest_counts(out: Path) -> None:
    """Its older batch is there for a moment while it is being replaced."""
    rows = json.loads(run("show", "health", "--out", str(out), "-o", "json").stdout)
    assert [row["at_ms"] for row in rows] == [1]


def test_a_table_without_rows_is_no_error(out: Path) -> None:
    shown = run("show", "commits", "--out", str(out))
    assert (shown.exit_code, shown.stdout) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["show", "round"], "did you mean rounds?"),
        (["show", "nonsense"], "there are commits, generations"),
        (["show", "skipped", "--group", "g"], "leave --group out"),
        (["groups", "--once", "--follow"], "contradict"),
        (["groups", "--set", "nonsense"], "say NAME=VALUE"),
    ],
)
def test_what_cannot_be_is_said_in_a_sentence(out: Path, arguments: list[str], said: str) -> None:
    shown = run(*arguments, "--out", str(out))
    assert shown.exit_code != 0 and said in shown.stderr


def test_a_directory_that_is_not_there_is_said(tmp_path: Path) -> None:
    shown = run("show", "health", "--out", str(tmp_path / "nowhere"))
    assert shown.exit_code == 1 and "there is no directory" in shown.stderr
