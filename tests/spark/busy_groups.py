"""Groups that are busy all the time, on a real node with a real log: members come, go, ask again, commit and expire.

The node is the shipped one, driven without sockets and by a clock that is moved, so that thousands of rebalances take
seconds; what they leave behind is a data directory that a broker can serve.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random  # noqa: TID251  a busy life is its seed

from broker.driver import Client, World
from coterie.facts import Fact
from coterie.protocol.apis import delete_groups, leave_group, offset_delete
from coterie.protocol.messages import DeleteGroup, JoinedGroup, LeaveGroup, LeavingMember, OffsetDelete
from coterie.protocol.subscription import Assignment, Subscription, write_assignment, write_subscription
from coterie.storage import DiskFiles

__all__ = ["KEEPS_ALL", "TOPICS", "live_busily"]

TOPICS = {"orders": 6, "payments": 3}
PARTITIONS = [(topic, number) for topic, count in TOPICS.items() for number in range(count)]
START_MS = time.time_ns() // 1_000_000 - 86_400_000
KEEPS_ALL = {"log.cleaner.enable": False}
"""For whoever serves the log: a second reading has to find what the first one found."""
SESSION_MS = 1_800_000
"""As long as Kafka allows: who serves the log later has these members, and they never say a word."""


@dataclass
class Member:
    client: Client
    topics: list[str]
    joined: JoinedGroup | None = None
    owned: dict[str, list[int]] = field(default_factory=dict)

    @property
    def member_id(self) -> str:
        assert self.joined is not None
        return self.joined.member_id

    def protocols(self) -> dict[str, bytes]:
        wants = write_subscription(Subscription(self.topics, None, self.owned, version=3))
        return {"cooperative-sticky": wants, "range": wants}


class BusyGroup:
    def __init__(self, world: World, name: str, rng: Random) -> None:
        self.world, self.name, self.rng = world, name, rng
        self.members: list[Member] = []

    def step(self) -> None:
        self.world.advance(self.rng.randrange(1, 400))
        happenings = [self.come] * 3 + [self.commit] * 2
        if self.members:
            happenings += [self.go] * 2 + [self.ask_again, self.change]
        else:
            happenings += [self.vanish]
        self.rng.choice(happenings)()

    def come(self) -> None:
        if len(self.members) >= 5:
            self.go()
            return
        member = Member(self.world.client(), self.rng.choice([["orders"], ["orders", "payments"]]))
        given = member.client.join(self.name, protocols=member.protocols(), session_timeout_ms=SESSION_MS)
        member.joined = given
        self.members.insert(0, member)
        self.rebalance()

    def go(self) -> None:
        member = self.members.pop(self.rng.randrange(len(self.members)))
        member.client.ask(leave_group, LeaveGroup(None, self.name, [LeavingMember(member.member_id, None, "bored")]), 5)
        if self.members:
            self.rebalance()

    def ask_again(self) -> None:
        """Only the leader's asking begins a rebalance, whatever it says (rule 12)."""
        self.members.sort(key=lambda one: one.joined is None or one.member_id != one.joined.leader_id)
        self.rebalance()

    def change(self) -> None:
        self.rng.choice(self.members).topics = self.rng.choice([["orders"], ["payments"], ["orders", "payments"]])
        self.ask_again()

    def vanish(self) -> None:
        asker = self.world.client()
        asker.ask(delete_groups, [DeleteGroup(None, self.name)], 2)

    def commit(self) -> None:
        places = self.rng.sample(PARTITIONS, self.rng.randrange(1, 4))
        offsets = {place: self.rng.randrange(1_000) for place in places}
        if self.members:
            member = self.members[0]
            member.client.commit(self.name, offsets, member=member.joined)
        elif self.rng.random() < 0.3:
            topic, number = places[0]
            self.world.client().ask(offset_delete, OffsetDelete(None, self.name, [(topic, [number])]))
        else:
            self.world.client().commit(self.name, offsets)

    def rebalance(self) -> None:
        """All join, and the first of them begins it; the leader deals the cards again or lets most lie."""
        for member in self.members:
            member.client.send_join(
                self.name, member.member_id, protocols=member.protocols(), session_timeout_ms=SESSION_MS
            )
        for member in self.members:
            answer: JoinedGroup = member.client.answer()
            assert not answer.error, answer
            member.joined = answer
        self.world.advance(self.rng.randrange(20))
        leader = next(member for member in self.members if member.member_id == member.joined.leader_id)  # type: ignore[union-attr]
        dealt = self.deal()
        for member in sorted(self.members, key=lambda one: one is not leader):
            assignments = {one.member_id: write_assignment(Assignment(dealt[one.member_id])) for one in self.members}
            assert member.joined is not None
            member.client.send_sync(self.name, member.joined, assignments if member is leader else None)
        for member in self.members:
            assert not member.client.answer().error
            member.owned = dealt[member.member_id]

    def deal(self) -> Mapping[str, dict[str, list[int]]]:
        dealt: dict[str, dict[str, list[int]]] = {member.member_id: {} for member in self.members}
        for topic, number in PARTITIONS:
            wanting = [member for member in self.members if topic in member.topics]
            if not wanting or self.rng.random() < 0.05:  # now and then one is left lying
                continue
            owner = next((one for one in wanting if number in one.owned.get(topic, [])), None)
            if owner is None or self.rng.random() < 0.3:
                owner = self.rng.choice(wanting)
            dealt[owner.member_id].setdefault(topic, []).append(number)
        return dealt


def live_busily(data: Path, *, groups: int, steps: int, seed: int) -> list[Fact]:
    """What the node told, in order; its log is in `data`."""
    rng = Random(seed)
    world = World(DiskFiles(data), {"offsets.topic.num.partitions": 4, **KEEPS_ALL}, sync=False, now_ms=START_MS)
    asker = world.client()
    asker.find_coordinator()
    for topic, count in TOPICS.items():
        asker.create(topic, count)
    busy = [BusyGroup(world, f"group-{number}", rng) for number in range(groups)]
    for _ in range(steps):
        rng.choice(busy).step()
    world.stop()
    return world.facts
