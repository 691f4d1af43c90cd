"""A group of a broker under test: what it is, what it waits for, and what happened to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from coterie.coordinator.classic import Group as ClassicGroup
from coterie.coordinator.consumer import ConsumerGroup
from coterie.errors import CoterieError, MalformedError
from coterie.facts import CLASSIC, CONSUMER, Cause
from coterie.ledger import Rebalance, RebalanceOutcome
from coterie.protocol.subscription import read_assignment
from coterie.structs import replace
from coterie.testing.requests import Request, nearest

if TYPE_CHECKING:
    from coterie.testing.controlled_server import ControlledServer
    from coterie.testing.kafka_broker import KafkaBroker

T = TypeVar("T")
TIMEOUT_S = 30.0
"""How long a test waits for something, unless it says. A wait that ends costs nothing; a short one fails under load."""

SYNC_AND_FETCH = frozenset({"SyncGroup", "OffsetFetch"})
"""A member that has its assignment goes on from the first to the second."""


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a group."""

    client_id: str
    member_id: str
    instance_id: str | None
    """The group instance id of a static member."""
    host: str
    """The address of the client as the broker shows it, such as `/127.0.0.1`."""
    assignment: tuple[str, ...]
    """The partitions that it has, such as `orders-0`."""
    protocol: str
    """`classic` or `consumer` (KIP-848)."""
    state: str = ""
    """What the group waits for, such as `to join`, `to sync` or `to revoke`; "" if it does not wait for this member."""
    is_connected: bool = True
    """Whether the connection that it used last is open."""

    @property
    def name(self) -> str:
        """The group instance id if it has one, else the client id, else the member id."""
        return self.instance_id or self.client_id or self.member_id

    def is_called(self, who: str) -> bool:
        """Return whether this is its client id, member id or group instance id.

        Args:
            who: The name.
        """
        return who in {self.client_id, self.member_id, self.instance_id}


@dataclass(frozen=True, slots=True)
class GroupSnapshot:
    """A group at one moment."""

    group_id: str
    state: str
    """Kafka's name of the state; `Dead` if there is no such group."""
    generation: int = 0
    """The generation, or the group epoch of a consumer group (KIP-848)."""
    protocol: str = CLASSIC
    """`classic` or `consumer` (KIP-848)."""
    members: tuple[Member, ...] = ()
    committed: Mapping[str, int] = field(default_factory=dict)
    """The committed offsets by partition, such as 10 for `orders-0`."""

    @property
    def assignment(self) -> dict[str, list[str]]:
        """The partitions of each member, by its name; by its member id if two members have the same name."""
        names = Counter(member.name for member in self.members)
        return {
            member.name if names[member.name] == 1 else member.member_id: list(member.assignment)
            for member in self.members
        }


class Group:
    """A group of a broker under test, `broker.group("billing")`. It need not exist yet.

    Each property is read from the broker when it is asked for.
    """

    def __init__(self, broker: KafkaBroker, group_id: str) -> None:
        self._broker = broker
        self.group_id = group_id
        """The id of the group."""

    def __repr__(self) -> str:
        now = self.snapshot()
        owned = ", ".join(f"{name}: {' '.join(had) or 'nothing'}" for name, had in now.assignment.items())
        return f"<group {self.group_id}: {now.state}{f', {owned}' if owned else ''}>"

    # --- inspecting ---------------------------------------------------------------------------------------------------

    def snapshot(self) -> GroupSnapshot:
        """Return the group as it is at this moment: its state, members and committed offsets."""
        return self._broker.run_on_broker(lambda server: snapshot_of(server, self.group_id))

    @property
    def state(self) -> str:
        """Kafka's name of the state, such as `Stable`; `Dead` if there is no such group."""
        return self.snapshot().state

    @property
    def members(self) -> list[Member]:
        """The members."""
        return list(self.snapshot().members)

    @property
    def assignment(self) -> dict[str, list[str]]:
        """The partitions of each member, such as `orders-0`, by its group instance id or client id.

        A member whose name another one has too is listed by its member id.
        """
        return self.snapshot().assignment

    @property
    def committed(self) -> dict[str, int]:
        """The committed offsets by partition, such as 10 for `orders-0`."""
        return dict(self.snapshot().committed)

    @property
    def coordinator(self) -> int:
        """The number of the node that coordinates the group."""
        return self._broker.run_on_broker(lambda server: server.coordinator_of(self.group_id))

    @property
    def rebalances(self) -> list[Rebalance]:
        """Every rebalance since the start of the broker, with its cause and culprit, what moved and what it cost."""
        return self._broker.run_on_broker(lambda _server: rebalances_of(self._broker, self.group_id))

    @property
    def requests(self) -> list[Request]:
        """The requests that concern the group, the earliest first."""
        return self._broker.requests(group=self.group_id)

    # --- waiting ------------------------------------------------------------------------------------------------------

    def wait_stable(
        self, members: int | None = None, *, partitions: int | None = None, timeout: float = TIMEOUT_S
    ) -> GroupSnapshot:
        """Wait until the group is Stable: each member has its assignment.

        Args:
            members: How many members it has to have; without it, one or more.
            partitions: How many partitions its members have to have together. A leader that has not heard of a topic
                yet assigns nothing at first.
            timeout: How many seconds to wait at most.

        Returns:
            The group at that moment.

        Raises:
            WaitTimeoutError: It did not become so in time.
        """
        return self._broker.wait(*self._stable(members, partitions), timeout)

    async def wait_stable_async(
        self,
        members: int | None = None,
        *,
        partitions: int | None = None,
        timeout: float = TIMEOUT_S,  # noqa: ASYNC109
    ) -> GroupSnapshot:
        """Do what `wait_stable` does, in a test with asyncio."""
        return await self._broker.wait_async(*self._stable(members, partitions), timeout)

    def _stable(self, members: int | None, partitions: int | None) -> Waited[GroupSnapshot]:
        wanted = [_counted(members, "member"), _counted(partitions, "partition")]
        said = " and ".join(each for each in wanted if each)

        def holds(now: GroupSnapshot) -> bool:
            return (
                now.state == "Stable"
                and members in {None, len(now.members)}
                and partitions in {None, sum(len(member.assignment) for member in now.members)}
            )

        return self._when(f"group {self.group_id} to be Stable{f' with {said}' if said else ''}", holds)

    def wait_running(self, members: int | None = None, *, timeout: float = TIMEOUT_S) -> GroupSnapshot:
        """Wait until the group is Stable, and each member that has partitions has fetched their offsets or records.

        So its client knows what it has. After `wait_stable` the answer may still be on its way; some clients cannot be
        closed in that moment.

        Args:
            members: How many members it has to have; without it, one or more.
            timeout: How many seconds to wait at most.

        Returns:
            The group at that moment.

        Raises:
            WaitTimeoutError: It did not become so in time.
        """
        return self._broker.wait(*self._running(members), timeout)

    async def wait_running_async(
        self,
        members: int | None = None,
        *,
        timeout: float = TIMEOUT_S,  # noqa: ASYNC109
    ) -> GroupSnapshot:
        """Do what `wait_running` does, in a test with asyncio."""
        return await self._broker.wait_async(*self._running(members), timeout)

    def _running(self, members: int | None) -> Waited[GroupSnapshot]:
        _, is_stable, group_id = self._stable(members, None)

        def check(server: ControlledServer) -> GroupSnapshot | None:
            now = is_stable(server)
            if now is None or not any(member.assignment for member in now.members):
                return None
            waiting = {member.client_id for member in now.members if member.assignment}
            for request in reversed(server.controls.recorder.requests):
                if not waiting:
                    break
                if request.client_id in waiting and (
                    request.api == "Fetch" or (request.api in SYNC_AND_FETCH and self.group_id in request.groups)
                ):
                    if request.api == "SyncGroup":
                        return None
                    waiting.remove(request.client_id)
            return None if waiting else now

        count = f" with {_counted(members, 'member')}" if members is not None else ""
        return f"group {self.group_id} to be Stable{count} that use their partitions", check, group_id

    def wait_members(self, members: int, *, timeout: float = TIMEOUT_S) -> GroupSnapshot:
        """Wait until the group has so many members, whatever its state is.

        Args:
            members: How many members it has to have.
            timeout: How many seconds to wait at most.

        Returns:
            The group at that moment.

        Raises:
            WaitTimeoutError: It did not have as many in time.
        """
        return self._broker.wait(*self._has_members(members), timeout)

    async def wait_members_async(self, members: int, *, timeout: float = TIMEOUT_S) -> GroupSnapshot:  # noqa: ASYNC109
        """Do what `wait_members` does, in a test with asyncio."""
        return await self._broker.wait_async(*self._has_members(members), timeout)

    def _has_members(self, members: int) -> Waited[GroupSnapshot]:
        return self._when(
            f"group {self.group_id} to have {_counted(members, 'member')}",
            lambda now: len(now.members) == members,
        )

    def wait_empty(self, *, timeout: float = TIMEOUT_S) -> GroupSnapshot:
        """Wait until the group has no members. A group that does not exist has none.

        Args:
            timeout: How many seconds to wait at most.

        Returns:
            The group at that moment.

        Raises:
            WaitTimeoutError: It had members for all that time.
        """
        return self._broker.wait(*self._empty(), timeout)

    async def wait_empty_async(self, *, timeout: float = TIMEOUT_S) -> GroupSnapshot:  # noqa: ASYNC109
        """Do what `wait_empty` does, in a test with asyncio."""
        return await self._broker.wait_async(*self._empty(), timeout)

    def _empty(self) -> Waited[GroupSnapshot]:
        return self._when(
            f"group {self.group_id} to be Empty", lambda now: not now.members and now.state in {"Empty", "Dead"}
        )

    def wait_disconnected(self, member: str, *, timeout: float = TIMEOUT_S) -> GroupSnapshot:
        """Wait until the connection of a member is closed, as after a crash: its session goes on until it expires.

        After this, `clock.advance` by its session timeout lets it expire.

        Args:
            member: The client id, member id or group instance id of the member.
            timeout: How many seconds to wait at most.

        Returns:
            The group at that moment.

        Raises:
            WaitTimeoutError: It is still connected, or it is not in the group.
        """
        return self._broker.wait(*self._disconnected(member), timeout)

    async def wait_disconnected_async(self, member: str, *, timeout: float = TIMEOUT_S) -> GroupSnapshot:  # noqa: ASYNC109
        """Do what `wait_disconnected` does, in a test with asyncio."""
        return await self._broker.wait_async(*self._disconnected(member), timeout)

    def _disconnected(self, who: str) -> Waited[GroupSnapshot]:
        def holds(now: GroupSnapshot) -> bool:
            called = [member.is_connected for member in now.members if member.is_called(who)]
            return bool(called) and not any(called)

        return self._when(f"the member {who} of group {self.group_id} to be disconnected", holds)

    def wait_assigned(self, assignment: Mapping[str, Sequence[str]], *, timeout: float = TIMEOUT_S) -> GroupSnapshot:
        """Wait until the group is Stable, and members have exactly these partitions.

        Args:
            assignment: The partitions of members, such as `{"a": ["orders-0"]}`, by client id, member id or group
                instance id. Members that are not listed may have any.
            timeout: How many seconds to wait at most.

        Returns:
            The group at that moment.

        Raises:
            WaitTimeoutError: They did not get them in time.
        """
        return self._broker.wait(*self._assigned(assignment), timeout)

    async def wait_assigned_async(
        self,
        assignment: Mapping[str, Sequence[str]],
        *,
        timeout: float = TIMEOUT_S,  # noqa: ASYNC109
    ) -> GroupSnapshot:
        """Do what `wait_assigned` does, in a test with asyncio."""
        return await self._broker.wait_async(*self._assigned(assignment), timeout)

    def _assigned(self, assignment: Mapping[str, Sequence[str]]) -> Waited[GroupSnapshot]:
        wanted = {who: sorted(partitions) for who, partitions in assignment.items()}

        def holds(now: GroupSnapshot) -> bool:
            return now.state == "Stable" and all(
                [sorted(member.assignment) for member in now.members if member.is_called(who)] == [partitions]
                for who, partitions in wanted.items()
            )

        said = ", ".join(f"{who}: {' '.join(had) or 'nothing'}" for who, had in wanted.items())
        return self._when(f"group {self.group_id} to be assigned {said}", holds)

    def wait_committed(self, topic: str, partition: int, offset: int, *, timeout: float = TIMEOUT_S) -> int:
        """Wait until the group has committed an offset, or a later one.

        Args:
            topic: The name of the topic.
            partition: The number of the partition.
            offset: The offset.
            timeout: How many seconds to wait at most.

        Returns:
            The committed offset.

        Raises:
            WaitTimeoutError: It was not committed in time.
        """
        return self._broker.wait(*self._has_committed(topic, partition, offset), timeout)

    async def wait_committed_async(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        timeout: float = TIMEOUT_S,  # noqa: ASYNC109
    ) -> int:
        """Do what `wait_committed` does, in a test with asyncio."""
        return await self._broker.wait_async(*self._has_committed(topic, partition, offset), timeout)

    def _has_committed(self, topic: str, partition: int, offset: int) -> Waited[int]:
        def check(server: ControlledServer) -> int | None:
            group = server.group(self.group_id)
            stored = None if group is None else group.offsets.get(topic, {}).get(partition)
            return stored.offset if stored is not None and stored.offset >= offset else None

        return f"group {self.group_id} to commit offset {offset} of {topic}-{partition}", check, self.group_id

    def wait_rebalance(self, cause: Cause | str | None = None, *, timeout: float = TIMEOUT_S) -> Rebalance:
        """Wait until a rebalance has ended, and return it. Each rebalance is returned once.

        So the first call returns the first one since the start of the broker, also if it was over before.

        Args:
            cause: What it must have been caused by, such as `session expired`; others are passed over.
            timeout: How many seconds to wait at most.

        Returns:
            The rebalance, with its cause and culprit, what moved and what it cost.

        Raises:
            WaitTimeoutError: There was none in time.
            CoterieError: There is no such cause.
        """
        return self._broker.wait(*self._rebalanced(cause), timeout)

    async def wait_rebalance_async(
        self,
        cause: Cause | str | None = None,
        *,
        timeout: float = TIMEOUT_S,  # noqa: ASYNC109
    ) -> Rebalance:
        """Do what `wait_rebalance` does, in a test with asyncio."""
        return await self._broker.wait_async(*self._rebalanced(cause), timeout)

    def _rebalanced(self, cause: Cause | str | None) -> Waited[Rebalance]:
        wanted = None if cause is None else _cause_named(cause)

        def check(_server: ControlledServer) -> Rebalance | None:
            passed = self._broker.rebalances_seen.get(self.group_id, 0)
            for number, one in enumerate(rebalances_of(self._broker, self.group_id)[passed:], passed + 1):
                if one.outcome is RebalanceOutcome.RUNNING:
                    return None
                if wanted is None or one.cause == wanted:
                    self._broker.rebalances_seen[self.group_id] = number
                    return one
            return None

        why = "" if wanted is None else f", caused by: {wanted.value}"
        return f"group {self.group_id} to rebalance{why}", check, self.group_id

    def _when(self, what: str, holds: Callable[[GroupSnapshot], bool]) -> Waited[GroupSnapshot]:
        def check(server: ControlledServer) -> GroupSnapshot | None:
            now = snapshot_of(server, self.group_id)
            return now if holds(now) else None

        return what, check, self.group_id

    # --- asserting ----------------------------------------------------------------------------------------------------

    @contextmanager
    def assert_no_rebalance(self) -> Iterator[None]:
        """Fail if a rebalance of the group begins within a `with` block.

        Raises:
            AssertionError: One has begun. The text says why, and what happened.
        """
        before = len(self.rebalances)
        yield
        after = self.rebalances[before:]
        if after:
            listed = "\n".join(f"  {one!r}" for one in after)
            raise AssertionError(
                f"group {self.group_id} was not to rebalance, and did:\n{listed}\n\n{self._broker.story(self.group_id)}"
            )


Waited = tuple[str, "Callable[[ControlledServer], T | None]", str | None]
"""What is waited for, the condition, and the group that it is about."""


def _counted(count: int | None, what: str) -> str:
    return "" if count is None else f"{count} {what}{'' if count == 1 else 's'}"


def _cause_named(cause: Cause | str) -> Cause:
    if isinstance(cause, Cause):
        return cause
    text = str(cause)
    for one in Cause:
        if text.lower() in {one.value.lower(), one.name.lower()}:
            return one
    raise CoterieError(f"there is no cause {text!r} of a rebalance: {nearest(text, [one.value for one in Cause])}")


def rebalances_of(broker: KafkaBroker, group_id: str) -> list[Rebalance]:
    """Return copies: the one that is running changes."""
    return [replace(one) for one in broker.ledger.rebalances_of(group_id)]


def snapshot_of(server: ControlledServer, group_id: str) -> GroupSnapshot:
    """Return a group as it is, in the broker's thread."""
    group = server.group(group_id)
    if group is None:
        return GroupSnapshot(group_id, "Dead")
    committed = {
        f"{topic}-{partition}": offsets[partition].offset
        for topic, offsets in sorted(group.offsets.items())
        for partition in sorted(offsets)
    }
    if isinstance(group, ConsumerGroup):
        members = [_consumer_member(server, group, member) for member in group.members.values()]
        return GroupSnapshot(group_id, group.state.value, group.group_epoch, CONSUMER, tuple(members), committed)
    members = [_classic_member(server, group, member) for member in group.members.values()]
    return GroupSnapshot(group_id, group.state.value, group.generation_id, CLASSIC, tuple(members), committed)


def _classic_member(server: ControlledServer, group: ClassicGroup, member: Any) -> Member:
    state = ""
    if group.state.value == "PreparingRebalance":
        state = "to join" if member.parked_join is None else "joining"
    elif group.state.value == "CompletingRebalance" and member.awaits_sync:
        state = "to sync"
    return Member(
        member.client_id,
        member.member_id,
        member.instance_id,
        member.client_host,
        partitions_of(member.assignment),
        CLASSIC,
        state,
        server.is_connected(group.group_id, member),
    )


def _consumer_member(server: ControlledServer, group: ConsumerGroup, member: Any) -> Member:
    names = server.cluster.metadata.topic_names
    assigned = [
        f"{names.get(topic_id, topic_id)}-{partition}"
        for topic_id, partitions in member.assigned.items()
        for partition in partitions
    ]
    state = "to revoke" if member.pending_revocation else "" if group.is_reconciled(member) else "to reconcile"
    return Member(
        member.metadata.client_id,
        member.member_id,
        member.metadata.instance_id,
        member.metadata.client_host,
        tuple(sorted(assigned, key=_by_number)),
        CLASSIC if member.is_classic else CONSUMER,
        state,
        server.is_connected(group.group_id, member),
    )


def partitions_of(assignment: bytes) -> tuple[str, ...]:
    """Return the partitions of a classic member; none if the bytes are not those of a consumer."""
    if not assignment:
        return ()
    try:
        read = read_assignment(assignment).partitions
    except MalformedError:
        return ()
    found = [f"{topic}-{partition}" for topic, partitions in read.items() for partition in partitions]
    return tuple(sorted(found, key=_by_number))


def _by_number(partition: str) -> tuple[str, int]:
    topic, _, number = partition.rpartition("-")
    return topic, int(number)
