"""A log that was truncated behind a consumer's back (KIP-320): its position is validated, and goes back."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from client.consumers import QUICK
from client.fetch_world import EPOCH, World, fetch_settings, offsets, partition
from client.peers import HANG_UP, Asked, Run, answer_to
from client.peers import Peer as FakeBroker
from coterie.client.consumer.async_consumer import AsyncConsumer
from coterie.client.consumer.fetch_requests import (
    AskEpochEnds,
    AskOffsets,
    Fetch,
    LogTruncationError,
    OffsetOutOfRangeError,
    RefreshLeaders,
)
from coterie.client.consumer.fetcher import MOST_STALE_EPOCHS
from coterie.client.consumer.subscription_state import EARLIEST, LATEST, NO_RESET, PartitionLeader, Reset
from coterie.client.types import OffsetAndMetadata, TopicPartition
from coterie.errors import AuthorizationError, ErrorCode, UnsupportedVersionError
from coterie.protocol.api import by_key
from coterie.protocol.apis import metadata
from coterie.protocol.apis import offset_for_leader_epoch as epoch_api
from coterie.protocol.apis.fetch import FetchedPartition, FetchedTopic, Response
from coterie.protocol.batch import assign
from coterie.protocol.buffer import Buffer
from coterie.protocol.fetched import FetchedRecords
from coterie.protocol.records import EndMarker
from logs import build_marker

HERE = partition(0)


def reading(reset: Reset = EARLIEST, *, end: int = 10, take: int = 10) -> World:
    """`t-0`, of which `take` records were taken in epoch 3."""
    world = World(fetch_settings(reset))
    world.reader.assign([world.partition(0, end)])
    world.reader.seek(HERE, 0)
    world.run()
    while take > 0:
        taken = world.reader.take(take)
        assert taken
        take -= len(taken)
        world.run()
    return world


def heal(world: World) -> None:
    for _ in range(6):
        world.pass_ms(100)
        world.run(2)


def the_question(world: World) -> AskEpochEnds:
    """What is asked of the new leader, once it is known."""
    world.known[0] = world.leader(0)
    world.reader.needs_data = True
    (asked,) = [one for one in world.effect() if isinstance(one, AskEpochEnds)]
    return asked


# --- at a change of leader --------------------------------------------------------------------------------------------


def test_after_an_unclean_election_the_reader_goes_back_to_where_the_logs_part() -> None:
    """Ten were read, four of them are gone, and six others were written since: none of these may be skipped."""
    world = reading()
    world.elect(0, 2, end=6)
    world.ends[0] = 12
    heal(world)
    assert offsets(world.reader.take(100)) == [(0, at) for at in range(6, 12)]
    (told,) = world.told
    assert str(told) == (
        "t-0: its log was truncated to offset 6; the position was 10 (leader epoch 3), and goes back to 6 "
        "(leader epoch 3)"
    )


def test_after_a_clean_election_nothing_is_read_twice() -> None:
    world = reading(take=4)
    world.elect(0, 2)
    heal(world)
    assert offsets(world.reader.take(100)) == [(0, at) for at in range(4, 10)]
    assert world.told == []


def test_the_leader_is_asked_under_its_epoch_for_the_epoch_of_the_last_record_and_nothing_is_fetched_meanwhile() -> (
    None
):
    world = reading()
    world.elect(0, 2, end=6)
    asked = the_question(world)
    (topic,) = asked.request.topics
    (one,) = topic.partitions
    assert (asked.node_id, topic.topic, one.partition) == (2, "t", 0)
    assert (one.current_leader_epoch, one.leader_epoch) == (EPOCH + 1, EPOCH)
    world.pass_ms(1_000)
    assert [effect for effect in world.effect() if isinstance(effect, Fetch)] == []


def test_what_was_fetched_ahead_from_the_old_leader_is_not_handed_over() -> None:
    world = reading(take=2)
    world.elect(0, 2, end=4)
    world.answer(the_question(world))
    assert world.reader.take(100) == []
    heal(world)
    assert offsets(world.reader.take(100)) == [(0, 2), (0, 3)]


def test_an_answer_of_the_old_leader_that_comes_late_is_dropped() -> None:
    """It was asked for the same offset, and has records that the new leader does not."""
    world = reading(end=10, take=6)
    world.reader.seek(HERE, 6, EPOCH)
    world.run(2)
    world.reader.seek(HERE, 6)
    (late,) = [one for one in world.under_way + world.effect() if isinstance(one, Fetch)][:1]
    before = world.read(1, 0, 6, EPOCH)
    assert before.records
    world.reader.state(HERE).epoch = EPOCH
    world.elect(0, 2, end=6)
    world.answer(the_question(world))
    world.reader.fetched(late, _fetched(world, before.records), world.now_ms)
    assert not world.reader.has_something


def _fetched(world: World, records: Buffer) -> Response:
    one = FetchedPartition(partition=0, high_watermark=10, records=bytes(records))
    return Response(responses=[FetchedTopic(topic_id=world.topic_id, partitions=[one])])


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_when_the_leader_cannot_say_leaders_are_asked_for_and_it_is_asked_again(code: ErrorCode) -> None:
    world = reading()
    world.elect(0, 2, end=6)
    asked = the_question(world)
    world.under_way.clear()
    refused = epoch_api.TopicEnds(topic="t", partitions=[epoch_api.EpochEnd(partition=0, error=code)])
    world.reader.epoch_ends_found(asked, epoch_api.Response(topics=[refused]), world.now_ms)
    (refresh,) = world.effect()
    assert isinstance(refresh, RefreshLeaders)
    heal(world)
    assert world.reader.state(HERE).position == 6


def test_a_position_is_committed_while_it_is_validated() -> None:
    """With its epoch, so that the next owner validates it."""
    world = reading()
    world.elect(0, 2, end=6)
    the_question(world)
    assert world.reader.positions() == {HERE: OffsetAndMetadata(10, leader_epoch=EPOCH)}


def test_a_lost_connection_is_no_validation() -> None:
    world = reading()
    world.elect(0, 2, end=6)
    world.lose(the_question(world))
    assert not world.reader.state(HERE).is_valid
    heal(world)
    assert world.reader.state(HERE).position == 6


def test_missing_rights_are_told_and_asked_for_again() -> None:
    world = reading()
    world.elect(0, 2, end=6)
    asked = the_question(world)
    world.under_way.clear()
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    refused = epoch_api.TopicEnds(topic="t", partitions=[epoch_api.EpochEnd(partition=0, error=code)])
    world.reader.epoch_ends_found(asked, epoch_api.Response(topics=[refused]), world.now_ms)
    with pytest.raises(AuthorizationError, match="t-0 cannot be validated"):
        world.reader.take(1)
    heal(world)
    assert world.reader.state(HERE).position == 6


def test_a_broker_that_is_too_old_to_be_asked_is_read_from() -> None:
    world = reading(take=4)
    world.elect(0, 2)
    asked = the_question(world)
    world.under_way.clear()
    world.reader.epoch_ends_failed(asked, UnsupportedVersionError("too old"), world.now_ms)
    heal(world)
    assert offsets(world.reader.take(1)) == [(0, 4)]


def test_a_seek_while_the_leader_is_asked_counts() -> None:
    world = reading()
    world.elect(0, 2, end=6)
    asked = the_question(world)
    world.reader.seek(HERE, 1)
    world.answer(asked)
    assert world.reader.state(HERE).position == 1 and world.told == []


def test_a_paused_partition_is_validated_and_one_that_is_given_up_stays_where_it_was_committed() -> None:
    world = reading()
    world.reader.pause(HERE)
    world.elect(0, 2, end=6)
    world.answer(the_question(world))
    assert world.reader.state(HERE).position == 6

    world = reading()
    world.reader.hold([HERE])
    world.elect(0, 2, end=6)
    world.known[0] = world.leader(0)
    world.reader.needs_data = True
    assert world.effect() == []
    assert world.reader.positions() == {HERE: OffsetAndMetadata(10, leader_epoch=EPOCH)}


def test_markers_count_for_the_epoch_of_the_position() -> None:
    """Else the end of the epoch before them would be taken for a truncation."""
    marker = build_marker(EndMarker(committed=True), producer_id=1, producer_epoch=0, timestamp=0)
    assign(marker, 0, 10, EPOCH + 1)
    chunk = FetchedRecords("t", 0, bytes(marker), next_offset=10)
    assert chunk.take(10) == []
    assert (chunk.next_offset, chunk.last_epoch) == (11, EPOCH + 1)


# --- committed offsets ------------------------------------------------------------------------------------------------


def committed(epoch: int, at: int = 10, end: int = 20) -> World:
    world = World(fetch_settings(EARLIEST))
    world.reader.assign([world.partition(0, end)])
    (asked,) = world.effect()
    world.under_way.clear()
    world.reader.committed(asked, {HERE: OffsetAndMetadata(at, leader_epoch=epoch)}, world.now_ms)  # type: ignore[arg-type]
    return world


def test_a_committed_offset_with_an_epoch_is_validated_before_it_is_read() -> None:
    world = committed(EPOCH)
    world.elect(0, 2, end=6)
    world.ends[0] = 12
    heal(world)
    assert offsets(world.reader.take(100)) == [(0, at) for at in range(6, 12)]


def test_a_committed_offset_without_an_epoch_is_taken_as_it_is() -> None:
    world = committed(-1)
    (effect,) = world.effect()
    assert isinstance(effect, Fetch)


def test_metadata_older_than_the_committed_epoch_is_refreshed_and_not_believed() -> None:
    """A leader of old would not know that epoch, and the position would be reset for nothing."""
    world = committed(EPOCH + 1, at=12)
    stale = world.known[0]
    world.elect(0, 2)
    assert [type(one) for one in world.effect()] == [RefreshLeaders]
    assert world.known[0] == stale
    heal(world)
    assert offsets(world.reader.take(1)) == [(0, 12)] and world.told == []


def test_an_epoch_that_never_was_does_not_stop_a_reader() -> None:
    world = committed(99)
    for _ in range(MOST_STALE_EPOCHS + 5):
        world.pass_ms(100)
        world.run(2)
    assert offsets(world.reader.take(1)) == [(0, 0)]
    (told,) = world.told
    assert "knows no leader epoch 99" in str(told) and "reset to earliest" in str(told)


# --- what then --------------------------------------------------------------------------------------------------------


def test_with_reset_none_a_truncation_is_raised_at_every_poll_until_a_seek() -> None:
    world = reading(NO_RESET)
    world.elect(0, 2, end=6)
    world.ends[0] = 8
    heal(world)
    for _ in range(2):
        with pytest.raises(
            LogTruncationError, match=r"t-0: its log was truncated to offset 6.*seek to offset 6"
        ) as told:
            world.reader.take(10)
    assert isinstance(told.value, OffsetOutOfRangeError) and not told.value.retriable
    assert told.value.positions == {HERE: OffsetAndMetadata(10, leader_epoch=EPOCH)}
    assert told.value.divergent_offsets == {HERE: OffsetAndMetadata(6, leader_epoch=EPOCH)}
    world.reader.seek(HERE, 6, EPOCH)
    heal(world)
    assert offsets(world.reader.take(10)) == [(0, 6), (0, 7)]


def test_with_a_leader_that_does_not_know_the_epoch_the_policy_decides() -> None:
    """Java's rule: back to the divergent offset if it is known, whatever the policy; else as the policy says."""
    for reset, first in ((EARLIEST, 0), (LATEST, None)):
        world = reading(reset)
        world.epochs[0] = [(EPOCH - 1, 0)]
        world.reader.state(HERE).stale_epochs = MOST_STALE_EPOCHS
        world.known[0] = PartitionLeader(1, EPOCH - 1, world.topic_id)
        heal(world)
        assert [at for _, at in offsets(world.reader.take(1))] == ([] if first is None else [first])
        assert world.reader.state(HERE).position == (10 if first is None else 1)


def test_a_topic_that_was_created_again_is_read_from_where_the_policy_says() -> None:
    """Its leader and epoch may be the same as before; the id is not."""
    world = reading()
    world.topic_id = UUID(int=8)
    world.ends[0] = 15
    heal(world)
    assert offsets(world.reader.take(100))[0] == (0, 0)
    assert "deleted and created again" in str(world.told[0])

    world = reading(NO_RESET)
    world.topic_id = UUID(int=8)
    heal(world)
    with pytest.raises(LogTruncationError, match="created again"):
        world.reader.take(1)


def test_a_position_that_was_looked_up_has_no_epoch_to_validate() -> None:
    world = World(fetch_settings(EARLIEST, has_group=False))
    world.reader.assign([world.partition(0, 3)])
    (asked,) = world.effect()
    assert isinstance(asked, AskOffsets)
    world.answer(asked)
    (effect,) = world.effect()
    assert isinstance(effect, Fetch)


# --- on a socket ------------------------------------------------------------------------------------------------------


def broker_of(world: World) -> FakeBroker:
    """Node 1, which leads `t-0` of that world."""

    def answer(asked: Asked) -> object:
        request = by_key[asked.key].module.read_request(asked.frame, asked.at, asked.version)
        match by_key[asked.key].name:
            case "Metadata":
                leader = world.leader(0)
                one = metadata.DescribedPartition(
                    partition=0, leader_id=1, leader_epoch=leader.epoch, replicas=[1], isr=[1]
                )
                topic = metadata.DescribedTopic(name="t", topic_id=leader.topic_id, partitions=[one])
                node = metadata.Broker(node_id=1, host="127.0.0.1", port=fake.port)
                return answer_to(asked, metadata.Response(brokers=[node], topics=[topic]))
            case "Fetch":
                return answer_to(asked, world.fetched(1, request))
            case "OffsetForLeaderEpoch":
                return answer_to(asked, world.epoch_ends(1, request))
        return HANG_UP

    fake = FakeBroker(answer)
    return fake


@pytest.mark.real_time
@pytest.mark.parametrize("reset", ["earliest", "none"])
def test_a_consumer_goes_back_or_raises_and_says_why(run: Run, reset: str, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        world = World()
        world.partition(0, 10)
        async with (
            broker_of(world) as fake,
            AsyncConsumer({**QUICK, "bootstrap.servers": fake.bootstrap, "auto.offset.reset": reset}) as consumer,
        ):
            consumer.assign([HERE])
            consumer.seek(HERE, 0)
            assert await read_to(consumer, 10) == list(range(10))
            world.elect(0, 1, end=6)
            world.ends[0] = 12
            if reset == "none":
                with pytest.raises(LogTruncationError) as told:
                    await read_to(consumer, 12)
                ((one, at),) = told.value.divergent_offsets.items()
                assert one == HERE and at == OffsetAndMetadata(6, leader_epoch=EPOCH)
                consumer.seek(one, at.offset)
            assert await read_to(consumer, 12) == list(range(6, 12))
            assert await consumer.position(HERE) == 12
        assert ("truncated to offset 6" in caplog.text) == (reset != "none")

    run(story())


async def read_to(consumer: AsyncConsumer, end: int) -> list[int]:
    found: list[int] = []
    async with asyncio.timeout(20):
        while not found or found[-1] < end - 1:
            found += [record.offset for record in await consumer.poll(1)]
    return found


# --- random lives -----------------------------------------------------------------------------------------------------

steps = st.one_of(
    st.tuples(st.just("write"), st.integers(1, 5)),
    st.tuples(st.just("elect"), st.integers(0, 48)),
    st.tuples(st.just("take"), st.integers(1, 6)),
    st.tuples(st.just("ask"), st.just(0)),
    st.tuples(st.just("answer"), st.integers(0, 3)),
    st.tuples(st.just("lose"), st.integers(0, 3)),
    st.tuples(st.just("restart"), st.just(0)),
    st.tuples(st.just("wait"), st.integers(0, 200)),
    st.tuples(st.just("catch up"), st.just(100)),
)


@settings(max_examples=100, deadline=None)
@given(story=st.lists(steps, max_size=60), size=st.integers(1, 4))
def test_every_record_that_is_in_the_log_at_last_was_handed_over(story: list[tuple[str, int]], size: int) -> None:
    """Whatever was truncated: of each offset, the version that remained was seen, and seen last."""
    world = World(fetch_settings(EARLIEST), size=size)
    world.reader.assign([world.partition(0, 5)])
    seen: dict[int, int] = {}

    def take(limit: int) -> None:
        for record in world.reader.take(limit):
            seen[record.offset] = record.leader_epoch

    for what, number in story:
        match what:
            case "write":
                world.ends[0] += number
            case "elect":  # the log loses some records, and others are written
                lost, written = divmod(number, 7)
                world.elect(0, 3 - world.leaders[0], max(world.ends[0] - lost, 0))
                world.ends[0] += written
            case "take":
                take(number)
            case "ask":
                world.effect()
            case "answer" | "lose" if world.under_way:
                effect = world.under_way[number % len(world.under_way)]
                (world.answer if what == "answer" else world.lose)(effect)
            case "restart":  # another member goes on from what is committed, with its epoch
                _restart(world, world.reader.positions())
            case "catch up":
                heal(world)
                take(number)
            case "wait":
                world.pass_ms(number)
    for _ in range(8):
        heal(world)
        take(100)
    assert {at: seen.get(at) for at in range(world.ends[0])} == {
        at: world.epoch_at(0, at) for at in range(world.ends[0])
    }


def _restart(world: World, at: dict[TopicPartition, OffsetAndMetadata]) -> None:
    world.under_way.clear()
    world.reader.__init__(world.settings)  # type: ignore[misc]
    world.reader.assign([HERE])
    (asked,) = world.effect()
    world.under_way.clear()
    world.reader.committed(asked, at, world.now_ms)  # type: ignore[arg-type]
