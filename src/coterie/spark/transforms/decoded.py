"""Records of `__consumer_offsets` and `__coterie_facts` to rows of one shape, wherever they come from.

The pipeline itself has them decoded where they are read (`coterie.spark.group_log`), which spares a way through Spark.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from coterie.spark.decoding import decode_batches
from coterie.spark.schemas import DECODED

__all__ = ["decoded"]


def decoded(records: DataFrame) -> DataFrame:
    """`records` has columns as those of Spark's Kafka source."""
    wanted = records.select("key", "value", "topic", "partition", "offset", "timestamp")
    return wanted.mapInArrow(decode_batches, DECODED.ddl)
