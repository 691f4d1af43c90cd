"""What a reader wishes to have asked, of whom; and the settings it reads. No I/O.

Every wish comes back to `fetching.Fetcher` as one call: which, its docstring says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from coterie.apis import fetch
from coterie.apis.values import READ_COMMITTED, READ_UNCOMMITTED
from coterie.client.places import Place
from coterie.client.resets import LATEST, Reset
from coterie.errors import KafkaError

__all__ = [
    "AskCommitted",
    "AskOffsets",
    "Fetch",
    "FetchSettings",
    "Found",
    "Leader",
    "LeaderOf",
    "RefreshMetadata",
    "Wish",
    "fetch_from",
]

WITHOUT_SESSION = -1


class FetchSettings(NamedTuple):
    """Of Kafka's settings those that a reader looks at, under their names."""

    auto_offset_reset: Reset = LATEST
    fetch_min_bytes: int = 1
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 50 * 1024 * 1024
    max_partition_fetch_bytes: int = 1024 * 1024
    read_committed: bool = False
    check_crcs: bool = True
    client_rack: str = ""
    retry_backoff_ms: int = 100
    metadata_max_age_ms: int = 300_000
    has_group: bool = True
    """Without a group there are no committed offsets to ask for."""


class Leader(NamedTuple):
    """Who serves a partition, as far as the metadata knows."""

    node_id: int
    epoch: int = -1
    topic_id: UUID | None = None


LeaderOf = Callable[[str, int], Leader | None]


class Found(NamedTuple):
    """An answer of ListOffsets: the offset, -1 if there is none, or what went wrong."""

    offset: int = -1
    leader_epoch: int = -1
    error: KafkaError | None = None
    timestamp: int = -1


# --- what is to be asked ----------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class Fetch:
    """Comes back as `fetched` or `fetch_failed`."""

    node_id: int
    request: fetch.Request
    places: Mapping[tuple[str, int], tuple[Place, int]]
    """Who asked, and from which offset."""
    names: Mapping[UUID, str]


@dataclass(slots=True, eq=False)
class AskCommitted:
    """Comes back as `committed`."""

    places: Sequence[Place]


@dataclass(slots=True, eq=False)
class AskOffsets:
    """ListOffsets with these timestamps; comes back as `offsets_found`."""

    places: Mapping[Place, int]


@dataclass(slots=True, eq=False)
class RefreshMetadata:
    """Comes back as `refreshed`."""

    topics: Sequence[str]


Wish = Fetch | AskCommitted | AskOffsets | RefreshMetadata


def fetch_from(node_id: int, readers: Iterable[tuple[Place, Leader]], settings: FetchSettings) -> Fetch:
    """One fetch for all that is read at a node."""
    topics: dict[str, fetch.Topic] = {}
    places: dict[tuple[str, int], tuple[Place, int]] = {}
    names: dict[UUID, str] = {}
    for place, leader in readers:
        name, partition = place.partition
        if name not in topics:
            topics[name] = fetch.Topic(topic=name, topic_id=leader.topic_id, partitions=[])
            if leader.topic_id is not None:
                names[leader.topic_id] = name
        offset = place.next_fetch
        wanted = fetch.Partition(
            partition=partition,
            current_leader_epoch=leader.epoch,
            fetch_offset=offset,
            max_bytes=settings.max_partition_fetch_bytes,
        )
        asked = topics[name].partitions
        assert isinstance(asked, list)
        asked.append(wanted)
        places[name, partition] = place, offset
    request = fetch.Request(
        max_wait_ms=settings.fetch_max_wait_ms,
        min_bytes=settings.fetch_min_bytes,
        max_bytes=settings.fetch_max_bytes,
        isolation_level=READ_COMMITTED if settings.read_committed else READ_UNCOMMITTED,
        session_epoch=WITHOUT_SESSION,
        topics=list(topics.values()),
        rack_id=settings.client_rack,
    )
    return Fetch(node_id, request, places, names)
