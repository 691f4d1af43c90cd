"""The events and effects of designs 1 and 2, their port to ZooKeeper, and what they store there (semantics 13).

A machine of either design gets an event and the time, and returns effects. The port to ZooKeeper is plain values: a
`ZkRequest` comes back as a `ZkResponse`, from a real server or from a model of one. Listing children sets a watch that
fires once, as `ChildrenChanged`; list them again to watch on. A session is a number: a request made in a session that
is over is not done, and ephemeral nodes are deleted with their session.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple, Protocol

from coterie.assignors import Assignor, Member, Topic

Partition = tuple[str, int]
Offsets = Mapping[Partition, int]
"""The offset of the next record to read, by partition."""
Effects = list[Any]


class DesignMachine(Protocol):
    def handle(self, event: Any, now_ms: int) -> Effects: ...


# --- time and records -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Ask for `TimerFired` at a time. A timer with the same key replaces the earlier one."""

    key: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class TimerFired:
    key: str


@dataclass(frozen=True, slots=True)
class StartReading:
    """Read these partitions and no others, from these offsets on."""

    offsets: Offsets


@dataclass(frozen=True, slots=True)
class StopReading:
    """Stop reading everything. `Stopped` follows when no record is being processed any more."""


@dataclass(frozen=True, slots=True)
class Stopped:
    positions: Offsets


@dataclass(frozen=True, slots=True)
class CommitDue:
    """It is time to commit these positions."""

    positions: Offsets = field(default_factory=dict)


# --- connections between members and coordinators ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Connect:
    """Connect to the coordinator at this address. `Connected` or `Disconnected` follows."""

    address: str


@dataclass(frozen=True, slots=True)
class Connected:
    pass


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The connection to `peer` is closed. A member has only one, and leaves the name out."""

    peer: str = ""


@dataclass(frozen=True, slots=True)
class DisconnectMember:
    to: str


@dataclass(frozen=True, slots=True)
class SendMessage:
    """Send a message to a member. A member has only its coordinator to send to, and leaves `to` out."""

    message: Any
    to: str = ""


@dataclass(frozen=True, slots=True)
class MessageReceived:
    message: Any
    peer: str = ""


# --- the port to ZooKeeper --------------------------------------------------------------------------------------------

ANY_SESSION = 0
"""Do it in the current session or the next one, as Kafka's first consumers wrote their offsets."""


@dataclass(frozen=True, slots=True)
class Children:
    """List the names of children in order. The node is created if it is missing: only a node can be watched."""

    path: str
    watch: bool = True


@dataclass(frozen=True, slots=True)
class Get:
    """Read a node: a `ZNode`, or None."""

    path: str


@dataclass(frozen=True, slots=True)
class Create:
    """Create a node. The response is False if there is one already."""

    path: str
    data: bytes
    is_ephemeral: bool = True


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a node. The response is False if there was none."""

    path: str


@dataclass(frozen=True, slots=True, eq=False)
class SetData:
    """Set the data of all these nodes or of none, and create the missing ones.

    With a guard, a path and a version, it is done only if that node still has that version. The response says whether
    it was done.
    """

    values: Mapping[str, bytes]
    guard: tuple[str, int] | None = None


Operation = Children | Get | Create | Delete | SetData


def counted_as(operation: Operation) -> Sequence[str]:
    """Return the counters for an operation: writes, or reads and, if it reads the membership, membership reads."""
    if not isinstance(operation, Children | Get):
        return ("writes",)
    is_membership = isinstance(operation, Children) or operation.path.rpartition("/")[0].endswith("/ids")
    return ("reads", "membership_reads") if is_membership else ("reads",)


class ZNode(NamedTuple):
    data: bytes
    version: int


class ZkError(Enum):
    LOST = "the connection was lost: it may have been done or not"
    EXPIRED = "the session is over: it was not done"


@dataclass(frozen=True, slots=True)
class ZkRequest:
    operation: Operation
    session: int
    about: Any = None
    """A value that comes back with the response."""


@dataclass(frozen=True, slots=True)
class ZkResponse:
    request: ZkRequest
    value: Any = None
    error: ZkError | None = None


@dataclass(frozen=True, slots=True)
class ChildrenChanged:
    """A watch has fired, or the connection was lost and a notification may have been missed."""

    path: str


@dataclass(frozen=True, slots=True)
class SessionBegan:
    number: int


@dataclass(frozen=True, slots=True)
class SessionEnded:
    """The session has expired. A client learns this when it reaches a server again."""

    number: int = field(default=0)


# --- what is stored in ZooKeeper --------------------------------------------------------------------------------------

BROKERS = "/brokers/ids"


class Paths:
    def __init__(self, group_id: str) -> None:
        root = f"/consumers/{group_id}"
        self.ids = f"{root}/ids"
        self._owners = f"{root}/owners"
        self._offsets = f"{root}/offsets"
        self.coordinator = f"{root}/coordinator"
        """Design 2: the address of the coordinator, ephemeral."""
        self.assignment = f"{root}/assignment"
        """Design 2: the generation and its owners. The version of this node fences writes of offsets."""

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
    """Return the generation and the owner of each partition (design 2)."""
    found = json.loads(data)
    return found["generation"], {(topic, number): owner for topic, number, owner in found["owners"]}


def write_assignment(generation: int, owners: Mapping[Partition, str]) -> bytes:
    rows = [[topic, number, owner] for (topic, number), owner in sorted(owners.items())]
    return json.dumps({"generation": generation, "owners": rows}).encode()


def read_broker(data: bytes) -> str:
    """Return the address that members connect to."""
    return data.decode()


def assigned_partitions(
    strategy: Assignor, subscriptions: Mapping[str, Sequence[str]], topics: Mapping[str, Topic]
) -> dict[str, list[Partition]]:
    """Return the partitions of each member. Members own nothing yet, so a sticky assignor has nothing to keep."""
    members = [Member(name, subscribed) for name, subscribed in sorted(subscriptions.items())]
    found = strategy.assign(members, topics)
    return {
        name: sorted((topic, number) for topic, numbers in mine.items() for number in numbers)
        for name, mine in found.items()
    }
