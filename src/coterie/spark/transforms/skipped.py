"""What was passed over, counted: types that are not of our concern, and garbage."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  as everybody writes it

from coterie.spark.decoding.decode import FACT, GROUP, OFFSETS_TOPIC
from coterie.spark.schemas import SKIPPED

__all__ = ["skipped"]


def skipped(decoded: DataFrame, folded: DataFrame | None) -> DataFrame:
    """At the first reading, and those of groups, whose values are read later; None if there are none."""
    kind = F.col("other.kind")
    at_once = decoded.where(kind.isNotNull() & ~kind.isin(GROUP, FACT)).select(
        kind.alias("kind"),
        F.col("other.reason").alias("reason"),
        F.lit(1).cast("bigint").alias("records"),
        F.lit(OFFSETS_TOPIC).alias("log_topic"),  # facts are read later
        "log_partition",
        F.col("log_offset").alias("first_offset"),
        F.col("log_offset").alias("last_offset"),
    )
    found = at_once
    if folded is not None:
        found = at_once.unionByName(folded.where(F.col("skipped").isNotNull()).select("skipped.*"))
    counted = found.groupBy("kind", "log_topic", "log_partition").agg(
        F.min_by("reason", "first_offset").alias("reason"),
        F.sum("records").alias("records"),
        F.min("first_offset").alias("first_offset"),
        F.max("last_offset").alias("last_offset"),
    )
    return counted.select(*(column.name for column in SKIPPED.columns))
