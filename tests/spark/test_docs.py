"""Pages that start Spark are played with the session that is there; the queries of docs/pipeline.md also on tables that
have to answer them.
"""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from time import time  # noqa: TID251  the query asks for the last day

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from coterie.spark.pipeline.schemas import TABLES
from docs.blocks import blocks_by_page, needs_spark
from docs.playing import play

PAGES = {name: blocks for name, blocks in blocks_by_page().items() if needs_spark(blocks)}
PAGE = (Path(__file__).parents[2] / "docs" / "pipeline.md").read_text()
DAY_MS = 86_400_000


def query(language: str) -> str:
    (block,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return str(block)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", PAGES)
def test_what_a_page_shows_happens(name: str, spark: SparkSession, tmp_path: Path) -> None:
    play(PAGES[name], tmp_path)
    for query in spark.streams.active:
        query.stop()


@pytest.mark.timeout(900)
@pytest.mark.real_time
def test_the_example_of_a_query_in_a_group_runs(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    """The session it asks for is the one that is there."""
    runpy.run_path(str(Path(__file__).parents[2] / "examples" / "spark_in_a_group.py"), run_name="__main__")
    assert not spark.streams.active
    shares, why = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"Python has orders-\d orders-\d and Spark the rest", shares)
    assert why.count("new member;") == 2, why


@pytest.fixture
def in_a_folder_with_rebalances(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three of today and one of the day before yesterday, in two batches; one more was observed."""
    now_ms = int(time() * 1_000)
    one = {"group_id": "g", "evidence": "derived", "cause": "1 member came", "duration_ms": 5, "ended_ms": now_ms}
    old = one | {"ended_ms": now_ms - 2 * DAY_MS, "duration_ms": 900, "cause": "1 member disappeared"}
    seen = one | {"evidence": "observed", "cause": "new member"}
    for batch, rows in enumerate([[one, one, old], [one, seen]]):
        folder = tmp_path / "groups" / "rebalances" / "date=2026-11-18" / f"batch-{batch}"
        folder.mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(rows, TABLES["rebalances"].arrow), folder / "part-0.parquet")
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("in_a_folder_with_rebalances")
def test_the_query_in_pandas_runs(capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(query("python"), "pipeline.md", "exec"), {})
    said = capsys.readouterr().out
    assert re.search(r"g\s+1 member came\s+3\n", said) and "new member" not in said


@pytest.mark.usefixtures("in_a_folder_with_rebalances")
def test_the_query_in_duckdb_runs() -> None:
    assert duckdb.connect().execute(query("sql")).fetchall() == [("g", "1 member came", 3, 5)]
