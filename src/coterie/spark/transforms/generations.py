"""Groups at their generations."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  as everybody writes it

__all__ = ["generations"]


def generations(folded: DataFrame) -> DataFrame:
    return folded.where(F.col("generation").isNotNull()).select("generation.*")
