"""Clients that remember what they were told, through every life of a broker that is killed again and again.

A worker works on a connection of its own until that breaks; `check` asks the next life whether all it was told is true.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from random import Random
from threading import Event

from broker.peer import Peer
from coterie.errors import ErrorCode
from coterie.protocol.apis import describe_groups, init_producer_id, leave_group, metadata
from coterie.protocol.messages import DescribeGroup, JoinedGroup, LeaveGroup, LeavingMember
from logs import batch, values_in

__all__ = ["IdempotentProducer", "Member", "PlainProducer", "SimpleCommitter", "Worker"]

PIPELINED = 4


class Worker(ABC):
    def __init__(self, name: str, seed: int) -> None:
        self.name = name
        self.rng = Random(f"{seed} {name}")
        self.acknowledged = 0

    def run(self, bootstrap: str, stop: Event) -> None:
        """Until the broker dies or we are told to stop."""
        try:
            with Peer(self._home(bootstrap)) as peer:
                while not stop.is_set():
                    self.work(peer)
        except (ConnectionError, TimeoutError):
            pass  # it was killed; what was under way may have happened or not

    def check_at(self, bootstrap: str) -> None:
        with Peer(self._home(bootstrap)) as peer:
            self.check(peer)

    def _home(self, bootstrap: str) -> str:
        """The address of the node to ask; any node knows."""
        with Peer(bootstrap) as peer:
            return self.find_node(peer)

    def find_node(self, peer: Peer) -> str:
        """Of the group that is called as the worker is."""
        found = peer.find_coordinator(self.name)
        assert found.error is ErrorCode.NONE, found
        return f"{found.host}:{found.port}"

    @abstractmethod
    def work(self, peer: Peer) -> None: ...

    @abstractmethod
    def check(self, peer: Peer) -> None: ...


# --- producers --------------------------------------------------------------------------------------------------------


class PlainProducer(Worker):
    """Some batches under way at a time, all acks; each value is sent once, so each is there once or not at all."""

    def __init__(self, name: str, seed: int, topic: str, partition: int) -> None:
        super().__init__(name, seed)
        self.topic = topic
        self.partition = partition
        self.sent = 0
        self.under_way: deque[bytes] = deque()
        self.told: dict[int, bytes] = {}
        self.seen: dict[int, bytes] = {}

    def find_node(self, peer: Peer) -> str:
        answer = peer.ask(metadata, metadata.Request(topics=[metadata.Topic(name=self.topic)]))
        (leader,) = [one.leader_id for one in answer.topics[0].partitions if one.partition == self.partition]
        (address,) = [f"{one.host}:{one.port}" for one in answer.brokers if one.node_id == leader]
        return address

    def work(self, peer: Peer) -> None:
        while len(self.under_way) < PIPELINED:
            value = b"%s %d " % (self.name.encode(), self.sent) + bytes(self.rng.randrange(3_000))
            self.sent += 1
            self.under_way.append(value)
            peer.send_produce(self.topic, value, partition=self.partition)
        answer = peer.produced()
        assert answer.error is ErrorCode.NONE, answer
        self.told[answer.base_offset] = self.under_way.popleft()
        self.acknowledged += 1

    def check(self, peer: Peer) -> None:
        """What was read before is not read again until the end; offsets have no gaps, all checksums are right."""
        self.under_way.clear()
        read_on(peer, self.topic, self.partition, self.seen)
        for offset, value in self.told.items():
            assert self.seen.get(offset) == value, f"{self.name}: offset {offset} was acknowledged and is not there"
        assert len(set(self.seen.values())) == len(self.seen), f"{self.name}: a batch is there twice"
        self.told.clear()


class IdempotentProducer(PlainProducer):
    """After the crash it sends what was under way again, as every client does: each value is there exactly once."""

    def __init__(self, name: str, seed: int, topic: str, partition: int) -> None:
        super().__init__(name, seed, topic, partition)
        self.producer_id: int | None = None
        self.retries: deque[bytes] = deque()
        self.in_order: list[bytes] = []
        self.today_ms = time.time_ns() // 1_000_000

    def work(self, peer: Peer) -> None:
        if self.producer_id is None:
            request = init_producer_id.Request(transactional_id=None, transaction_timeout_ms=60_000)
            answer = peer.ask(init_producer_id, request)
            assert answer.error is ErrorCode.NONE
            self.producer_id = answer.producer_id
        while len(self.under_way) < PIPELINED:
            if self.retries:
                value = self.retries.popleft()
            else:
                value = b"%s %d " % (self.name.encode(), self.sent) + bytes(self.rng.randrange(3_000))
                self.sent += 1
            sequence = len(self.in_order) + len(self.under_way)
            self.under_way.append(value)
            producer = (self.producer_id, 0, sequence)
            # Stamped with today: a producer that was last heard of long ago is forgotten when the log is opened.
            sent = batch(value, producer=producer, timestamps=[self.today_ms])
            peer.send_produce(self.topic, records=sent, partition=self.partition)
        produced = peer.produced()
        assert produced.error is ErrorCode.NONE, produced
        value = self.under_way.popleft()
        self.told[produced.base_offset] = value
        self.in_order.append(value)
        self.acknowledged += 1

    def check(self, peer: Peer) -> None:
        self.retries.extendleft(reversed(self.under_way))
        super().check(peer)
        found = [value for value in self.seen.values() if value.startswith(self.name.encode() + b" ")]
        assert found[: len(self.in_order)] == self.in_order, f"{self.name}: not in the order they were sent"


def read_on(peer: Peer, topic: str, partition: int, seen: dict[int, bytes]) -> None:
    """Add what is there beyond what was seen."""
    at = len(seen)
    while True:
        answer = peer.fetch(topic, at, partition=partition, max_wait_ms=0)
        assert answer.error is ErrorCode.NONE, f"{topic}-{partition} from {at}: {answer.error.name}"
        found = [item for item in values_in(answer.records or b"") if item[0] >= at]
        if not found:
            return
        for offset, value in found:
            assert offset == len(seen), f"{topic}-{partition}: offset {offset} after {len(seen) - 1}"
            seen[offset] = value or b""
        at = len(seen)


# --- groups -----------------------------------------------------------------------------------------------------------


class SimpleCommitter(Worker):
    """Commits for several partitions at once, each time a larger offset: all of a commit are there, or none."""

    def __init__(self, name: str, seed: int, topic: str, partitions: int) -> None:
        super().__init__(name, seed)
        self.keys = [(topic, partition) for partition in range(partitions)]
        self.attempted = self.told = 0

    def work(self, peer: Peer) -> None:
        self.attempted += 1
        errors = peer.commit(self.name, dict.fromkeys(self.keys, self.attempted))
        assert set(errors) == {ErrorCode.NONE}, errors
        self.told = self.attempted
        self.acknowledged += 1

    def check(self, peer: Peer) -> None:
        stored = peer.offsets_of(self.name)
        found = set(stored.values()) or {0}
        assert len(found) == 1, f"{self.name}: a commit is there in part: {stored}"
        (offset,) = found
        assert self.told <= offset <= self.attempted, f"{self.name}: {offset}, but {self.told} was acknowledged"
        self.told = self.attempted = offset


class Member(Worker):
    """The only member of its group: joins, syncs, commits, rejoins for another rebalance, and leaves now and then."""

    def __init__(self, name: str, seed: int, topic: str) -> None:
        super().__init__(name, seed)
        self.topic = topic
        self.joined: JoinedGroup | None = None
        """As of the last sync that was answered: what C4 says must come back."""
        self.assignment = b""
        self.attempt: tuple[JoinedGroup | None, bytes] | None = None
        """A sync that was sent and not answered, with its assignment; with no rebalance it is a leave."""
        self.offset = self.offset_attempted = 0

    def work(self, peer: Peer) -> None:
        if self.joined is None or self.rng.random() < 0.1:
            self._join(peer, self.joined.member_id if self.joined else "")
        elif self.rng.random() < 0.05:
            self._leave(peer, self.joined)
        else:
            self._commit(peer, self.joined)

    def _join(self, peer: Peer, member_id: str) -> None:
        joined = peer.join(self.name, member_id)
        if joined.error is ErrorCode.MEMBER_ID_REQUIRED:
            joined = peer.join(self.name, joined.member_id)
        assert joined.error is ErrorCode.NONE, joined
        assignment = b"%d of %s" % (joined.generation_id, self.name.encode())
        self.attempt = joined, assignment
        synced = peer.sync(self.name, joined, {joined.member_id: assignment})
        assert synced.error is ErrorCode.NONE, synced
        self.joined, self.assignment, self.attempt = joined, assignment, None
        self.acknowledged += 1

    def _leave(self, peer: Peer, joined: JoinedGroup) -> None:
        self.attempt = None, b""
        answer = peer.ask(leave_group, LeaveGroup(None, self.name, [LeavingMember(joined.member_id)]))
        assert answer.error is ErrorCode.NONE
        self.joined = self.attempt = None
        self.acknowledged += 1

    def _commit(self, peer: Peer, joined: JoinedGroup) -> None:
        self.offset_attempted += 1
        errors = peer.commit(self.name, {(self.topic, 0): self.offset_attempted}, member=joined)
        assert errors == [ErrorCode.NONE], errors
        self.offset = self.offset_attempted
        assert peer.heartbeat(self.name, joined.member_id, joined.generation_id) is ErrorCode.NONE
        self.acknowledged += 1

    def check(self, peer: Peer) -> None:
        stored = peer.offsets_of(self.name).get((self.topic, 0), 0)
        assert self.offset <= stored <= self.offset_attempted, f"{self.name}: {stored}, told {self.offset}"
        self.offset = self.offset_attempted = stored
        (group,) = peer.ask(describe_groups, [DescribeGroup(None, self.name)], 5)
        found = {one.member_id: one.assignment for one in group.members}
        if self.attempt is not None and found == _members(*self.attempt):
            self.joined, self.assignment = self.attempt  # it was under way, and happened
        self.attempt = None
        told = _members(self.joined, self.assignment)
        assert found == told, f"{self.name}: {group.state} with {found}, told {told}"
        if self.joined is not None:
            assert group.state == "Stable"
            answer = peer.heartbeat(self.name, self.joined.member_id, self.joined.generation_id)
            assert answer is ErrorCode.NONE, f"{self.name}: generation {self.joined.generation_id}: {answer.name}"


def _members(joined: JoinedGroup | None, assignment: bytes) -> dict[str, bytes]:
    return {} if joined is None else {joined.member_id: assignment}
