"""The progress of a query in the shape of Spark's own Kafka source, computed from what Spark reports.

Spark asks a Python source for offsets alone, and prints them as they are: no metrics, no description. So what else
there is to say is among the offsets, under names that no topic can have: `#plan` in those that Spark keeps, and in a
group, in the latest offset, which it only prints:

    {"orders": {"0": 30}, "#source": {"description": "Coterie[Subscribe[orders]] as member of bar",
                                      "member": "member … is stable …", "metrics": {"rebalance-total": 1}}}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from coterie.client.types import TopicPartition
from coterie.errors import MalformedError
from coterie.spark.batch_plan import BatchPlan, by_topic
from coterie.spark.offsets import parse_numbers

__all__ = ["SOURCE", "kafka_progress"]

SOURCE = "#source"


def kafka_progress(progress: Any) -> list[dict[str, Any]]:
    """Return the progress of each source of a query that is format("coterie").

    Args:
        progress: `query.lastProgress`, or the progress that a listener gets.

    Returns:
        For each source `description`; `startOffset`, `endOffset` and `latestOffset`, as `{"orders": {"0": 23}}`;
        `metrics` with `minOffsetsBehindLatest`, `maxOffsetsBehindLatest` and `avgOffsetsBehindLatest`, texts as Spark
        has them; and in a group `member`, what the member is doing, as a sentence, with its metrics under Kafka's names
        among the others. What is unknown, because the source has not looked yet, is None or left out.
    """
    return [found for source in progress.sources if (found := _source_progress(source)) is not None]


def _source_progress(source: Any) -> dict[str, Any] | None:
    """Return the progress of one source; None if it is another source than ours, or has read nothing."""
    try:
        start, end = (json.loads(text or "null") for text in (source.startOffset, source.endOffset))
        plan = BatchPlan.from_json(end, BatchPlan.from_json(start) if start else None)
    except (MalformedError, ValueError):
        return None
    reported = json.loads(source.latestOffset or "null")
    about = reported.pop(SOURCE, {}) if reported else {}
    latest = parse_numbers(json.dumps(reported)) if reported else None
    own = {name: str(value) for name, value in about.get("metrics", {}).items() if value is not None}
    return {
        "description": about.get("description") or f"Coterie[{', '.join(sorted({each.topic for each in plan.spans}))}]",
        "startOffset": by_topic({each: span.from_offset for each, span in plan.spans.items()}),
        "endOffset": by_topic(plan.ends()),
        "latestOffset": None if latest is None else by_topic(latest),
        "metrics": _behind_latest(plan.ends(), latest or {}) | own,
        "member": about.get("member"),
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
