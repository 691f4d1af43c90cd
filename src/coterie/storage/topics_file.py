"""`coterie-topics.json`: which topics there are.

It is the truth: a topic exists from the moment it is written there, and is gone from the moment it is not. A topic that
is deleted is named as such until its directories have other names: a directory of a topic that is not named at all was
not left by a deletion.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from coterie.errors import MalformedError
from coterie.storage.checkpoints import id_text, parse_id
from coterie.storage.files import Files
from coterie.storage.own_files import TOPICS

__all__ = ["Topic", "Topics", "decode_topics", "encode_topics", "is_legal_name", "read_topics", "write_topics"]

_MAX_NAME = 249
_LEGAL = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    id: UUID
    partitions: int
    configs: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Topics:
    """What the file says."""

    topics: dict[str, Topic] = field(default_factory=dict)
    deleted: dict[UUID, str] = field(default_factory=dict)
    """Topics whose directories may still have the topic's name."""


def is_legal_name(name: str) -> bool:
    """Kafka's rule; it also keeps a name from leading out of the directory."""
    return 0 < len(name) <= _MAX_NAME and name not in {".", ".."} and _LEGAL.issuperset(name)


def write_topics(files: Files, topics: Iterable[Topic], deleted: Mapping[UUID, str]) -> None:
    TOPICS.write(files, encode_topics(topics, deleted))


def read_topics(files: Files) -> Topics:
    content = TOPICS.read(files)
    try:
        found = decode_topics(content.payload)
    except MalformedError as error:
        raise TOPICS.damaged(f"is not what we write: {error}") from None
    TOPICS.renew(files, content)
    return found


def encode_topics(topics: Iterable[Topic], deleted: Mapping[UUID, str]) -> bytes:
    """JSON with a topic a line: with an indent for every level it would take ten times as long to write."""
    rows = [
        json.dumps(
            {"name": topic.name, "id": id_text(topic.id), "partitions": topic.partitions, "configs": topic.configs}
        )
        for topic in sorted(topics, key=lambda topic: topic.name)
    ]
    gone = {id_text(topic_id): name for topic_id, name in deleted.items()}
    lines = ",\n  ".join(rows)
    return f'{{"topics": [\n  {lines}\n ],\n "deleted": {json.dumps(gone)}\n}}\n'.encode()


def decode_topics(payload: bytes) -> Topics:
    try:
        content = json.loads(payload)
        topics = [_topic(row) for row in content["topics"]]
        deleted = {parse_id(topic_id): str(name) for topic_id, name in content.get("deleted", {}).items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, MalformedError):
            raise
        raise MalformedError(repr(error)) from None
    found = Topics({topic.name: topic for topic in topics}, deleted)
    if len(found.topics) != len(topics) or len({topic.id for topic in topics}) != len(topics):
        raise MalformedError("it names a topic twice")
    return found


def _topic(row: dict[str, Any]) -> Topic:
    configs = {str(name): str(value) for name, value in row["configs"].items()}
    topic = Topic(row["name"], parse_id(row["id"]), int(row["partitions"]), configs)
    if not is_legal_name(topic.name) or topic.partitions < 1:
        raise MalformedError(f"it has topic {topic.name!r} with {topic.partitions} partitions")
    return topic
