"""The progress of a query in the shape of Spark's own Kafka source, computed from what Spark reports.

Spark reports the offsets of a Python source as the source keeps them in the checkpoint, which here is a plan, and asks
it for no metrics. Everything that the Kafka source reports is in the plan and in the end of the log.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from coterie.client.types import TopicPartition
from coterie.errors import MalformedError
from coterie.spark.batch_plan import BatchPlan, by_topic
from coterie.spark.offsets import parse_numbers

__all__ = ["kafka_progress"]


def kafka_progress(progress: Any) -> list[dict[str, Any]]:
    """Return the progress of each source of a query that is format("coterie").

    Args:
        progress: `query.lastProgress`, or the progress that a listener gets.

    Returns:
        For each source `startOffset`, `endOffset` and `latestOffset`, as `{"orders": {"0": 23}}`, and `metrics` with
        `minOffsetsBehindLatest`, `maxOffsetsBehindLatest` and `avgOffsetsBehindLatest`, texts as Spark has them. If the
        end of the log is unknown, `latestOffset` is None and `metrics` are empty.
    """
    return [found for source in progress.sources if (found := _source_progress(source)) is not None]


def _source_progress(source: Any) -> dict[str, Any] | None:
    """Return the progress of one source; None if it is another source than ours, or has read nothing."""
    try:
        plan = BatchPlan.from_json(json.loads(source.endOffset or "null"))
    except (MalformedError, ValueError):
        return None
    latest = parse_numbers(source.latestOffset) if source.latestOffset not in {None, "", "null"} else None
    return {
        "startOffset": by_topic({each: span.from_offset for each, span in plan.spans.items()}),
        "endOffset": by_topic(plan.ends()),
        "latestOffset": None if latest is None else by_topic(latest),
        "metrics": _behind_latest(plan.ends(), latest or {}),
    }


def _behind_latest(ends: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]) -> dict[str, str]:
    behind = [latest[each] - end for each, end in ends.items() if each in latest]
    if not behind:
        return {}
    return {
        "minOffsetsBehindLatest": str(min(behind)),
        "maxOffsetsBehindLatest": str(max(behind)),
        "avgOffsetsBehindLatest": str(sum(behind) / len(behind)),
    }
