"""The way of fetched records to the user: examples of polls, and reading one by one compared with polls."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client.fetch_world import ALONE, TOPIC_ID, World, batch_at, fetch_settings, offsets, partition, reading
from coterie.client.consumer.fetch_requests import CorruptRecordError, Fetch
from coterie.client.consumer.subscription_state import EARLIEST, LATEST
from coterie.client.types import OffsetAndMetadata
from coterie.errors import KafkaError
from coterie.protocol.apis.fetch import FetchedPartition, FetchedTopic, Response
from coterie.protocol.records import Record


def test_what_a_paused_partition_has_waits_and_nothing_more_is_fetched() -> None:
    world = reading()
    world.run(1)
    world.reader.pause(partition(0))
    assert world.reader.take(10) == [] and world.reader.paused == [partition(0)]
    assert world.effect() == []
    world.reader.resume(partition(0))
    assert offsets(world.reader.take(2)) == [(0, 0), (0, 1)]


def test_what_is_about_to_be_given_up_is_held_until_the_assignment_is_known() -> None:
    """M3: what is committed before a join must not be overtaken by records that are handed out."""
    world = reading()
    world.run(1)
    world.reader.take(1)
    world.reader.hold([partition(0), partition(9)])
    assert world.reader.take(10) == []
    world.reader.assign([partition(0)])
    assert offsets(world.reader.take(1)) == [(0, 1)]


def test_polls_serve_partitions_in_turn() -> None:
    world = World(ALONE)
    world.reader.assign([world.partition(0, 100), world.partition(1, 100)])
    world.run()
    assert [one.partition for _ in range(4) for one in world.reader.take(2)[:1]] == [0, 1, 0, 1]


def test_what_a_poll_handed_over_is_processed_when_the_next_one_begins() -> None:
    world = reading()
    world.run()
    world.reader.take(4)
    assert world.reader.positions() == {partition(0): OffsetAndMetadata(4, leader_epoch=3)}
    assert world.reader.processed() == {partition(0): OffsetAndMetadata(0)}
    world.reader.take(1)
    assert world.reader.processed() == {partition(0): OffsetAndMetadata(4, leader_epoch=3)}
    world.reader.begin_poll()
    assert world.reader.processed() == world.reader.positions() == {partition(0): OffsetAndMetadata(5, leader_epoch=3)}


def test_what_did_not_reach_the_caller_comes_again() -> None:
    world = reading()
    world.run()
    world.reader.take(4)
    world.reader.take(2)
    world.reader.rewind()
    world.run()
    assert offsets(world.reader.take(3)) == [(0, 4), (0, 5), (0, 6)]


def test_corrupt_records_are_named_with_what_to_do_and_what_is_before_them_is_handed_over() -> None:
    world = reading()
    fetch = world.effect()[0]
    assert isinstance(fetch, Fetch)
    broken = bytearray(batch_at(0, 3) + batch_at(3, 3))
    broken[-1] ^= 1
    answer = FetchedPartition(partition=0, high_watermark=10, records=bytes(broken))
    world.reader.fetched(fetch, Response(responses=[FetchedTopic(topic_id=TOPIC_ID, partitions=[answer])]), 0)
    assert offsets(world.reader.take(10)) == [(0, 0), (0, 1), (0, 2)]
    for _ in range(2):
        with pytest.raises(CorruptRecordError, match=r"records of t-0 from offset 3 on .*checksum.*seek") as caught:
            world.reader.take(10)
        assert caught.value.partition == partition(0) and caught.value.offset == 3 and not caught.value.retriable
    world.reader.seek(partition(0), 6)
    world.under_way.clear()
    world.run()
    assert offsets(world.reader.take(1)) == [(0, 6)]


@pytest.mark.parametrize("records", [b"x", b"x" * 200, bytes(200), batch_at(0, 2), batch_at(5, 3)[:-1]])
def test_an_answer_that_leads_nowhere_is_an_error_and_no_endless_loop(records: bytes) -> None:
    """Nonsense, a cut batch alone, or batches from before the offset that was asked for."""
    world = reading()
    world.reader.seek(partition(0), 5)
    fetch = world.effect()[0]
    assert isinstance(fetch, Fetch)
    answer = FetchedPartition(partition=0, high_watermark=10, records=records)
    world.reader.fetched(fetch, Response(responses=[FetchedTopic(topic_id=TOPIC_ID, partitions=[answer])]), 0)
    assert world.effect() == []
    with pytest.raises(CorruptRecordError, match="t-0 from offset 5"):
        world.reader.take(10)
    assert world.effect() == []


# --- one by one -------------------------------------------------------------------------------------------------------

PARTITIONS = 3
numbers = st.integers(0, PARTITIONS - 1)


class Reader:
    """A world and someone who reads in it: by polls of one record, or as an iteration does."""

    def __init__(self, size: int, *, iterates: bool) -> None:
        self.world = World(fetch_settings(EARLIEST, has_group=False, max_partition_fetch_bytes=600), size=size)
        self.fetcher = self.world.reader
        self.iterates = iterates
        self.assigned = set(range(PARTITIONS))
        for number in range(PARTITIONS):
            self.world.partition(number, 20 + number, leader=1 + number % 2)
        self.assign()

    def assign(self) -> None:
        self.fetcher.assign([partition(number) for number in sorted(self.assigned)])

    def read(self) -> Record | None:
        if not self.iterates:
            return next(iter(self.fetcher.take(1)), None)
        record = self.fetcher.buffer.take()
        return record if record is not None else self.fetcher.take_one(1, lambda: 0)

    def do(self, action: tuple[Any, ...]) -> object:
        """Return what the user sees of it."""
        match action:
            case ("read", count):
                return [self.read() for _ in range(count)]
            case ("look",):
                return self.fetcher.positions(), self.fetcher.processed(), self.fetcher.largest_lag()
            case ("network",):
                self.world.pass_ms(200)
                self.world.run(2)
            case ("elect", number, node):
                self.world.elect(number, node)
            case ("stop",):
                self.fetcher.buffer.stop()
            case ("poll begins",):
                self.fetcher.begin_poll()
            case ("rewind",):
                self.fetcher.rewind()
            case ("assign", chosen):
                self.assigned = chosen
                self.assign()
            case ("revoke", chosen):
                self.fetcher.hold([partition(number) for number in chosen])
                seen = self.read()
                self.assigned -= chosen
                self.assign()
                return seen
            case (what, number, *more) if number in self.assigned:
                return getattr(self.fetcher, what)(partition(number), *more)
        return None


actions = st.one_of(
    st.tuples(st.just("read"), st.integers(1, 12)),
    st.sampled_from([("look",), ("network",), ("network",), ("stop",), ("poll begins",), ("rewind",)]),
    st.tuples(st.just("seek"), numbers, st.integers(0, 20)),
    st.tuples(st.just("reset"), numbers, st.sampled_from([EARLIEST, LATEST])),
    st.tuples(st.sampled_from(["pause", "resume", "restore", "lag", "lead"]), numbers),
    st.tuples(st.sampled_from(["revoke", "assign"]), st.sets(numbers)),
    st.tuples(st.just("elect"), numbers, st.integers(1, 2)),
)


@given(st.integers(1, 5), st.lists(actions, max_size=30))
def test_records_read_one_by_one_are_those_of_polls_of_one(size: int, life: list[tuple[Any, ...]]) -> None:
    """Whatever happens between two records; and so are positions, and what counts as processed."""
    readers = Reader(size, iterates=True), Reader(size, iterates=False)
    for action in [("network",), *life, ("look",), ("network",), ("read", 12), ("look",)]:
        seen: list[object] = []
        for each in readers:
            try:
                seen.append(each.do(action))
            except KafkaError as error:
                seen.append(str(error))
        assert seen[0] == seen[1], action
    assert readers[0].fetcher.records_taken == readers[1].fetcher.records_taken
    assert readers[0].fetcher.bytes_taken == readers[1].fetcher.bytes_taken


def test_an_iteration_opens_batches_ahead_and_its_position_does_not_run_ahead() -> None:
    world = reading(size=2)
    world.run()
    assert (first := world.reader.take_one(1, lambda: 0)) is not None and first.offset == 0
    assert [record.offset for record in (world.reader.buffer.take() for _ in range(2)) if record] == [1, 2]
    assert world.reader.positions() == {partition(0): OffsetAndMetadata(3, leader_epoch=3)}
    assert world.reader.processed() == {partition(0): OffsetAndMetadata(2, leader_epoch=3)}
    assert world.reader.buffer.take() is None and offsets(world.reader.take(1)) == [(0, 3)]
