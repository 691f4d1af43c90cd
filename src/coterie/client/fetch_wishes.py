"""What a reader wishes to have asked, of whom; and the settings it reads. No I/O.

Every wish comes back to `fetching.Fetcher` as one call: which, its docstring says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from coterie.apis import fetch
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
]


class FetchSettings(NamedTuple):
    """Of Kafka's settings those that this file reads, under their names."""

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
