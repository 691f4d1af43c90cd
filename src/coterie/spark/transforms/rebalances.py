"""Rebalances, derived and observed."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  as everybody writes it

__all__ = ["rebalances"]


def rebalances(folded: DataFrame) -> DataFrame:
    return folded.where(F.col("rebalance").isNotNull()).select("rebalance.*")
