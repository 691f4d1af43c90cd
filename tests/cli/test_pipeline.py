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
from coterie.cli.pipeline import TABLE_COLUMNS
from coterie.spark.pipeline.schemas import TABLES


def put(out: Path, name: str, batch: int, *rows: dict[str, Any]) -> None:
    folder = out / name / "date=2026-11-18" / f"batch-{batch}"
    folder.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(list(rows), TABLES[name].arrow), folder / "part-0.parquet")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    for batch in range(2):
        move = {"topic": "t", "partition": 0, "old_owner": "", "new_owner": "a", "unassigned_ms": None}
        first = {"group_id": "orders", "generation": batch + 1, "ended_ms": 1_000 * batch, "log_ms": 1_000 * batch}
        put(tmp_path, "rebalances", batch, first | {"came": ["a", "b"], "moved": [move]}, first | {"group_id": "other"})
        put(tmp_path, "health", batch, {"group_id": "orders", "at_ms": batch, "verdict": "OK", "seconds_behind": 1.25})
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["pipeline", *arguments])


def test_a_table_is_shown_for_eyes(out: Path) -> None:
    shown = run("show", "rebalances", "--out", str(out), "--group", "orders")
    assert shown.exit_code == 0
    header, first, second = shown.stdout.splitlines()
    assert header.startswith("ENDED (UTC)  ") and header.split()[2:5] == ["GROUP_ID", "GENERATION", "EVIDENCE"]
    assert "1970-01-01 00:00:00.000" in first and "1970-01-01 00:00:01.000" in second
    assert "other" not in shown.stdout
    assert "8 of 28 columns; --all-columns shows all" in shown.stderr


def test_all_columns_are_shown_in_full_when_asked_for(out: Path) -> None:
    shown = run("show", "rebalances", "--out", str(out), "--group", "orders", "--all-columns")
    header, first, _ = shown.stdout.splitlines()
    assert header.replace(" (UTC)", "").split() == [
        column.name.removesuffix("_ms").upper()
        if column.name in {"began_ms", "ended_ms", "joined_ms", "log_ms"}
        else name
        for column in TABLES["rebalances"].columns
        for name in [column.name.upper()]
    ]
    assert "a,b" in first
    assert "columns" not in shown.stderr


LONG = "consumer-orders-1-8c3449f3-3c47-420d-bce0-7fc83336e69a"
WORDS = "1 member changed its subscription, the assignor changed from range to sticky"
LONG_CELLS: dict[str, Any] = {"cause": WORDS, "culprit": LONG, "member_id": LONG, "note": WORDS, "verdict": WORDS}
NUMBERS = {"generation": 123, "partition": 12, "duration_ms": 123_456}


@pytest.mark.parametrize("name", TABLES)
def test_a_choice_of_columns_fits_and_cuts_words_alone(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Times, numbers and names of groups are whole."""
    monkeypatch.setenv("COLUMNS", "120")
    columns = TABLES[name].arrow.names
    times = {column: 1_794_807_724_027 for column in columns if column in {"ended_ms", "at_ms", "log_ms", "began_ms"}}
    row = {"group_id": "orders", "topic": "orders", "state": "Reconciling", "evidence": "observed"} | LONG_CELLS
    put(tmp_path, name, 0, {column: value for column, value in (row | NUMBERS | times).items() if column in columns})
    shown = run("show", name, "--out", str(tmp_path)).stdout
    header, line = shown.splitlines()
    assert max(map(len, (header, line))) <= 120
    chosen = TABLE_COLUMNS[name]
    assert set(chosen) <= set(columns)
    assert shown.count("2026-11-16 05:42:04.027") == len(times.keys() & set(chosen))
    assert ("orders" in line) == ("group_id" in chosen)
    assert ("…" in line) == (name in {"rebalances", "ownership", "owners", "generations", "health"})


def test_of_a_rebalance_that_was_observed_the_derived_row_is_left_out_and_that_is_said(tmp_path: Path) -> None:
    """The same generation, at about the same time; a group that was deleted counts from 1 again."""

    def told(evidence: str, generation: int | None, ended_ms: int) -> dict[str, Any]:
        at = {"ended_ms": ended_ms, "log_ms": ended_ms}
        return {"group_id": "orders", "evidence": evidence, "generation": generation} | at

    put(
        tmp_path,
        "rebalances",
        0,
        told("derived", 1, 1_000),
        told("derived", 1, 10_000_000),
        told("observed", 1, 10_000_005),
        told("derived", 2, 10_000_100),
        told("derived", None, 10_000_200),
        told("observed", None, 10_000_201),
        told("observed", 3, 10_000_300),
        told("derived", 3, 10_000_301) | {"group_id": "other"},
    )
    both = json.loads(run("show", "rebalances", "--out", str(tmp_path), "-o", "json", "--both").stdout)
    assert len(both) == 8
    shown = run("show", "rebalances", "--out", str(tmp_path), "-o", "json")
    left_out = [row for row in both if row not in json.loads(shown.stdout)]
    assert [(row["evidence"], row["generation"], row["ended_ms"]) for row in left_out] == [("derived", 1, 10_000_000)]
    assert "1 derived rows of recorded rebalances are hidden; --both shows them" in shown.stderr


def test_lag_is_in_the_order_of_groups_and_partitions_and_then_of_time(tmp_path: Path) -> None:
    """At most so many, the latest, whatever the order in which they are shown."""
    rows = [
        {"at_ms": at, "group_id": group, "topic": "t", "partition": partition}
        for at in (2, 1, 3)
        for partition in (1, 10, 0)
        for group in ("b", "a")
    ]
    put(tmp_path, "lag", 0, *rows)
    found = json.loads(run("show", "lag", "--out", str(tmp_path), "-o", "json", "--last", "12").stdout)
    shown = [(row["group_id"], row["partition"], row["at_ms"]) for row in found]
    assert shown == [(group, partition, at) for group in "ab" for partition in (0, 1, 10) for at in (2, 3)]


def test_a_group_that_is_not_there_is_named_with_those_that_are(out: Path) -> None:
    shown = run("show", "rebalances", "--out", str(out), "--group", "ordres")
    assert (shown.exit_code, shown.stdout) == (1, "")
    assert shown.stderr == "coterie: no rows for group 'ordres'; the groups are orders, other\n"


def test_a_group_that_has_rows_elsewhere_is_no_mistake(out: Path) -> None:
    shown = run("show", "owners", "--out", str(out), "--group", "other")
    assert (shown.exit_code, shown.stdout) == (0, "")
    assert shown.stderr == "owners has no rows for group 'other'\n"


def test_json_has_everything(out: Path) -> None:
    rows = json.loads(run("show", "rebalances", "--out", str(out), "-o", "json").stdout)
    assert len(rows) == 4
    assert rows[0]["moved"] == [
        {"topic": "t", "partition": 0, "old_owner": "", "new_owner": "a", "unassigned_ms": None}
    ]
    assert list(rows[0]) == [column.name for column in TABLES["rebalances"].columns]


def test_csv_has_lists_as_json(out: Path) -> None:
    assert '[""a"", ""b""]' in run("show", "rebalances", "--out", str(out), "-o", "csv").stdout


def test_only_the_latest_are_shown_and_that_is_said(out: Path) -> None:
    shown = run("show", "rebalances", "--out", str(out), "--last", "1", "-o", "json")
    assert [row["log_ms"] for row in json.loads(shown.stdout)] == [1_000]
    assert "the last 1 of 4 rows" in shown.stderr


def test_of_a_snapshot_only_the_newest_counts(out: Path) -> None:
    """Its older batch is there for a moment while it is being replaced."""
    rows = json.loads(run("show", "health", "--out", str(out), "-o", "json").stdout)
    assert [row["at_ms"] for row in rows] == [1]


def test_a_table_without_rows_is_no_error(out: Path) -> None:
    shown = run("show", "commits", "--out", str(out))
    assert (shown.exit_code, shown.stdout, shown.stderr) == (0, "", "commits has no rows\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["show", "rebalance"], "did you mean rebalances?"),
        (["show", "nonsense"], "the tables are commits, generations"),
        (["show", "skipped", "--group", "g"], "leave --group out"),
        (["groups", "--once", "--follow"], "contradict"),
        (["groups", "--set", "nonsense"], "must be name=value"),
    ],
)
def test_what_cannot_be_is_said_in_a_sentence(out: Path, arguments: list[str], said: str) -> None:
    shown = run(*arguments, "--out", str(out))
    assert shown.exit_code != 0 and said in shown.stderr


def test_a_directory_that_is_not_there_is_said(tmp_path: Path) -> None:
    shown = run("show", "health", "--out", str(tmp_path / "nowhere"))
    assert shown.exit_code == 1 and "does not exist: run" in shown.stderr


def test_without_java_it_is_said_before_spark_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    told = run("groups", "--out", str(tmp_path / "tables"))
    assert told.exit_code == 1
    assert told.stderr == f"coterie: Spark needs Java 17 or newer, and JAVA_HOME, {tmp_path}, has none\n"
