"""Records of `__consumer_offsets` and `__coterie_facts`, as the source reads them, to rows of one shape."""

from __future__ import annotations

from pyspark.sql import DataFrame

from coterie.spark.decoding import decode_batches
from coterie.spark.schemas import DECODED

__all__ = ["decoded"]


def decoded(records: DataFrame) -> DataFrame:
    wanted = records.select("key", "value", "topic", "partition", "offset", "timestamp")
    return wanted.mapInArrow(decode_batches, DECODED.ddl)
