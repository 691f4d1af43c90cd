"""How far each group is behind in each partition."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  as everybody writes it

from coterie.spark.schemas import LAG

__all__ = ["lag", "waiting"]

_PLACE = ["topic", "partition"]


def waiting(last_commits: DataFrame, ends: DataFrame) -> DataFrame:
    """The next record of every group that has one to read: topic, partition, committed, log_end; the furthest first."""
    found = last_commits.join(ends, _PLACE).where(F.col("offset") < F.col("log_end"))
    places = found.select(*_PLACE, F.col("offset").alias("committed"), "log_end").distinct()
    return places.orderBy((F.col("log_end") - F.col("committed")).desc(), *_PLACE)


def lag(last_commits: DataFrame, ends: DataFrame, times: DataFrame, owners: DataFrame, at_ms: int) -> DataFrame:
    """`ends`: topic, partition, log_end. `times`: topic, partition, committed, record_ms, of those looked at."""
    committed = last_commits.withColumnRenamed("offset", "committed")
    held = owners.select("group_id", *_PLACE, "member_id")
    joined = (
        committed.join(ends, _PLACE, "left")
        .join(times.select(*_PLACE, "committed", "record_ms"), [*_PLACE, "committed"], "left")
        .join(held, ["group_id", *_PLACE], "left")
    )
    behind = F.greatest(F.col("log_end") - F.col("committed"), F.lit(0))
    is_there, waits = F.col("log_end").isNotNull(), F.col("records_behind") > 0
    since_ms = F.coalesce("record_ms", "commit_ms")
    rows = (
        joined.withColumn("at_ms", F.lit(at_ms).cast("bigint"))
        .withColumn("records_behind", F.when(is_there, behind))
        .withColumn(
            "seconds_behind",
            F.when(~waits, F.lit(0.0)).when(waits, F.greatest(F.lit(at_ms) - since_ms, F.lit(0)) / 1000.0),
        )
        .withColumn(
            "seconds_from",
            F.when(~waits, "nothing waits").when(
                waits, F.when(F.col("record_ms").isNotNull(), "record").otherwise("commit")
            ),
        )
    )
    return rows.select(*(column.name for column in LAG.columns))
