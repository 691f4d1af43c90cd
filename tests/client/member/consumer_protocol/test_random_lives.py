"""Random lives of members of a KIP-848 group: late polls, slow listeners, lost answers, expired sessions.

At any time a member that is in the group reads only what the coordinator counts as its own; when all is well again,
everybody is stable and every partition is read.
"""

from __future__ import annotations

from random import Random  # noqa: TID251  seeded: a seed is one run

import pytest

from client.member.consumer_protocol.seat import Seat
from client.member.consumer_protocol.small_group import SmallGroup
from coterie.assignors import Topic
from coterie.client.member import events
from coterie.errors import ErrorCode
from coterie.protocol.apis.consumer_group_heartbeat import Request
from coterie.protocol.messages import OffsetCommit, OffsetsCommitted

PARTITIONS = 7
STEPS = 250


class World:
    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.group = SmallGroup(PARTITIONS, interval_ms=self.rng.choice((300, 3_000)))
        self.seats: list[Seat] = []
        self.past: list[Seat] = []

    def comes(self) -> None:
        seat = Seat(max_poll_interval_ms=20_000, enable_auto_commit=self.rng.random() < 0.5, retry_backoff_max_ms=500)
        seat.topics = {"t": Topic(PARTITIONS)}
        seat.now_ms = self.seats[0].now_ms if self.seats else 1_000
        seat.handle(events.Subscribed(["t"], fresh_id=f"m{len(self.seats) + len(self.past)}")).begins_poll()
        self.seats.append(seat)

    def goes(self, seat: Seat) -> None:
        seat.holds_listener = False
        seat.closes()
        self.past.append(seat)
        if seat.waiting_call is not None:
            seat.listener_returns()
        while seat.sent:
            self.deliver(seat)
        self.seats.remove(seat)

    def polls_or_not(self, seat: Seat) -> None:
        if not seat.member.polling:
            seat.begins_poll()
        elif seat.waiting_call is None:
            seat.ends_poll()

    def listens(self, seat: Seat) -> None:
        if seat.waiting_call is not None:
            seat.listener_returns()
        seat.holds_listener = self.rng.random() < 0.4

    def reads(self, seat: Seat) -> None:
        seat.positions = {one: self.rng.randrange(100) for one in seat.assigned}

    def deliver(self, seat: Seat, trouble: float = 0.0) -> None:
        """The oldest request of this member reaches the coordinator, or not, and is answered, or not."""
        if not seat.sent:
            return
        request = seat.sent[0].request
        dice = self.rng.random() / trouble if trouble else 1.0
        if dice < 0.3:
            seat.lose()
            return
        if dice < 0.5 and isinstance(request, Request):
            seat.refuse(self.rng.choice((ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)))
            return
        answer: object
        if isinstance(request, Request):
            answer = self.group.heartbeat(request, seat.now_ms)
        else:
            assert isinstance(request, OffsetCommit)
            answer = OffsetsCommitted(request.partitions, [self.group.commit(request) for _ in request.partitions])
        if dice < 1.0 and trouble:
            seat.lose()
        else:
            seat._reply(answer)

    def time_passes(self, ms: int) -> None:
        for seat in self.seats:
            seat.advance(ms)
        if self.seats:
            self.group.expire(self.seats[0].now_ms)

    def check(self) -> None:
        for seat in self.seats:
            member = seat.member
            record = self.group.members.get(member.member_id)
            if record is None or not member.has_generation:
                continue  # it is out, and hears of it with its next heartbeat or poll
            read = {one.partition for one in member.assigned}
            assert read <= record.holds, f"{member.explain(seat.now_ms)} reads {read}, and has {record.holds}"

    def heals(self) -> None:
        for seat in self.seats:
            seat.holds_listener = False
            if seat.waiting_call is not None:
                seat.listener_returns()
            seat.begins_poll()
        for _ in range(400):
            self.time_passes(100)
            for seat in self.seats:
                while seat.sent:
                    self.deliver(seat)
            self.check()
        explained = "\n".join(seat.member.explain(seat.now_ms) for seat in self.seats)
        assert all(seat.state == "Stable" for seat in self.seats), explained
        read = sorted(one.partition for seat in self.seats for one in seat.member.assigned)
        assert read == list(range(PARTITIONS)), explained
        assert all(seat.assigned == sorted(seat.member.assigned) for seat in self.seats)


@pytest.mark.parametrize("first_seed", range(0, 60, 10))
def test_members_read_only_what_is_theirs_and_settle(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + 10):
        world = World(seed)
        rng = world.rng
        for _ in range(rng.randint(1, 4)):
            world.comes()
        for _ in range(STEPS):
            seat = rng.choice(world.seats)
            dice = rng.random()
            if dice < 0.45:
                world.deliver(seat, trouble=rng.choice((0.0, 0.1, 0.4)))
            elif dice < 0.65:
                world.time_passes(rng.choice((1, 50, 400, 1_000, 4_000)))
            elif dice < 0.75:
                world.polls_or_not(seat)
            elif dice < 0.87:
                world.listens(seat)
            elif dice < 0.94:
                world.reads(seat)
            elif dice < 0.96 and len(world.seats) < 5:
                world.comes()
            elif dice < 0.97 and len(world.seats) > 1:
                world.goes(seat)
            elif dice < 0.98:
                world.group.remove(seat.member.member_id)
            world.check()
        world.heals()
