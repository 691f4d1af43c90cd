"""Where a consumer stands and what it asks for: examples. Random lives are in test_fetching_properties.py."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from client.fetch_world import ALONE, FROM_START, TOPIC_ID, World, batch_at, fetch_settings, offsets, partition, reading
from coterie.client.consumer.fetch_requests import (
    ON_ERROR,
    AskCommitted,
    AskOffsets,
    CorruptRecordError,
    Fetch,
    FetchErrorAction,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    RefreshLeaders,
)
from coterie.client.consumer.fetcher import NotAssignedError
from coterie.client.consumer.subscription_state import LATEST, NO_RESET, parse_reset
from coterie.client.types import TopicPartition
from coterie.errors import AuthorizationError, ErrorCode, KafkaError
from coterie.protocol.apis.fetch import FetchedPartition, FetchedTopic, Response


def only(effects: list[object]) -> object:
    (found,) = effects
    return found


@pytest.mark.parametrize("offset", [0, 7])
def test_an_answer_to_a_fetch_from_before_a_seek_is_dropped(offset: int) -> None:
    """It has records from where the consumer stood when it was asked."""
    world = reading()
    world.reader.seek(partition(0), 4)
    (late,) = world.effect()
    world.reader.seek(partition(0), offset)
    asked = world.effect()
    world.answer(late)
    assert world.reader.take(100) == []
    for one in asked:
        world.answer(one)
    world.run()
    assert offsets(world.reader.take(100)) == [(0, at) for at in range(offset, 10)]


# --- where to begin ---------------------------------------------------------------------------------------------------


def test_committed_offsets_come_first() -> None:
    """M6: fetch committed offsets, fall back to auto.offset.reset."""
    world = World(FROM_START)
    world.committed[0] = 4
    world.reader.assign([world.partition(0, 10), world.partition(1, 10)])
    first = only(list(world.effect()))
    assert isinstance(first, AskCommitted) and [state.partition for state in first.states] == [
        partition(0),
        partition(1),
    ]
    world.answer(first)
    second, third = world.effect()
    assert isinstance(second, AskOffsets) and isinstance(third, Fetch)
    world.answer(second)
    world.answer(third)
    world.run()
    assert sorted(offsets(world.reader.take(100))) == [(0, at) for at in range(4, 10)] + [(1, at) for at in range(10)]


def test_an_assignment_changes_all_at_once() -> None:
    """Other threads look at it while the event loop changes it."""
    world = reading()
    before = world.reader.assignment
    seen = []

    def one_after_the_other() -> Iterator[TopicPartition]:
        for number in (1, 2):
            yield world.partition(number)
            seen.append(world.reader.assignment)

    world.reader.assign(one_after_the_other())
    assert seen == [before, before]
    assert world.reader.assignment == [partition(1), partition(2)]


def test_without_a_group_nobody_is_asked_for_commits() -> None:
    world = World(ALONE)
    world.reader.assign([world.partition(0, 2)])
    assert isinstance(only(list(world.effect())), AskOffsets)


@pytest.mark.parametrize(
    ("reset", "asked"),
    [
        ("earliest", -2),
        ("latest", -1),
        ("by_duration:PT1S", 4_000),
        ("by_duration:P1DT1H1M1.5S", 0),
    ],
)
def test_auto_offset_reset_says_what_is_asked_for(reset: str, asked: int) -> None:
    """KIP-1106: by_duration is so long before now."""
    world = World(fetch_settings(parse_reset(reset), has_group=False), now_ms=5_000)
    world.reader.assign([world.partition(0, 2)])
    effect = only(list(world.effect()))
    assert isinstance(effect, AskOffsets) and list(effect.states.values()) == [asked]


def test_a_time_after_the_last_record_begins_with_the_next_one() -> None:
    world = World(fetch_settings(parse_reset("by_duration:PT1S"), has_group=False))
    world.reader.assign([world.partition(0, 9)])
    world.run()
    assert world.reader.state(partition(0)).position == 9


def test_with_reset_none_a_missing_offset_is_raised_at_every_poll_until_a_seek() -> None:
    world = World(fetch_settings(NO_RESET))
    world.reader.assign([world.partition(0, 5)])
    world.run()
    for _ in range(2):
        with pytest.raises(NoOffsetForPartitionError, match=r"no offset for t-0.*auto.offset.reset is none"):
            world.reader.take(10)
    world.reader.seek(partition(0), 3)
    world.run()
    assert offsets(world.reader.take(10)) == [(0, 3), (0, 4)]


def test_an_offset_that_is_gone_is_reset_or_raised() -> None:
    world = reading()
    world.starts[0] = 6
    world.run()
    assert offsets(world.reader.take(1)) == [(0, 6)]
    world = reading(fetch_settings(NO_RESET))
    world.starts[0] = 6
    world.run()
    with pytest.raises(OffsetOutOfRangeError, match="t-0 has no offset 0"):
        world.reader.take(1)


# --- fetching ---------------------------------------------------------------------------------------------------------


def test_one_fetch_at_a_time_goes_to_a_node_and_names_all_that_is_read_there() -> None:
    world = World(ALONE)
    world.reader.assign([world.partition(0, 5), world.partition(1, 5), world.partition(2, 5, leader=2)])
    for one in range(3):
        world.reader.seek(partition(one), 0)
    effects = world.effect()
    assert [one.node_id for one in effects if isinstance(one, Fetch)] == [1, 2]
    asked = effects[0]
    assert isinstance(asked, Fetch)
    (topic,) = asked.request.topics
    assert topic.topic_id == TOPIC_ID and [one.partition for one in topic.partitions] == [0, 1]
    assert asked.request.session_epoch == -1 and asked.request.session_id == 0
    world.reader.seek(partition(0), 1)
    assert world.effect() == []


def test_the_next_fetch_goes_out_while_records_wait_and_not_when_too_many_do() -> None:
    world = reading(replace(ALONE, max_partition_fetch_bytes=len(batch_at(0, 3)) * 3), end=100)
    world.answer(world.effect()[0])
    fetch = only(list(world.effect()))
    assert isinstance(fetch, Fetch) and fetch.request.topics[0].partitions[0].fetch_offset == 6
    world.answer(fetch)
    assert world.effect() == []
    assert offsets(world.reader.take(3)) == [(0, 0), (0, 1), (0, 2)]
    assert not world.reader.needs_data
    world.reader.take(3)
    assert world.reader.needs_data
    assert isinstance(only(list(world.effect())), Fetch)


@pytest.mark.parametrize("what", ["lost", "sought", "reset", "lost and back"])
def test_an_answer_that_is_not_wanted_any_more_is_dropped(what: str) -> None:
    world = reading()
    fetch = world.effect()[0]
    if what == "sought":
        world.reader.seek(partition(0), 5)
    elif what == "reset":
        world.reader.reset(partition(0), LATEST)
    else:
        world.reader.assign([])
        if what == "lost and back":
            world.reader.assign([partition(0)])
    world.answer(fetch)
    assert not world.reader.has_something


def test_a_nearer_replica_is_read_for_a_while() -> None:
    """KIP-392: the leader names it, and an error there leads back to the leader."""
    world = reading(replace(ALONE, client_rack="b", metadata_max_age_ms=1_000))
    fetch = world.effect()[0]
    assert isinstance(fetch, Fetch) and fetch.request.rack_id == "b"
    answer = FetchedPartition(partition=0, preferred_read_replica=5)
    world.reader.fetched(
        fetch, Response(responses=[FetchedTopic(topic_id=TOPIC_ID, partitions=[answer])]), world.now_ms
    )
    (nearer,) = world.effect()
    assert isinstance(nearer, Fetch) and nearer.node_id == 5
    world.under_way.clear()
    world.reader.fetched(nearer, Response(error=ErrorCode.UNKNOWN_SERVER_ERROR, responses=()), world.now_ms)
    world.pass_ms(200)
    (back,) = world.effect()
    assert isinstance(back, Fetch) and back.node_id == 1


# --- how far ----------------------------------------------------------------------------------------------------------


def test_lag_is_what_the_log_has_beyond_the_position() -> None:
    world = reading()
    assert world.reader.lag(partition(0)) is None
    world.run()
    world.reader.take(4)
    assert world.reader.lag(partition(0)) == 6


def test_asking_about_a_partition_of_somebody_else_says_what_is_assigned() -> None:
    world = reading()
    with pytest.raises(NotAssignedError, match=r"t-5 is not assigned to this consumer; assigned are t-0"):
        world.reader.seek(partition(5), 0)


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [code for code, do in ON_ERROR.items() if do is FetchErrorAction.REFRESH])
def test_after_these_errors_leaders_are_asked_for_and_reading_goes_on(code: ErrorCode) -> None:
    world = reading()
    world.error = lambda _partition, _offset: code
    world.answer(world.effect()[0])
    (refresh,) = world.effect()
    assert isinstance(refresh, RefreshLeaders) and list(refresh.topics) == ["t"]
    world.error = lambda _partition, _offset: ErrorCode.NONE
    world.answer(refresh)
    world.pass_ms(100)
    world.run()
    assert offsets(world.reader.take(1)) == [(0, 0)]


def test_a_new_leader_is_followed() -> None:
    world = reading()
    world.leaders[0] = 2
    for _ in range(3):
        world.run(1)
        world.pass_ms(100)
    assert offsets(world.reader.take(1)) == [(0, 0)]


@pytest.mark.parametrize("code", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNSUPPORTED_VERSION])
def test_errors_that_do_not_pass_reach_the_caller(code: ErrorCode) -> None:
    world = reading()
    world.error = lambda _partition, _offset: code
    world.run(1)
    kind = AuthorizationError if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED else KafkaError
    with pytest.raises(kind, match="t-0 cannot be read at offset 0"):
        world.reader.take(1)


def test_rights_that_are_given_later_are_enough() -> None:
    world = reading()
    world.error = lambda _partition, _offset: ErrorCode.TOPIC_AUTHORIZATION_FAILED
    world.run(1)
    with pytest.raises(AuthorizationError):
        world.reader.take(1)
    world.error = lambda _partition, _offset: ErrorCode.NONE
    world.pass_ms(100)
    world.run(1)
    assert offsets(world.reader.take(1)) == [(0, 0)]


def test_records_that_the_broker_found_corrupt_are_asked_for_again_and_keep_nobody_from_other_partitions() -> None:
    """As in Java. The log may be repaired, or have another leader."""
    world = World(FROM_START, size=3)
    world.reader.assign([world.partition(0, 10), world.partition(1, 10)])
    for number in (0, 1):
        world.reader.seek(partition(number), 0)
    world.error = lambda each, _offset: ErrorCode.CORRUPT_MESSAGE if each == 0 else ErrorCode.NONE
    raised: list[tuple[TopicPartition, int]] = []
    read: list[tuple[int, int]] = []

    def poll_four_times() -> None:
        for _ in range(4):
            world.run(1)
            try:
                read.extend(offsets(world.reader.take(1)))
            except CorruptRecordError as error:
                raised.append((error.partition, error.offset))
            world.pass_ms(100)

    poll_four_times()
    assert set(raised) == {(partition(0), 0)}
    assert (1, 0) in read and not any(number == 0 for number, _ in read)
    world.error = lambda _partition, _offset: ErrorCode.NONE
    poll_four_times()
    assert (0, 0) in read


def test_a_lost_connection_backs_off_and_asks_who_leads() -> None:
    world = reading()
    world.lose(world.effect()[0])
    (refresh,) = world.effect()
    assert isinstance(refresh, RefreshLeaders)
    assert world.reader.due_ms == world.now_ms + 100
    world.answer(refresh)
    assert world.effect() == []
    world.pass_ms(100)
    assert isinstance(only(list(world.effect())), Fetch)
