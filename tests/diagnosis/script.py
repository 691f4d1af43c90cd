"""A script of a group's life for tests: members join, leave and crash at times; facts follow as a broker records them.

    life = Life(partitions=4)
    life.join("a", at=0)
    life.crash("a", at=60_000)
    history = life.history()

Every change is a rebalance that takes `took_ms`; partitions are dealt out in turn, and all are unassigned meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable

from coterie import facts
from coterie.diagnosis import Evidence, Grade, GroupHistory
from coterie.diagnosis.from_facts import HistoryBuilder
from coterie.diagnosis.merge import merge
from coterie.facts import Cause, Fact
from coterie.protocol.subscription import Assignment, Subscription, write_assignment, write_subscription

GROUP = "g"


def histories_of(told: Iterable[Fact], grade: Grade) -> dict[str, GroupHistory]:
    """Return the histories of all groups in facts."""
    builder = HistoryBuilder(grade)
    for fact in told:
        builder.add(fact, "broker")
    return builder.histories()


class Life:
    def __init__(
        self,
        partitions: int = 4,
        session_ms: int = 10_000,
        poll_ms: int = 30_000,
        took_ms: int = 1_000,
        grade: Grade = Grade.OBSERVED,
    ) -> None:
        self.grade = grade
        self.session_ms, self.poll_ms, self.took_ms = session_ms, poll_ms, took_ms
        self.partitions = partitions
        self.builder = HistoryBuilder(grade)
        self.ids: dict[str, str] = {}
        """The members that are there: their names and their member ids."""
        self.generation = 0
        self.count = 0
        self.now = 0

    def join(self, name: str, at: int, *, instance: str | None = None, member_id: str = "", host: str = "/h") -> None:
        self.count += 1
        new = member_id or f"{name}-{self.count:036}"
        self.ids[name] = new
        self.add(facts.MemberJoined(at, GROUP, new, instance, name, host))
        where = Evidence(self.grade, "script", at)
        about = {"session_timeout_ms": self.session_ms, "rebalance_timeout_ms": self.poll_ms}
        self.builder.describe_member(GROUP, new, where, topics=("t",), **about)
        self.rebalance(Cause.NEW_MEMBER, new, at)

    def leave(self, name: str, at: int, reason: str | None = None) -> None:
        gone = self.ids.pop(name)
        self.add(facts.MemberLeft(at, GROUP, gone, None, reason))
        self.rebalance(Cause.MEMBER_LEFT, gone, at, reason)

    def crash(self, name: str, at: int) -> None:
        """Its session expires at this time."""
        gone = self.ids.pop(name)
        self.add(facts.MemberExpired(at, GROUP, gone, self.session_ms, False))
        self.rebalance(Cause.SESSION_EXPIRED, gone, at)

    def subscribe(self, name: str, topics: tuple[str, ...]) -> None:
        where = Evidence(self.grade, "script", self.now)
        self.builder.describe_member(GROUP, self.ids[name], where, topics=topics)

    def rebalance(
        self, cause: Cause, member_id: str, at: int, reason: str | None = None, *, joined: dict[str, int] | None = None
    ) -> None:
        end = at + self.took_ms
        members = list(self.ids.values())
        self.add(facts.RebalanceStarted(at, GROUP, cause, member_id, reason, self.generation, members))
        self.generation += 1
        if not members:
            self.add(facts.GroupEmptied(at, GROUP, self.generation))
            return
        nothing_owned = write_subscription(Subscription(["t"]))
        for one in members:
            self.add(facts.MemberRejoined(at, GROUP, one, nothing_owned))
        after = joined or dict.fromkeys(members, self.took_ms // 2)
        phase = facts.JoinPhaseCompleted(at + max(after.values()), GROUP, self.generation, "range", members[0], after)
        self.add(phase)
        self.add(facts.AssignmentStored(max(end, phase.at_ms), GROUP, self.generation, self.assignments(members)))

    def assignments(self, members: list[str]) -> dict[str, bytes]:
        shares: dict[str, list[int]] = {one: [] for one in members}
        for number in range(self.partitions):
            shares[members[number % len(members)]].append(number)
        return {one: write_assignment(Assignment({"t": share} if share else {})) for one, share in shares.items()}

    def add(self, fact: Fact) -> None:
        self.now = max(self.now, fact.at_ms)
        self.builder.add(fact, f"script@{fact.at_ms}")

    def history(self) -> GroupHistory:
        return merge([self.builder.histories()[GROUP]])
