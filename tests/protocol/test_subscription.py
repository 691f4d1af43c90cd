"""Subscriptions and assignments, held to the bytes Kafka's own `ConsumerProtocol` writes (rule 20)."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.errors import MalformedError
from coterie.protocol.subscription import (
    VERSIONS,
    Assignment,
    Subscription,
    read_assignment,
    read_subscription,
    subscribed_topics,
    write_assignment,
    write_subscription,
)
from protocol.recorded import assignment_of, lines, subscription_of, versions_of

VECTORS = lines("consumer_protocol.jsonl")
MILLION = 1_000_000


def by_topic(runs: list[tuple[str, list[int]]]) -> dict[str, list[int]]:
    """The vectors keep an assignor's order, in which a topic may come up again."""
    partitions: dict[str, list[int]] = {}
    for topic, run in runs:
        partitions.setdefault(topic, []).extend(run)
    return partitions


# --- held to Kafka --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("vector", VECTORS)
def test_a_subscription_is_read_and_written_as_kafkas_client_does(vector: dict[str, Any]) -> None:
    data = bytes.fromhex(vector["subscription"])
    user_data = None if vector["user_data"] is None else bytes.fromhex(vector["user_data"])
    said = Subscription(
        vector["topics"], user_data, by_topic(vector["owned"]), vector["generation"], vector["rack"], version=3
    )
    assert write_subscription(said) == data
    assert read_subscription(data) == in_order(said)


@pytest.mark.parametrize("vector", VECTORS)
def test_an_assignment_is_read_and_written_as_kafkas_client_does(vector: dict[str, Any]) -> None:
    data = bytes.fromhex(vector["assignment"])
    assignment = Assignment(by_topic(vector["partitions"]))
    assert write_assignment(assignment) == data
    assert read_assignment(data) == assignment
    assert list(read_assignment(data).partitions) == list(assignment.partitions)


@pytest.mark.parametrize(("version", "fields", "data"), versions_of("ConsumerProtocolSubscription"))
def test_a_subscription_of_every_version_is_that_of_kafkas_own_class(
    version: int, fields: dict[str, Any], data: bytes
) -> None:
    subscription = subscription_of(fields, version)
    assert write_subscription(subscription) == data
    assert read_subscription(data) == in_order(subscription)


@pytest.mark.parametrize(("version", "fields", "data"), versions_of("ConsumerProtocolAssignment"))
def test_an_assignment_of_every_version_is_that_of_kafkas_own_class(
    version: int, fields: dict[str, Any], data: bytes
) -> None:
    assignment = assignment_of(fields, version)
    assert write_assignment(assignment) == data
    assert read_assignment(data) == assignment


# --- round trips ----------------------------------------------------------------------------------------------------


def in_order(said: Subscription) -> Subscription:
    """What is left of a subscription in its version, in the order in which Kafka's client writes it."""
    version = said.version
    return Subscription(
        sorted(said.topics),
        said.user_data,
        {topic: sorted(owned) for topic, owned in sorted(said.owned.items())} if version >= 1 else {},
        said.generation_id if version >= 2 else -1,
        (said.rack or None) if version >= 3 else None,
        version,
    )


int32 = st.integers(-(2**31), 2**31 - 1)
names = st.text(max_size=20)
versions = st.sampled_from(VERSIONS)
user_data = st.none() | st.binary(max_size=30)
partitions = st.dictionaries(names, st.lists(int32, max_size=10), max_size=5)
subscriptions = st.builds(
    Subscription, st.lists(names, max_size=6), user_data, partitions, int32, st.none() | names, versions
)
assignments = st.builds(Assignment, partitions, user_data, versions)


@given(subscription=subscriptions)
def test_a_subscription_comes_back_with_all_its_version_can_say(subscription: Subscription) -> None:
    assert read_subscription(write_subscription(subscription)) == in_order(subscription)


@given(assignment=assignments)
def test_an_assignment_comes_back_in_its_own_order(assignment: Assignment) -> None:
    read = read_assignment(memoryview(write_assignment(assignment)))
    assert read == assignment
    assert list(read.partitions) == list(assignment.partitions)


@given(subscription=subscriptions, swap=st.randoms())
def test_equal_subscriptions_have_equal_bytes_in_whatever_order_they_are_given(
    subscription: Subscription, swap: Any
) -> None:
    """A rejoin with other bytes would count as changed, and start a rebalance."""
    before = write_subscription(subscription)
    topics, owned = list(subscription.topics), list(subscription.owned.items())
    swap.shuffle(topics)
    swap.shuffle(owned)
    subscription.topics, subscription.owned = topics, {topic: run[::-1] for topic, run in owned}
    assert write_subscription(subscription) == before


def test_a_topic_named_twice_has_the_partitions_of_both() -> None:
    orders = b"\0\6orders\0\0\0\1\0\0\0"
    assert read_assignment(b"\0\0\0\0\0\2" + orders + b"\5" + orders + b"\4" + b"\xff" * 4).partitions == {
        "orders": [5, 4]
    }


def test_the_smallest_entries_there_can_be_are_read() -> None:
    """The check against absurd counts must not refuse a count that is true."""
    assert read_subscription(b"\0\0\0\0\0\x28" + b"\0\0" * 40 + b"\xff" * 4).topics == [""] * 40
    assert read_assignment(b"\0\0\0\0\0\x28" + bytes(6) * 40 + b"\xff" * 4).partitions == {"": []}


# --- other versions, other bytes ------------------------------------------------------------------------------------


@given(subscription=subscriptions, later=st.integers(4, 0x7FFF), more=st.binary(max_size=20))
def test_a_later_version_is_read_as_the_highest_we_know(subscription: Subscription, later: int, more: bytes) -> None:
    subscription.version = VERSIONS[-1]
    data = write_subscription(subscription)
    assert read_subscription(later.to_bytes(2, "big") + data[2:] + more) == read_subscription(data)
    assignment = write_assignment(Assignment(subscription.owned, subscription.user_data))
    assert read_assignment(later.to_bytes(2, "big") + assignment[2:] + more) == read_assignment(assignment)


@pytest.mark.parametrize("read", [read_subscription, read_assignment])
def test_a_negative_version_is_malformed(read: Any) -> None:
    with pytest.raises(MalformedError, match=r"a version of 0 or more \(found -1\) at byte 0"):
        read(b"\xff\xff" + bytes(20))


@pytest.mark.parametrize("version", [-1, 4])
def test_there_is_no_writing_in_an_unknown_version(version: int) -> None:
    with pytest.raises(MalformedError, match="known are 0 to 3"):
        write_subscription(Subscription(["t"], version=version))
    with pytest.raises(MalformedError, match="known are 0 to 3"):
        write_assignment(Assignment({}, version=version))


@pytest.mark.parametrize("vector", VECTORS[:10])
def test_bytes_cut_short_are_malformed_wherever_they_are_cut(vector: dict[str, Any]) -> None:
    subscription, assignment = bytes.fromhex(vector["subscription"]), bytes.fromhex(vector["assignment"])
    for end in range(len(subscription)):
        with pytest.raises(MalformedError, match=r"^consumer protocol subscription: expected"):
            read_subscription(subscription[:end])
    for end in range(len(assignment)):
        with pytest.raises(MalformedError, match=r"^consumer protocol assignment: expected"):
            read_assignment(assignment[:end])


@given(version=st.integers(-1, 5), body=st.binary(max_size=80))
def test_any_bytes_are_a_value_or_malformed(version: int, body: bytes) -> None:
    data = version.to_bytes(2, "big", signed=True) + body
    try:
        subscription = read_subscription(data)
    except MalformedError:
        pass
    else:
        assert len(subscription.topics) + sum(map(len, subscription.owned.values())) <= len(data)
        assert subscribed_topics(data) == frozenset(subscription.topics)
    try:
        assignment = read_assignment(data)
    except MalformedError:
        return
    assert sum(map(len, assignment.partitions.values())) <= len(data)


@pytest.mark.parametrize(
    "data",
    [b"\0\3\x7f\xff\xff\xff" + bytes(1000), b"\0\3\0\0\0\1\0\1t\x7f\xff\xff\xff" + bytes(1000)],
)
def test_an_absurd_length_costs_no_memory(data: bytes) -> None:
    tracemalloc.start()
    try:
        for read in (read_subscription, read_assignment):
            with pytest.raises(MalformedError, match="2147483647"):
                read(data)
        assert subscribed_topics(data) is None
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000


def test_a_million_partitions_come_back() -> None:
    assignment = Assignment({"orders": list(range(MILLION)), "payments": list(range(MILLION, 0, -1))})
    assert read_assignment(write_assignment(assignment)) == assignment


# --- what the coordinator reads -------------------------------------------------------------------------------------


@given(subscription=subscriptions, version=st.integers(-(2**15), 2**15 - 1))
def test_the_coordinator_sees_the_topics_whatever_the_version_says(subscription: Subscription, version: int) -> None:
    """Rules 20, 24: it reads what every version begins with."""
    data = write_subscription(subscription)
    relabelled = version.to_bytes(2, "big", signed=True) + data[2:]
    assert subscribed_topics(relabelled) == frozenset(subscription.topics)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0",
        b"\0\0",
        b"\0\0\0\0\0\1",
        b"\0\0\0\0\0\1\0\5orde",
        b"\0\0\0\0\0\1\0\1\xff\xff\xff\xff\xff",
        b"\0\0\xff\xff\xff\xff",
        b"\0\0\0\0\0\0\0\0\0\1",
        b"not a subscription",
    ],
    ids=repr,
)
def test_bytes_that_are_no_subscription_have_no_topics(data: bytes) -> None:
    """Rule 24: the coordinator then takes every topic for subscribed."""
    assert subscribed_topics(data) is None


def test_a_subscription_to_nothing_is_not_the_same_as_no_subscription() -> None:
    assert subscribed_topics(write_subscription(Subscription([]))) == frozenset()
