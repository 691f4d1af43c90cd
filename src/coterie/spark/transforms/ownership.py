"""Intervals in which a member held a partition: those that ended, and those that last."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  as everybody writes it

__all__ = ["owners", "ownership"]


def ownership(folded: DataFrame) -> DataFrame:
    return folded.where(F.col("interval").isNotNull()).select("interval.*")


def owners(groups: DataFrame) -> DataFrame:
    """`groups` is the state of all groups."""
    return groups.select(F.explode("owners").alias("owner")).select("owner.*")
