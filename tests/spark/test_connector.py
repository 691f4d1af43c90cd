"""The table of docs/spark.md that compares format("coterie") with Spark's own Kafka source: what it says of ours is
tested with every run, and all of it, with Spark's jars, by `make spark-connector`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from coterie.spark.options import OPTIONS
from spark.connector_cases import CASES, Case, World, shown, written
from spark.topics import Topic

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(600)]

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"
BEGIN, END = "<!-- made by `make spark-connector` -->\n", "<!-- end -->\n"
HEAD = "| | Spark's own | Coterie | |\n|---|---|---|---|\n"
with_jars = pytest.mark.skipif(
    "spark-kafka" not in os.environ.get("COTERIE_SPARK_JARS", ""), reason="make spark-connector runs it"
)
QUICK = [case for case in CASES if not case.is_stream and case.probe is not written][::4]
"""Every fourth of the cases that read a batch; make spark-connector runs all."""
_numbers = count()


def printed(case: Case, own: str, ours: str) -> str:
    verdict = "same" if own == ours else f"**different**: {case.why}"
    return f"| {case.name} | {own} | {ours if own != ours else ''} | {verdict} |\n"


def table() -> dict[str, str]:
    """The lines of the page, by their first cell."""
    text = PAGE.read_text().partition(BEGIN)[2].partition(END)[0].removeprefix(HEAD)
    return {line.split(" | ")[0].removeprefix("| "): line for line in text.splitlines(keepends=True)}


@pytest.fixture(scope="module")
def filled() -> Iterator[Topic]:
    with Topic.on_a_broker() as topic:
        World.fill(topic)
        yield topic


def world(spark: SparkSession, topic: Topic, folder: Path, source: str) -> World:
    scratch = folder / f"{source}-{next(_numbers)}"
    scratch.mkdir()
    return World(spark, topic, scratch, source)


def test_the_page_has_a_row_for_each_case_and_a_reason_for_each_difference() -> None:
    assert list(table()) == [case.name for case in CASES]
    for case in CASES:
        assert ("**different**" in table()[case.name]) == bool(case.why), case.name


def test_every_option_is_in_the_table() -> None:
    """But for the two that are for what Spark's own source does not have."""
    given = {name for case in CASES for name in case.given}
    assert {option.name for option in OPTIONS} - given == {"checkpointLocation", "transactionalSink"}


@pytest.mark.parametrize("case", QUICK, ids=[case.name for case in QUICK])
def test_ours_does_what_the_page_says(case: Case, spark: SparkSession, filled: Topic, tmp_path: Path) -> None:
    _, own, ours, _ = (cell.strip() for cell in table()[case.name].strip().strip("|").split(" | "))
    assert shown(case, world(spark, filled, tmp_path, "coterie")) == (ours or own)


@with_jars
def test_both_do_what_the_page_says(spark: SparkSession, filled: Topic, tmp_path: Path) -> None:
    """With COTERIE_WRITE_TABLE the page gets what was seen."""
    lines = []
    for case in CASES:
        own, ours = (shown(case, world(spark, filled, tmp_path, source)) for source in ("kafka", "coterie"))
        lines.append(printed(case, own, ours))
        print(lines[-1], end="", flush=True)  # noqa: T201  it takes minutes
    if "COTERIE_WRITE_TABLE" in os.environ:
        before, rest = PAGE.read_text().split(BEGIN)
        PAGE.write_text(before + BEGIN + HEAD + "".join(lines) + END + rest.split(END, 1)[1])
    assert lines == list(table().values())
