"""The one file of ours in a data directory: `coterie-topics.json`, which topics there are, with a format version.

It is the truth: a topic exists from the moment it is written there, and is gone from the moment it is not.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from coterie.errors import MalformedError
from coterie.log.checkpoints import id_text, parse_id

__all__ = ["FORMAT", "TOPICS_FILE", "LaterFormatError", "Topic", "decode_topics", "encode_topics", "is_legal_name"]

TOPICS_FILE = "coterie-topics.json"
FORMAT = 1
_MAX_NAME = 249
_LEGAL = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


class LaterFormatError(MalformedError):
    """Written by a later version of this package."""


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    id: UUID
    partitions: int
    configs: dict[str, str] = field(default_factory=dict)


def is_legal_name(name: str) -> bool:
    """Kafka's rule; it also keeps a name from leading out of the directory."""
    return 0 < len(name) <= _MAX_NAME and name not in {".", ".."} and _LEGAL.issuperset(name)


def encode_topics(topics: Iterable[Topic]) -> bytes:
    rows = [
        {"name": topic.name, "id": id_text(topic.id), "partitions": topic.partitions, "configs": topic.configs}
        for topic in sorted(topics, key=lambda topic: topic.name)
    ]
    return (json.dumps({"format": FORMAT, "topics": rows}, indent=1) + "\n").encode()


def decode_topics(data: bytes) -> list[Topic]:
    try:
        content = json.loads(data)
        if content["format"] > FORMAT:
            raise LaterFormatError(
                f"{TOPICS_FILE} has format {content['format']}, this version knows {FORMAT}: use the one that wrote it"
            )
        topics = [_topic(row) for row in content["topics"]]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, MalformedError):
            raise
        raise MalformedError(f"{TOPICS_FILE} is not what we write: {error!r}") from None
    if len({topic.name for topic in topics}) != len(topics):
        raise MalformedError(f"{TOPICS_FILE} names a topic twice")
    return topics


def _topic(row: dict[str, Any]) -> Topic:
    configs = {str(name): str(value) for name, value in row["configs"].items()}
    topic = Topic(row["name"], parse_id(row["id"]), int(row["partitions"]), configs)
    if not is_legal_name(topic.name) or topic.partitions < 1:
        raise MalformedError(f"{TOPICS_FILE} has topic {topic.name!r} with {topic.partitions} partitions")
    return topic
