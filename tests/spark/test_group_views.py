"""The views of examples/group_views, in DuckDB and in Spark, and the notebook, on tables that the test has written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  the usual name

from coterie.spark.pipeline.schemas import TABLES
from spark.conftest import in_the_soak
from spark.notebook import cells, run

EXAMPLES = Path(__file__).parents[2] / "examples"
VIEWS = EXAMPLES / "group_views"
HOUR_MS, MINUTE_MS = 3_600_000, 60_000
BEGAN_MS = 1_794_992_400_000  # 2026-11-18 09:00 UTC
SOURCES = ("generations", "group_lag", "health", "rebalances")
ORDER = ("rebalances_by_cause", "what_a_deploy_cost")
"""The second uses a view of the first."""


def put(out: Path, name: str, *rows: dict[str, Any]) -> None:
    folder = out / "groups" / name / "date=2026-11-18" / "batch-0"
    folder.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(list(rows), TABLES[name].arrow), folder / "part-0.parquet")


def lag(group: str, minute: int, behind: int, committed: int) -> dict[str, Any]:
    at_ms = BEGAN_MS + minute * MINUTE_MS
    more = {"committed": committed, "log_end": committed + behind, "seconds_behind": behind / 10}
    return {"at_ms": at_ms, "group_id": group, "partitions": 2, "records_behind": behind, "most_behind": behind} | more


def rebalance(minute: float, generation: int, *, evidence: str = "derived", **more: Any) -> dict[str, Any]:
    ended_ms = BEGAN_MS + int(minute * MINUTE_MS)
    base = {"group_id": "g", "evidence": evidence, "generation": generation, "ended_ms": ended_ms}
    return base | {"cause": "1 member joined", "came": ["m"], "left": [], "duration_ms": 100} | more


def member(host: str, client: str, partitions: int) -> dict[str, Any]:
    owned = [{"topic": "t", "partition": number} for number in range(partitions)]
    return {"member_id": client, "client_id": client, "client_host": host, "assignment": owned}


@pytest.fixture
def answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[duckdb.DuckDBPyConnection]:
    move = {"topic": "t", "partition": 0, "old_owner": "a", "new_owner": "b", "unassigned_ms": 5}
    put(tmp_path, "group_lag", lag("g", 0, 10, 100), lag("g", 30, 40, 150), lag("g", 60, 0, 200), lag("h", 61, 7, 3))
    put(
        tmp_path,
        "rebalances",
        rebalance(28, 1, moved=[move], unassigned_ms=2_000),
        rebalance(29, 2),
        rebalance(29.5, 2, evidence="observed", cause="new member", duration_ms=70, moved=[move, move]),
        rebalance(50, 3, cause="1 member disappeared", came=[], left=["m"]),
    )
    first = {"group_id": "g", "tombstone": False, "log_ms": 1, "members": [member("/old", "a", 9)]}
    now = [member("/h1", "a", 2), member("/h1", "b", 1), member("/h2", "c", 0)]
    gone = {"group_id": "gone", "tombstone": False, "log_ms": 1, "members": [member("/h1", "x", 1)]}
    put(
        tmp_path,
        "generations",
        first,
        first | {"log_ms": 5, "members": now},
        gone,
        {"group_id": "gone", "tombstone": True, "log_ms": 2},
    )
    unread = {"members": 0, "at_ms": BEGAN_MS, "protocol": "classic", "partitions": 1}
    put(
        tmp_path,
        "health",
        {"group_id": "g", "members": 3, "at_ms": BEGAN_MS},
        unread | {"group_id": "new", "last_commit_ms": BEGAN_MS - 12 * HOUR_MS, "records_behind": 4},
        unread | {"group_id": "old", "last_commit_ms": BEGAN_MS - 240 * HOUR_MS, "records_behind": 0},
    )
    monkeypatch.chdir(tmp_path)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        files = sorted(VIEWS.glob("*.sql"), key=lambda file: (file.stem in ORDER, file.stem))
        for file in (VIEWS / "engines" / "duckdb.sql", *files):
            connection.execute(file.read_text())
        yield connection


def rows(answers: duckdb.DuckDBPyConnection, columns: str, view: str) -> Sequence[tuple[Any, ...]]:
    return answers.execute(f"SELECT {columns} FROM {view}").fetchall()


def test_every_file_has_a_view_of_its_name(answers: duckdb.DuckDBPyConnection) -> None:
    views = {name for (name,) in answers.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal").fetchall()}
    assert views == {file.stem for file in VIEWS.glob("*.sql")} | {"rebalances_once", *SOURCES}


def test_lag_by_group_and_hour(answers: duckdb.DuckDBPyConnection) -> None:
    columns = "hour(hour), group_id, records_behind_max, records_behind_avg, records_read, records_written"
    assert rows(answers, columns, "lag_by_group_and_hour") == [
        (9, "g", 40, 25.0, 50, 80),
        (10, "g", 0, 0.0, 0, 0),
        (10, "h", 7, 7.0, 0, 0),
    ]


def test_rebalances_by_cause_count_a_recorded_one_once(answers: duckdb.DuckDBPyConnection) -> None:
    columns = "cause, rebalances, longest_ms, partitions_moved, unassigned_partition_seconds"
    assert rows(answers, columns, "rebalances_by_cause") == [
        ("1 member disappeared", 1, 100, 0, None),
        ("1 member joined", 1, 100, 1, 2.0),
        ("new member", 1, 70, 2, None),
    ]


def test_members_by_host_are_those_of_the_last_generation(answers: duckdb.DuckDBPyConnection) -> None:
    assert rows(answers, "*", "members_by_host") == [("/h1", "g", 2, 3, ["a", "b"]), ("/h2", "g", 1, 0, ["c"])]


def test_what_a_deploy_cost_is_the_sum_of_its_rebalances(answers: duckdb.DuckDBPyConnection) -> None:
    columns = "minute(ended), rebalances, members_joined, members_left, partitions_moved, records_behind_max"
    assert rows(answers, columns, "what_a_deploy_cost") == [(29, 2, 2, 0, 3, 40), (50, 1, 0, 1, 0, None)]


def test_groups_nobody_reads_begin_with_the_oldest(answers: duckdb.DuckDBPyConnection) -> None:
    found = rows(answers, "group_id, days_without_commit, records_behind", "groups_nobody_reads")
    assert found == [("old", 10.0, 0), ("new", 0.5, 4)]


# --- the notebook -----------------------------------------------------------------------------------------------------


def test_the_notebook_is_stored_without_outputs() -> None:
    """They would have paths and tables of the machine that ran it."""
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells(EXAMPLES / "groups.ipynb"))


class DuckSession:
    """What the notebook asks of a session of Spark, answered by DuckDB, which has the same views."""

    def __init__(self, answers: duckdb.DuckDBPyConnection) -> None:
        self._answers = answers
        self.builder = self.conf = self
        self.settings: dict[str, str] = {}
        self.statements: list[str] = []

    def appName(self, _name: str) -> DuckSession:  # noqa: N802  as in Spark
        return self

    def getOrCreate(self) -> DuckSession:  # noqa: N802  as in Spark
        return self

    def set(self, name: str, value: str) -> None:
        self.settings[name] = value

    def sql(self, statement: str) -> None:
        """Keep it: it is in Spark's SQL, and the views are there."""
        self.statements.append(statement)

    def table(self, name: str) -> DuckSession:
        session = DuckSession(self._answers)
        session.statements = [f"FROM {name}"]
        return session

    def toPandas(self) -> Any:  # noqa: N802  as in Spark
        return self._answers.execute(self.statements[-1]).df()


def test_the_notebook_draws_each_answer(
    answers: duckdb.DuckDBPyConnection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = DuckSession(answers)
    monkeypatch.setattr("pyspark.sql.SparkSession", session)
    monkeypatch.setenv("GROUP_VIEWS", str(VIEWS))
    _, *shown = run(EXAMPLES / "groups.ipynb", tmp_path)
    assert [len(frame) for frame in shown] == [2, 3, 2, 2, 2]
    assert len(list(tmp_path.glob("*.png"))) == 5
    views = [statement.split("TEMPORARY VIEW ")[1].split()[0] for statement in session.statements]
    assert sorted(views) == sorted([*SOURCES, "rebalances_once", *(file.stem for file in VIEWS.glob("*.sql"))])
    assert f"path '{tmp_path}/groups/health'" in "".join(session.statements)


@in_the_soak
@pytest.mark.real_time
@pytest.mark.timeout(300)
def test_the_notebook_runs_in_spark_and_its_views_answer_as_in_duckdb(
    answers: duckdb.DuckDBPyConnection, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GROUP_TABLES", str(tmp_path / "groups"))
    monkeypatch.setenv("GROUP_VIEWS", str(VIEWS))
    zone = str(spark.conf.get("spark.sql.session.timeZone"))
    try:
        _, *shown = run(EXAMPLES / "groups.ipynb", tmp_path)
        in_spark = {file.stem: _as_text(spark, file.stem) for file in VIEWS.glob("*.sql")}
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    in_duckdb = {view: _sorted(rows(answers, "*", view)) for view in in_spark}
    assert in_spark == in_duckdb
    assert [len(frame) for frame in shown] == [2, 3, 2, 2, 2]


def _as_text(spark: SparkSession, view: str) -> list[str]:
    """Times are text: as objects they would be in the time zone of this machine."""
    frame = spark.table(view)
    columns = [F.col(name).cast("string") if kind == "timestamp" else F.col(name) for name, kind in frame.dtypes]
    return _sorted(frame.select(*columns).collect())


def _sorted(found: Sequence[Any]) -> list[str]:
    return sorted(repr(tuple(str(each) if isinstance(each, datetime) else each for each in row)) for row in found)
