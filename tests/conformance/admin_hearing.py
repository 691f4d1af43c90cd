"""What is left out of an answer to an administrator, and what is sorted: all that Kafka has from maps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from conformance.profiles import TOPICS
from conformance.script import Step

__all__ = ["write_down_for_admin"]

Written = dict[str, Any]
KNOWN = {*TOPICS, "__consumer_offsets"}
"""The topics of other cases are left out."""
OF_THE_LOG = {"leader_epoch", "high_watermark", "log_end_offset", "last_fetch_timestamp", "last_caught_up_timestamp"}
"""Of the metadata log, which Coterie has not; a test of its own says what it answers."""


def _elected(step: Step, written: Written) -> None:
    if step.args["topics"] == "all" and "replica_election_results" in written:
        ours = [each for each in written["replica_election_results"] if each["topic"] in KNOWN]
        written["replica_election_results"] = sorted(ours, key=lambda each: str(each["topic"]))


def _log_dirs(_step: Step, written: Written) -> None:
    results = written.get("results", [])
    results.sort(key=lambda each: str(each["topic_name"]))
    for topic in results:
        topic["partitions"].sort(key=lambda each: int(each.get("partition_index", 0)))


def _quorum(_step: Step, written: Written) -> None:
    for topic in written.get("topics", []):
        for partition in topic.get("partitions", []):
            for entry in (partition, *partition.get("current_voters", [])):
                for name in OF_THE_LOG & entry.keys():
                    del entry[name]
    for node in written.get("nodes", []):
        node.pop("listeners")


def _resources(step: Step, written: Written) -> None:
    """Types stay in Kafka's order, names are sorted within."""
    found = written.get("config_resources", [])
    order = list(dict.fromkeys(each.get("resource_type") for each in found))
    ours = [each for each in found if each["resource_name"] in KNOWN or each["resource_name"].isdigit()]
    written["config_resources"] = sorted(
        ours, key=lambda each: (order.index(each.get("resource_type")), each["resource_name"])
    )


def _limited(_step: Step, written: Written) -> None:
    for entry in written.get("entries", []):
        entry.get("entity", []).sort(key=lambda each: str(each["entity_type"]))
    written.get("entries", []).sort(key=lambda each: str(each.get("entity")))


def _transactions(_step: Step, written: Written) -> None:
    written.get("unknown_state_filters", []).sort()


_RULES: Mapping[str, Callable[[Step, Written], None]] = {
    "elect": _elected,
    "log-dirs": _log_dirs,
    "quorum": _quorum,
    "resources": _resources,
    "limit": _limited,
    "transactions": _transactions,
}


def write_down_for_admin(step: Step, written: Written) -> None:
    rule = _RULES.get(step.what)
    if rule is not None:
        rule(step, written)
