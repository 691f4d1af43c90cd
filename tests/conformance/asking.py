"""From a step to the bytes of its request, with what its sender has heard so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from conformance.admin_asking import ADMIN_VALUES
from conformance.script import Step
from coterie.protocol.subscription import Subscription, write_subscription
from raw_kafka import fields_of, frame_of

__all__ = ["SUBSCRIPTIONS", "Known", "request_frame"]

METADATA_LIMIT = 16
"""`offset.metadata.max.bytes` in every profile, so that what is too long is still short."""
GHOST = UUID(int=0x600D_0057)
NOTHING = UUID(int=0)

SUBSCRIPTIONS: Mapping[str, bytes] = {
    "t": write_subscription(Subscription(["t"])),
    "u": write_subscription(Subscription(["u"])),
    "tu": write_subscription(Subscription(["t", "u"])),
    "v0": write_subscription(Subscription(["t"], version=0)),
    "empty": b"",
    "junk": b"junk",
    "no-list": b"\0\0\xff\xff\xff\xff",
    "absurd": b"\0\1\x7f\xff\xff\xff",
    "negative": b"\0\0\0\0\0\1\xff\xfe",
    "cut": b"\0\0\0\0\0\2\0\1t",
}
TEXTS = {"long": "x" * (METADATA_LIMIT + 1), "fits": "x" * METADATA_LIMIT, "null": None, "": ""}
"""Sixteen UTF-16 units fit, whatever they are in bytes."""
WIDE = {"wide": "\u00e9" * METADATA_LIMIT, "pairs": "\U0001f600" * (METADATA_LIMIT // 2), "odd": "\U0001f600" * 9}


@dataclass
class Known:
    """What the clients of one case know."""

    prefix: str
    """Before the names of groups, and of topics of the case's own: cases share a broker."""
    topic_ids: dict[str, UUID] = field(default_factory=dict)
    member_ids: dict[str, str] = field(default_factory=dict)
    """By who joined: the id it was told last."""
    generations: dict[str, int] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    """Member id -> the name it has in the transcript: `a1` is the first id that was made for `a`."""
    log_dir: str = ""
    """The directory that the broker has."""
    newcomers: list[int] = field(default_factory=list)
    """Joins that were sent without an id and are not answered yet: somebody else may hear of their id first."""

    def group(self, name: str) -> str:
        return "" if name == "none" else f"{self.prefix}{name}"

    def topic(self, name: str) -> str:
        return f"{self.prefix}{name}" if name == "x" else name

    def member(self, word: str, who: str) -> str:
        if word == "none":
            return ""
        if word == "own":
            return self.member_ids.get(who, "")
        named = {name: member_id for member_id, name in self.names.items()}
        return named.get(word) or self.member_ids.get(word) or f"{word}-id"

    def generation(self, word: str, who: str) -> int:
        own = self.generations.get(who, -1)
        return {"own": own, "older": own - 1, "newer": own + 1}[word] if word.isalpha() else int(word)


def request_frame(step: Step, known: Known, correlation_id: int) -> bytes:
    """The correlation id is the number of the step."""
    kind = step.kind
    assert kind is not None
    values = _VALUES[step.what](step, known)
    if step.what == "join" and not values["member_id"]:
        known.newcomers.append(correlation_id)
    has = fields_of(kind.api, step.version)
    lost = [arg for arg, name in _LATE.items() if step.args.get(arg) != kind.defaults.get(arg) and name not in has]
    if lost:
        raise ValueError(f"{step.text!r}: version {step.version} cannot say {', '.join(lost)}")
    return frame_of(
        kind.api, step.version, correlation_id, step.who, {name: values[name] for name in values if name in has}
    )


_LATE = {
    "instance": "group_instance_id",
    "rebalance": "rebalance_timeout",
    "retention": "retention_time",
    "stable": "require_stable",
    "operations": "include_authorized_operations",
    "states": "states_filter",
    "types": "types_filter",
    "protocol": "protocol_name",
}
"""What not every version can say; to say it all the same is a mistake of the case."""


def _or_null(word: str) -> str | None:
    return {"null": None, "none": ""}.get(word, word)


def _identity(step: Step, known: Known) -> dict[str, Any]:
    args = step.args
    return {
        "group_id": known.group(args["group"]),
        "member_id": known.member(args["member"], step.who),
        "group_instance_id": _or_null(args["instance"]),
    }


def _join(step: Step, known: Known) -> dict[str, Any]:
    offered = [word.partition(":") for word in step.args["protocols"].split(",") if word]
    return {
        **_identity(step, known),
        "session_timeout": int(step.args["session"]),
        "rebalance_timeout": int(step.args["rebalance"]),
        "protocol_type": _or_null(step.args["type"]),
        "protocols": [{"name": name, "metadata": SUBSCRIPTIONS[topics or "t"]} for name, _, topics in offered],
        "reason": None,
    }


def _sync(step: Step, known: Known) -> dict[str, Any]:
    wanted = step.args["assign"]
    if wanted == "all":
        given = [(member_id, f"for {name}") for member_id, name in known.names.items()]
    else:
        given = [(known.member(word, step.who), f"only {word}") for word in wanted.split(",") if word]
    return {
        **_identity(step, known),
        "generation_id": known.generation(step.args["generation"], step.who),
        "protocol_type": _or_null(step.args["type"]),
        "protocol_name": _or_null(step.args["protocol"]),
        "assignments": [{"member_id": member_id, "assignment": text.encode()} for member_id, text in given],
    }


def _heartbeat(step: Step, known: Known) -> dict[str, Any]:
    return {**_identity(step, known), "generation_id": known.generation(step.args["generation"], step.who)}


def _leave(step: Step, known: Known) -> dict[str, Any]:
    leaving = []
    for word in step.args["members"].split(",") if step.args["members"] else []:
        member, _, instance = word.partition("@")
        who: dict[str, str | None] = {"member_id": known.member(member, step.who)}
        if step.version >= 3:
            who["group_instance_id"] = instance or None
        if step.version >= 5:
            who["reason"] = "because"
        leaving.append(who)
    group = {"group_id": known.group(step.args["group"]), "members": leaving}
    return group if step.version >= 3 else {**group, "member_id": leaving[0]["member_id"]}


def _commit(step: Step, known: Known) -> dict[str, Any]:
    topics: dict[str, list[dict[str, Any]]] = {}
    for word in step.args["at"].split(",") if step.args["at"] else []:
        topic, partition, offset, *metadata = word.split(":")
        text = metadata[0] if metadata else "m"
        entry = {
            "partition_index": int(partition),
            "committed_offset": int(offset),
            "committed_metadata": {**TEXTS, **WIDE}.get(text, text),
        }
        if step.version >= 6:
            entry["committed_leader_epoch"] = int(metadata[1]) if len(metadata) > 1 else -1
        topics.setdefault(topic, []).append(entry)
    return {
        **_identity(step, known),
        "generation_id_or_member_epoch": known.generation(step.args["generation"], step.who),
        "retention_time": int(step.args["retention"]),
        "topics": [{**_named(topic, step, known), "partitions": entries} for topic, entries in topics.items()],
    }


def _named(topic: str, step: Step, known: Known) -> dict[str, Any]:
    if step.version < 10:
        return {"name": known.topic(topic)}
    return {"topic_id": None if topic == "nothing" else known.topic_ids.get(topic, GHOST)}


def _fetch(step: Step, known: Known) -> dict[str, Any]:
    wanted = step.args["topics"]
    topics = None if wanted == "all" else [word.split(":") for word in wanted.split(",") if word]
    asked = (
        None
        if topics is None
        else [
            {**_named(topic, step, known), "partition_indexes": [int(partition) for partition in partitions]}
            for topic, *partitions in topics
        ]
    )
    group_ids = _groups(step.args["groups"], known)
    groups: list[dict[str, Any]] = [{"group_id": group_id, "topics": asked} for group_id in group_ids]
    if step.version >= 9:
        groups = [{**group, "member_id": None, "member_epoch": -1} for group in groups]
    return {
        "group_id": group_ids[0] if group_ids else "",
        "topics": asked,
        "groups": groups,
        "require_stable": step.args["stable"] == "yes",
    }


def _groups(words: str, known: Known) -> Sequence[str]:
    return [known.group(word) for word in words.split(",") if word]


def _forget(step: Step, known: Known) -> dict[str, Any]:
    topics = [word.split(":") for word in step.args["topics"].split(",") if word]
    return {
        "group_id": known.group(step.args["group"]),
        "topics": [
            {
                "name": known.topic(topic),
                "partitions": [{"partition_index": int(partition)} for partition in partitions],
            }
            for topic, *partitions in topics
        ],
    }


def _describe(step: Step, known: Known) -> dict[str, Any]:
    return {
        "groups": _groups(step.args["groups"], known),
        "include_authorized_operations": step.args["operations"] == "yes",
    }


def _list(step: Step, known: Known) -> dict[str, Any]:
    return {
        "states_filter": [word for word in step.args["states"].split(",") if word],
        "types_filter": [word for word in step.args["types"].split(",") if word],
    }


def _delete(step: Step, known: Known) -> dict[str, Any]:
    return {"groups_names": _groups(step.args["groups"], known)}


_VALUES = {
    "join": _join,
    "sync": _sync,
    "heartbeat": _heartbeat,
    "leave": _leave,
    "commit": _commit,
    "fetch": _fetch,
    "forget": _forget,
    "describe": _describe,
    "list": _list,
    "delete": _delete,
    **ADMIN_VALUES,
}
