"""The words of the client: what a user hands in and gets back."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["OffsetAndMetadata", "TopicPartition"]


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class OffsetAndMetadata(NamedTuple):
    """How far a group has come in a partition: the offset it will read next."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
