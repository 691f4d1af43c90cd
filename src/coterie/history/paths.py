"""Where things are in ZooKeeper (semantics 13), and what is written there."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from coterie.history.design_types import Partition

__all__ = [
    "BROKERS",
    "Paths",
    "read_assignment",
    "read_broker",
    "read_offset",
    "read_topics",
    "write_assignment",
    "write_offset",
    "write_topics",
]

BROKERS = "/brokers/ids"


class Paths:
    def __init__(self, group_id: str) -> None:
        root = f"/consumers/{group_id}"
        self.ids = f"{root}/ids"
        self._owners = f"{root}/owners"
        self._offsets = f"{root}/offsets"
        self.coordinator = f"{root}/coordinator"
        """Design 2: who it is, while it lives."""
        self.assignment = f"{root}/assignment"
        """Design 2: the generation and who owns what in it. Its version is the fence for offsets."""

    def member(self, member_id: str) -> str:
        return f"{self.ids}/{member_id}"

    def owner(self, partition: Partition) -> str:
        return f"{self._owners}/{partition[0]}/{partition[1]}"

    def offset(self, partition: Partition) -> str:
        return f"{self._offsets}/{partition[0]}/{partition[1]}"


def write_topics(topics: Iterable[str]) -> bytes:
    return json.dumps({"topics": list(topics)}).encode()


def read_topics(data: bytes) -> list[str]:
    found: list[str] = json.loads(data)["topics"]
    return found


def write_offset(offset: int) -> bytes:
    return str(offset).encode()


def read_offset(data: bytes) -> int:
    return int(data)


def read_assignment(data: bytes) -> tuple[int, dict[Partition, str]]:
    """Design 2: the generation, and who owns what in it."""
    said = json.loads(data)
    return said["generation"], {(topic, number): owner for topic, number, owner in said["owners"]}


def write_assignment(generation: int, owners: Mapping[Partition, str]) -> bytes:
    rows = [[topic, number, owner] for (topic, number), owner in sorted(owners.items())]
    return json.dumps({"generation": generation, "owners": rows}).encode()


def read_broker(data: bytes) -> str:
    """The address members connect to."""
    return data.decode()
