"""The records of each group in order, with what is remembered of it, to all that they tell.

One group is one call: its records stand in one partition of the log, and what they mean depends on those before. Groups
are independent, so Spark spreads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  as everybody writes it

from coterie.errors import MalformedError
from coterie.spark.decoding.decode import FACT, FACTS_TOPIC, GARBAGE, GROUP, OFFSETS_TOPIC
from coterie.spark.history import At, GroupHistory
from coterie.spark.schemas import FOLDED

__all__ = ["fold_group", "folded"]

_WHERE = ("log_partition", "log_offset", "log_ms")
_OTHER = ("kind", "key", "value")


def folded(decoded: DataFrame, groups: DataFrame, names: Mapping[str, str]) -> DataFrame:
    """`groups` is the state before; `names` are those of the topics by id. Groups without a record are not in it."""
    records = decoded.where(F.col("other.kind").isin(GROUP, FACT))
    records = records.select("group_id", *_WHERE, *(F.col(f"other.{name}").alias(name) for name in _OTHER))
    concerned = groups.join(records.select("group_id").distinct(), "group_id", "left_semi").select("group_id", "memory")
    together = records.groupBy("group_id").cogroup(concerned.groupBy("group_id"))
    return together.applyInArrow(partial(fold_group, dict(names)), FOLDED.ddl)


def fold_group(names: Mapping[str, str], records: Any, before: Any) -> Any:
    (group_id,) = records.column("group_id").unique().to_pylist()
    memory = before.column("memory").to_pylist()
    history = GroupHistory.from_json(group_id, names, memory[0]) if memory else GroupHistory(group_id, names)
    skipped = []
    in_order = records.sort_by([("log_partition", "ascending"), ("log_offset", "ascending")])
    for row in in_order.to_pylist():
        at = At(row["log_partition"], row["log_offset"], row["log_ms"])
        try:
            if row["kind"] == FACT:
                history.fact(row["value"] or b"", at)
            else:
                history.record(row["key"], row["value"], at)
        except MalformedError as error:
            skipped.append(
                {
                    "kind": GARBAGE,
                    "reason": str(error),
                    "records": 1,
                    "log_topic": FACTS_TOPIC if row["kind"] == FACT else OFFSETS_TOPIC,
                    "log_partition": at.log_partition,
                    "first_offset": at.log_offset,
                    "last_offset": at.log_offset,
                }
            )
    told = history.told
    rows = [
        *({"generation": row} for row in told.generations),
        *({"interval": row} for row in told.intervals),
        *({"rebalance": row} for row in told.rebalances),
        *({"skipped": row} for row in skipped),
        {"state": history.state()},
    ]
    return pa.Table.from_pylist(rows, FOLDED.arrow)
