"""Fetch: the long poll, limits, what may be seen."""

from __future__ import annotations

from uuid import UUID

import pytest

from broker.driver import Client, World
from broker.speaker import fetch_request
from coterie.errors import ErrorCode
from coterie.protocol.apis import fetch
from logs import batch, offsets_in


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def client(world: World) -> Client:
    client = world.client()
    client.create("t", 2)
    client.create("u")
    return client


def test_what_is_there_comes_at_once(client: Client) -> None:
    client.produce("t", b"a", b"b")
    answer = client.fetch("t", 0, max_wait_ms=600_000)
    assert offsets_in(answer.records or b"") == [0, 1]
    assert (answer.high_watermark, answer.last_stable_offset, answer.log_start_offset) == (2, 2, 0)


def test_at_the_end_a_fetch_waits_as_long_as_it_may(world: World, client: Client) -> None:
    client.send_fetch("t", 0, max_wait_ms=500)
    world.advance(499)
    assert client.answers == 0
    world.advance(1)
    answer = client.fetched()
    assert not answer.error and not answer.records and answer.high_watermark == 0


def test_a_fetch_that_may_not_wait_is_answered_empty(client: Client) -> None:
    assert not client.fetch("t", 0, max_wait_ms=0).records


def test_min_bytes_zero_is_answered_at_once(client: Client) -> None:
    assert not client.fetch("t", 0, min_bytes=0, max_wait_ms=600_000).records


def test_a_waiting_fetch_is_woken_when_the_record_is_durable_and_not_before(world: World, client: Client) -> None:
    """What a consumer has seen cannot be lost any more."""
    reader = world.client()
    reader.send_fetch("t", 0, max_wait_ms=600_000)
    world.auto = False
    client.send_produce("t", b"a", acks=1)
    assert client.produced().base_offset == 0
    assert reader.answers == 0
    assert not client.fetch("t", 0, max_wait_ms=0).records
    world.flush()
    assert offsets_in(reader.fetched().records or b"") == [0]


def test_a_fetch_waits_until_there_are_enough_bytes_in_all_its_partitions(world: World, client: Client) -> None:
    size = len(batch(b"x" * 100))
    reader = world.client()
    reader.send(fetch, fetch_request({"t": {0: 0, 1: 0}, "u": {0: 0}}, min_bytes=3 * size, max_wait_ms=600_000), 12)
    client.produce("t", b"x" * 100)
    client.produce("t", b"x" * 100, partition=1)
    assert reader.answers == 0
    client.produce("u", b"x" * 100)
    topics = reader.answer().responses
    assert [len(part.records) for topic in topics for part in topic.partitions] == [size, size, size]


def test_a_fetch_that_waited_in_vain_gets_the_little_there_is(world: World, client: Client) -> None:
    reader = world.client()
    client.produce("t", b"a")
    reader.send_fetch("t", 0, min_bytes=100_000, max_wait_ms=100)
    assert reader.answers == 0
    world.advance(100)
    assert offsets_in(reader.fetched().records or b"") == [0]
    assert len(world.cluster.fetches) == 0


def test_max_bytes_bounds_the_answer_but_for_its_first_batch(client: Client) -> None:
    """KIP-74: a reader never gets stuck before a batch that is larger than it asked for."""
    size = len(batch(b"x" * 100))
    for partition in (0, 1):
        for _ in range(3):
            client.produce("t", b"x" * 100, partition=partition)
    asked = {"t": {0: 0, 1: 0}}

    def sizes(**limits: int) -> list[int]:
        answer = client.ask(fetch, fetch_request(asked, **limits), 12)  # type: ignore[arg-type]
        return [len(part.records) // size for part in answer.responses[0].partitions]

    assert sizes() == [3, 3]
    assert sizes(max_bytes=4 * size) == [3, 1]
    assert sizes(max_bytes=3 * size) == [3, 0]
    assert sizes(max_bytes=1) == [1, 0]
    assert sizes(max_bytes=0) == [1, 0]
    assert sizes(partition_max_bytes=2 * size) == [2, 2]
    assert sizes(partition_max_bytes=1) == [1, 0]
    assert sizes(max_bytes=size, partition_max_bytes=2 * size) == [1, 0]


def test_an_offset_within_a_batch_gets_the_whole_batch(client: Client) -> None:
    client.produce("t", b"a", b"b", b"c")
    assert offsets_in(client.fetch("t", 1).records or b"") == [0, 1, 2]


@pytest.mark.parametrize("offset", [-1, 4])
def test_an_offset_that_is_not_there_is_told_at_once(client: Client, offset: int) -> None:
    client.produce("t", b"a", b"b", b"c")
    answer = client.fetch("t", offset, max_wait_ms=600_000)
    assert answer.error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert (answer.high_watermark, answer.log_start_offset) == (-1, -1)


def test_an_error_in_one_partition_does_not_let_the_others_wait(client: Client) -> None:
    answer = client.ask(fetch, fetch_request({"t": {0: 0, 7: 0}}, max_wait_ms=600_000), 12)
    errors = [part.error for part in answer.responses[0].partitions]
    assert errors == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_topics_are_named_by_id_from_version_13_on(client: Client) -> None:
    """KIP-516."""
    topic_id = client.create("by-id")
    client.produce("by-id", b"a")
    known = client.ask(fetch, fetch_request({"x": {0: 0}}, ids={"x": topic_id}), 18).responses[0]
    assert known.topic_id == topic_id and offsets_in(known.partitions[0].records) == [0]
    unknown = client.ask(fetch, fetch_request({"x": {0: 0}}, ids={"x": UUID(int=5)}), 18).responses[0]
    assert unknown.partitions[0].error is ErrorCode.UNKNOWN_TOPIC_ID


def test_readers_of_a_topic_that_is_deleted_hear_of_it(world: World, client: Client) -> None:
    by_name, by_id = world.client(), world.client()
    topic_id = client.create("doomed")
    by_name.send_fetch("doomed", 0, max_wait_ms=600_000)
    by_id.send(fetch, fetch_request({"x": {0: 0}}, ids={"x": topic_id}, max_wait_ms=600_000), 13)
    client.delete("doomed")
    assert by_name.fetched().error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert by_id.fetched().error is ErrorCode.UNKNOWN_TOPIC_ID
    assert len(world.cluster.fetches) == 0


def test_a_topic_made_anew_under_the_old_name_is_another(world: World, client: Client) -> None:
    reader = world.client()
    client.create("twice")
    client.produce("twice", b"old")
    client.delete("twice")
    client.create("twice")
    assert reader.fetch("twice", 0, max_wait_ms=0).high_watermark == 0
    client.produce("twice", b"new")
    assert client.read_all("twice") == [(0, b"new")]


@pytest.mark.parametrize(
    ("session", "error"),
    [
        ((0, -1), ErrorCode.NONE),
        ((0, 0), ErrorCode.NONE),
        ((0, 3), ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        ((77, 1), ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
    ],
)
def test_sessions_are_refused_so_that_every_client_goes_on_without(
    client: Client, session: tuple[int, int], error: ErrorCode
) -> None:
    """KIP-227: asked to open one, we answer session 0; asked to go on with one, that there is none."""
    client.produce("t", b"a")
    answer = client.ask(fetch, fetch_request({"t": {0: 0}}, session=session), 12)
    assert (answer.error, answer.session_id) == (error, 0)
    assert len(answer.responses) == (0 if error else 1)


def test_closing_a_session_that_is_not_there_is_no_reason_to_wait(client: Client) -> None:
    """KIP-227: a client that ends sends its session id with epoch -1 and no partitions."""
    answer = client.ask(fetch, fetch_request({}, session=(77, -1), max_wait_ms=600_000), 12)
    assert answer.error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert not client.ask(fetch, fetch_request({}, max_wait_ms=600_000), 12).error


def test_a_leader_epoch_from_the_future_is_unknown(client: Client) -> None:
    """KIP-320: the epoch is 0 here."""
    client.produce("t", b"a")
    assert client.fetch("t", 0, epoch=0).error is ErrorCode.NONE
    assert client.fetch("t", 0, epoch=1).error is ErrorCode.UNKNOWN_LEADER_EPOCH


def test_readers_of_committed_records_get_those_of_plain_producers(client: Client) -> None:
    client.produce("t", b"a")
    answer = client.fetch("t", 0, isolation_level=1)
    assert offsets_in(answer.records or b"") == [0] and answer.last_stable_offset == 1


def test_the_groups_own_topic_can_be_read(client: Client) -> None:
    """By tools, as in Kafka."""
    client.find_coordinator()
    client.commit("g", {("t", 0): 1})
    records = [client.fetch("__consumer_offsets", 0, partition=number, max_wait_ms=0).records for number in range(3)]
    assert sum(len(offsets_in(data or b"")) for data in records) >= 1
