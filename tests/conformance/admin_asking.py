"""What steps of an administrator ask: reassignments, elections, log directories, the quorum, quotas, transactions.

Lists are written with commas. Topics are `t:0:1` (a topic and its partitions), `t` (no partition), `all` (null),
`illegal` (a name that no topic can have) and `nameless` (an empty name).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from conformance.script import Step

__all__ = ["ADMIN_VALUES"]

ILLEGAL = {"illegal": "a b", "nameless": ""}
MATCHES = {"exact": 0, "default": 1, "any": 2}


def _words(text: str) -> list[str]:
    return [word for word in text.split(",") if word]


def _topic(word: str) -> str:
    return ILLEGAL.get(word, word)


def _listed(text: str, name: str, partitions: str) -> list[dict[str, Any]] | None:
    """Topics with the numbers of their partitions; None for `all`."""
    if text == "all":
        return None
    return [
        {name: _topic(topic), partitions: [int(number) for number in numbers]}
        for topic, *numbers in (word.split(":") for word in _words(text))
    ]


def _reassign(step: Step, _known: Any) -> dict[str, Any]:
    """`t:0:1+2` asks for replicas on 1 and 2, `t:0:none` for none, `t:0:cancel` for the end of a reassignment."""
    topics: list[dict[str, Any]] = []
    for word in _words(step.args["topics"]):
        name, *entry = word.split(":")
        if not topics or topics[-1]["name"] != _topic(name):
            topics.append({"name": _topic(name), "partitions": []})
        if entry:
            number, replicas = entry
            topics[-1]["partitions"].append({"partition_index": int(number), "replicas": _replicas(replicas)})
    return {"timeout": 10_000, "topics": topics, "allow_replication_factor_change": step.args["change"] == "yes"}


def _replicas(word: str) -> Sequence[int] | None:
    return None if word == "cancel" else [int(each) for each in word.split("+") if each != "none"]


def _reassignments(step: Step, _known: Any) -> dict[str, Any]:
    return {"timeout": 10_000, "topics": _listed(step.args["topics"], "name", "partition_indexes")}


def _elect(step: Step, _known: Any) -> dict[str, Any]:
    topics = _listed(step.args["topics"], "topic", "partitions")
    return {"timeout": 10_000, "topic_partitions": topics, "election_type": int(step.args["type"])}


def _log_dirs(step: Step, known: Any) -> dict[str, Any]:
    """`own/t:0` asks for a partition in the directory that the broker has, `other/t:0` in another one."""
    dirs = []
    for word in _words(step.args["at"]):
        directory, _, topic = word.partition("/")
        path = {"own": known.log_dir, "slash": known.log_dir + "/", "relative": "data", "empty": ""}
        topics = _listed(topic, "name", "partitions")
        dirs.append({"path": path.get(directory, f"/{directory}"), "topics": topics})
    return {"dirs": dirs}


def _quorum(step: Step, _known: Any) -> dict[str, Any]:
    asked = _listed(step.args["topics"], "topic_name", "partitions") or []
    return {
        "topics": [
            {**topic, "partitions": [{"partition_index": number} for number in topic["partitions"]]} for topic in asked
        ]
    }


def _resources(step: Step, _known: Any) -> dict[str, Any]:
    return {"resource_types": [int(word) for word in _words(step.args["kinds"])]}


def _quotas(step: Step, _known: Any) -> dict[str, Any]:
    """`user:any`, `user:exact:alice`, `:any` (no type), `user:7` (no such way to match)."""
    components = []
    for word in _words(step.args["filter"]):
        kind, how, *match = word.split(":")
        match_type = MATCHES[how] if how in MATCHES else int(how)
        components.append({"entity_type": kind, "match_type": match_type, "match": match[0] if match else None})
    return {"components": components, "strict": step.args["strict"] == "yes"}


def _limit(step: Step, _known: Any) -> dict[str, Any]:
    """`user:alice+client-id/producer_byte_rate:10` sets a quota, `user:alice/producer_byte_rate` removes it."""
    entries = []
    for word in _words(step.args["entries"]):
        entity, _, ops = word.partition("/")
        named = (each.partition(":") for each in entity.split("+") if each)
        changed = (each.partition(":") for each in ops.split("+") if each)
        entries.append(
            {
                "entity": [{"entity_type": kind, "entity_name": name or None} for kind, _, name in named],
                "ops": [{"key": key, "value": float(value or 0), "remove": not value} for key, _, value in changed],
            }
        )
    return {"entries": entries, "validate_only": step.args["validate"] == "yes"}


def _producers(step: Step, _known: Any) -> dict[str, Any]:
    return {"topics": _listed(step.args["topics"], "name", "partition_indexes")}


def _transaction(step: Step, _known: Any) -> dict[str, Any]:
    return {"transactional_ids": [_topic(word) for word in _words(step.args["ids"])]}


def _transactions(step: Step, _known: Any) -> dict[str, Any]:
    pattern = step.args["pattern"]
    return {
        "state_filters": _words(step.args["in"]),
        "producer_id_filters": [int(word) for word in _words(step.args["ids"])],
        "duration_filter": int(step.args["duration"]),
        "transactional_id_pattern": None if pattern == "null" else pattern,
    }


ADMIN_VALUES = {
    "reassign": _reassign,
    "reassignments": _reassignments,
    "elect": _elect,
    "log-dirs": _log_dirs,
    "quorum": _quorum,
    "resources": _resources,
    "quotas": _quotas,
    "limit": _limit,
    "producers": _producers,
    "transaction": _transaction,
    "transactions": _transactions,
}
