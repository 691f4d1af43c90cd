"""Groups to look at: facts of a small, a bad and a huge group, as a broker would have recorded them."""

from __future__ import annotations

from collections.abc import Iterator

from coterie.facts import (
    AssignmentStored,
    Cause,
    Fact,
    JoinPhaseCompleted,
    MemberExpired,
    MemberJoined,
    MemberLeft,
    MemberRejoined,
    RebalanceStarted,
)
from coterie.protocol.subscription import Assignment, Subscription, write_assignment, write_subscription

BEGAN_MS = 1_794_900_000_000
"""A morning in November 2026."""
EAGER = write_subscription(Subscription(["orders"]))
"""What an eager member sends when it joins again: it owns nothing any more."""


class EagerGroup:
    """A classic group with the range assignor, in which every member gives up everything at each rebalance."""

    def __init__(self, name: str, partitions: int, topic: str = "orders") -> None:
        self.name = name
        self._partitions = partitions
        self._topic = topic
        self._members: list[str] = []
        self._generation = 0
        self._joined = 0

    def join(self, at_ms: int, client: str, host: str, takes_ms: int) -> Iterator[Fact]:
        self._joined += 1
        member_id = f"{client}-{self._joined:036}"
        yield MemberJoined(at_ms, self.name, member_id, None, client, host)
        yield from self._rebalance(at_ms, Cause.NEW_MEMBER, member_id, None, takes_ms, joins=member_id)

    def leave(
        self, at_ms: int, client: str, takes_ms: int, reason: str = "the consumer is being closed"
    ) -> Iterator[Fact]:
        member_id = self._gone(client)
        yield MemberLeft(at_ms, self.name, member_id, None, reason)
        yield from self._rebalance(at_ms, Cause.MEMBER_LEFT, member_id, reason, takes_ms)

    def crash(self, at_ms: int, client: str, session_ms: int, takes_ms: int) -> Iterator[Fact]:
        """It stopped at `at_ms`; the group notices after its session."""
        member_id = self._gone(client)
        noticed_ms = at_ms + session_ms
        yield MemberExpired(noticed_ms, self.name, member_id, session_ms, never_heard=False)
        yield from self._rebalance(noticed_ms, Cause.SESSION_EXPIRED, member_id, None, takes_ms)

    def _gone(self, client: str) -> str:
        member_id = next(one for one in self._members if one.startswith(f"{client}-0"))
        self._members.remove(member_id)
        return member_id

    def _rebalance(
        self, at_ms: int, cause: Cause, member_id: str, reason: str | None, takes_ms: int, joins: str | None = None
    ) -> Iterator[Fact]:
        waits_for = list(self._members)
        yield RebalanceStarted(at_ms, self.name, cause, member_id, reason, self._generation, waits_for)
        after = {who: takes_ms * (index + 1) // (len(waits_for) + 1) for index, who in enumerate(waits_for)}
        for who, ms in after.items():
            yield MemberRejoined(at_ms + ms, self.name, who, EAGER)
        if joins is not None:
            self._members.append(joins)
            after[joins] = 0
        self._generation += 1
        leader = self._members[0] if self._members else ""
        joined_ms = at_ms + takes_ms
        yield JoinPhaseCompleted(joined_ms, self.name, self._generation, "range", leader, after)
        yield AssignmentStored(joined_ms + takes_ms // 10, self.name, self._generation, self._ranges())

    def _ranges(self) -> dict[str, bytes]:
        share, rest = divmod(self._partitions, max(len(self._members), 1))
        found, first = {}, 0
        for index, member_id in enumerate(self._members):
            count = share + (index < rest)
            found[member_id] = write_assignment(Assignment({self._topic: list(range(first, first + count))}))
            first += count
        return found


def small_group() -> Iterator[Fact]:
    """Three members share six partitions; one crashes, one leaves."""
    group, at_ms = EagerGroup("billing", 6), BEGAN_MS
    for index in range(3):
        yield from group.join(at_ms + index * 20_000, f"billing-{index + 1}", f"/10.0.0.{index + 1}", 900)
    yield from group.crash(at_ms + 90_000, "billing-2", 45_000, 1_200)
    yield from group.leave(at_ms + 180_000, "billing-3", 700)


def bad_group() -> Iterator[Fact]:
    """A member that flaps, one that crashes again and again, and slow rebalances, over half an hour."""
    group, at_ms = EagerGroup("payments", 24, "payments"), BEGAN_MS
    for index in range(5):
        yield from group.join(at_ms + index * 4_000, f"payments-{index + 1}", f"/10.0.1.{index + 1}", 2_500)
    at_ms += 60_000
    for turn in range(24):
        reason = "consumer poll timeout has expired"
        yield from group.leave(at_ms, "payments-5", 4_000 + 900 * (turn % 5), reason)
        yield from group.join(at_ms + 18_000, "payments-5", "/10.0.1.5", 6_000)
        if turn % 8 == 3:
            yield from group.crash(at_ms + 30_000, "payments-1", 45_000, 9_000)
            yield from group.join(at_ms + 95_000, "payments-1", "/10.0.1.1", 5_000)
            at_ms += 70_000
        at_ms += 50_000


def huge_group(partitions: int = 10_000, rebalances: int = 1_000, members: int = 100) -> Iterator[Fact]:
    """Many partitions, and rebalances every half minute: members crash, are restarted, leave and join."""
    group, at_ms = EagerGroup("clickstream", partitions, "clicks"), BEGAN_MS
    for index in range(members):
        yield from group.join(at_ms, f"click-{index}", f"/10.1.{index // 250}.{index % 250}", 3_000)
        at_ms += 5_000
    for turn in range((rebalances - members) // 2):
        index = turn * 37 % members
        if turn % 5:
            yield from group.leave(at_ms, f"click-{index}", 3_000)
        else:
            yield from group.crash(at_ms - 10_000, f"click-{index}", 10_000, 4_000)
        yield from group.join(at_ms + 20_000, f"click-{index}", f"/10.1.{index // 250}.{index % 250}", 2_500)
        at_ms += 45_000
