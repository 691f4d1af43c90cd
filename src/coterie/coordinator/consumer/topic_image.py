"""The topics that consumer groups know: names, ids, numbers of partitions, and whether any of that has changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Protocol
from uuid import UUID


class TopicImage(Protocol):
    @property
    def id(self) -> UUID: ...

    @property
    def partitions(self) -> int: ...


class TopicsImage(Protocol):
    """The broker's metadata cache is one."""

    @property
    def topics(self) -> Mapping[str, TopicImage]:
        """All topics by name."""

    @property
    def topic_names(self) -> Mapping[UUID, str]: ...

    @property
    def version(self) -> int:
        """A number that grows whenever a topic is created or deleted, or gets partitions."""


class NoTopics:
    """The image of a coordinator that was given none."""

    topics: Mapping[str, TopicImage] = {}
    topic_names: Mapping[UUID, str] = {}
    version = 0


def metadata_hash(image: TopicsImage, names: Iterable[str]) -> int:
    """Return a number that differs if any of these topics has changed; 0 if none of them exists (K28)."""
    topics = image.topics
    found = [(name, topics[name]) for name in sorted(names) if name in topics]
    if not found:
        return 0
    digest = blake2b(digest_size=8)
    for name, topic in found:
        digest.update(f"{name}\0{topic.id}\0{topic.partitions}\0".encode())
    return int.from_bytes(digest.digest(), "big", signed=True)
