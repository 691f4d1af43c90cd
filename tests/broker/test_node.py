"""Connections, order, versions, stopping: what holds for every API."""

from __future__ import annotations

import pytest

from broker.driver import World
from coterie.broker.broker_effects import Close, Send, Stopping
from coterie.errors import ErrorCode
from coterie.facts import Emit, Mistake
from coterie.protocol.apis import api_versions, heartbeat, leave_group, metadata
from coterie.protocol.frames import request_frame
from coterie.protocol.messages import Heartbeat, LeaveGroup, LeavingMember

VERSIONS = api_versions.Request(client_software_name="tester", client_software_version="1")


def test_a_parked_join_holds_back_even_the_leave_that_would_end_it() -> None:
    """C6: what stands behind a parked request is not looked at."""
    world = World()
    first, second = world.client(), world.client()
    first.find_coordinator()
    leader = first.enter("g")
    newcomer = second.join("g")
    second.send_join("g", newcomer.member_id)
    second.send(leave_group, LeaveGroup(None, "g", [LeavingMember(newcomer.member_id)]))
    assert second.answers == 0
    rejoined = first.join("g", leader.member_id)
    assert rejoined.generation_id == 2 and len(rejoined.members) == 2
    assert second.answer().generation_id == 2
    assert second.answer().members[0].error is ErrorCode.NONE


def test_requests_of_one_connection_are_answered_in_their_order() -> None:
    """C6: behind a parked fetch, whatever it is."""
    world = World()
    client, other = world.client(), world.client()
    client.create("t")
    client.send_fetch("t", 0, max_wait_ms=10_000)
    for _ in range(3):
        client.send(api_versions, VERSIONS)
    assert client.answers == 0
    other.produce("t", b"a")
    assert client.answers == 4
    assert client.fetched().records
    assert all(not client.answer().error for _ in range(3))


def test_thousands_of_requests_behind_a_parked_one_are_answered_when_it_is() -> None:
    """However many a client pipelines, none costs a level of our stack."""
    world = World()
    client, other = world.client(), world.client()
    client.create("t")
    client.send_fetch("t", 0, max_wait_ms=10_000)
    for _ in range(5_000):
        client.send(heartbeat, Heartbeat(None, "g", "nobody", None, 1))
    other.produce("t", b"a")
    assert client.answers == 5_001
    assert client.fetched().records
    assert {client.answer() for _ in range(5_000)} == {ErrorCode.NOT_COORDINATOR}


def test_what_waits_behind_an_answer_that_is_not_read_is_not_answered() -> None:
    """Memory per connection is bounded: a client that does not read gets no more to read."""
    world = World()
    client = world.client()
    client.create("t")
    client.produce("t", bytes(1_000))
    client.connection.is_full = True  # as the server says when its buffer is
    for _ in range(10):
        client.send_fetch("t", 0)
    assert client.answers == 0
    world.perform(world.node.drained(client.connection, world.now_ms))
    assert client.answers == 10


def test_an_answer_is_sent_before_the_next_request_of_its_connection_is_looked_at() -> None:
    """Else a hundred large fetches behind a parked one would all be in memory before the first is sent."""
    world = World()
    client, other = world.client(), world.client()
    client.create("t")
    client.send_fetch("t", 0, max_wait_ms=10_000)
    for _ in range(3):
        client.send_fetch("t", 0)
    world.auto = False
    other.send_produce("t", bytes(100_000))
    effects = world.cluster.handle(world.flushes.popleft().run(), world.now_ms)
    assert sum(isinstance(effect, Send) and effect.connection is client.connection for effect in effects) == 1
    client.connection.is_full = True
    world.perform(effects)
    assert client.answers == 1
    world.perform(world.node.drained(client.connection, world.now_ms))
    assert client.answers == 4


def test_an_unknown_version_of_api_versions_is_told_which_there_are() -> None:
    """C5, KIP-511: in the form of version 0, so that anybody can read it."""
    client = World().client()
    client.send_frame(request_frame(18, 99, 7, "x", b"whatever", flexible=True)[4:])
    client._asked.append((7, api_versions, 0))
    answer = client.answer()
    assert answer.error is ErrorCode.UNSUPPORTED_VERSION
    assert [(one.api_key, one.min_version, one.max_version) for one in answer.api_keys] == [(18, 0, 4)]
    assert client.closed is None
    assert not client.ask(api_versions, VERSIONS).error


def test_a_client_without_a_proper_name_is_told_so() -> None:
    """C7, KIP-511."""
    client = World().client()
    bad = api_versions.Request(client_software_name="-", client_software_version="")
    assert client.ask(api_versions, bad).error is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (request_frame(999, 0, 1, "x", b"", flexible=False)[4:], "API key 999"),
        (request_frame(12, 77, 1, "x", b"", flexible=True)[4:], "version 77"),
        (request_frame(0, 2, 1, "x", b"", flexible=False)[4:], "version 2"),
        (request_frame(1, 3, 1, "x", b"", flexible=False)[4:], "version 3"),
        (request_frame(12, -1, 1, "x", b"", flexible=False)[4:], "version -1"),
        (request_frame(11, 9, 1, "x", b"\x05ab", flexible=True)[4:], "JoinGroup"),
        (request_frame(3, 1, 1, "x", b"\x7f\xff\xff\xff", flexible=False)[4:], "Metadata"),
        (b"", "header"),
        (b"\0\x0c\0\x04", "header"),
    ],
)
def test_what_cannot_be_served_or_read_closes_the_connection_with_one_fact(frame: bytes, why: str) -> None:
    """C5: unknown API, unsupported version, unreadable body; Produce 0 to 2 are advertised and refused."""
    world = World()
    client, other = world.client(), world.client()
    client.send_frame(frame)
    assert client.closed is not None and why in client.closed
    assert world.drops == [client.closed]
    assert client.answers == 0
    assert not other.ask(api_versions, VERSIONS).error


def test_nothing_behind_an_unreadable_request_is_looked_at() -> None:
    world = World()
    client, other = world.client(), world.client()
    client.create("t")
    client.send_fetch("t", 0, max_wait_ms=10_000)
    client.send_frame(b"\0\x0c\0\x04")
    client.send(metadata, metadata.Request(topics=[metadata.Topic(name="made-by-the-dead")]))
    other.produce("t", b"a")
    assert client.answers == 1 and client.closed is not None
    assert "made-by-the-dead" not in world.cluster.directory.topics


def test_a_closed_connection_removes_nobody_and_its_parked_requests_are_forgotten() -> None:
    """Rule 9, and nothing is kept for a reader that is gone."""
    world = World()
    client, other = world.client(), world.client()
    client.find_coordinator()
    client.create("t")
    member = client.enter("g")
    client.send_fetch("t", 0, max_wait_ms=10_000)
    world.node.disconnected(client.connection)
    assert len(world.cluster.fetches) == 0
    other.produce("t", b"a")
    assert client.answers == 0
    assert other.heartbeat("g", member.member_id, member.generation_id) is ErrorCode.NONE


def test_stopping_answers_everybody_who_waits() -> None:
    """Joins and syncs hear NOT_COORDINATOR (C4), fetches get what there is; nothing is parked from then on."""
    world = World()
    first, second, reader = world.client(), world.client(), world.client()
    first.find_coordinator()
    first.create("t")
    leader = first.enter("a")
    follower = second.join("a")
    second.send_join("a", follower.member_id)
    assert first.join("a", leader.member_id).generation_id == 2
    second.send_sync("a", second.answer())
    third = world.client()
    newcomer = third.enter("b") and third.join("b")
    third.send_join("b", newcomer.member_id)  # parked: the other member of b has to come again
    reader.send_fetch("t", 0, max_wait_ms=600_000)
    assert (second.answers, third.answers, reader.answers) == (0, 0, 0)
    world.perform(world.cluster.handle(Stopping(), world.now_ms))
    assert second.answer().error is ErrorCode.NOT_COORDINATOR
    assert third.answer().error is ErrorCode.NOT_COORDINATOR
    assert not reader.fetched().error
    assert not reader.fetch("t", 0, max_wait_ms=600_000).error
    assert first.heartbeat("a", leader.member_id, 2) is ErrorCode.NOT_COORDINATOR


def test_a_produce_that_fails_without_acks_closes_its_connection() -> None:
    """D2: there is no answer to carry the error."""
    world = World()
    client = world.client()
    client.send_produce("nowhere", b"a", acks=0)
    client.forget()
    assert client.closed is not None and "UNKNOWN_TOPIC_OR_PARTITION" in client.closed
    assert client.answers == 0


def test_a_mistake_of_ours_costs_one_connection_and_is_told_with_its_trace() -> None:
    """Nothing a client sends may stop the broker; and a mistake of ours never becomes an error code."""
    world = World()
    client, other = world.client(), world.client()
    client.create("t")
    world.cluster.metadata.topic_names.clear()
    world.auto = False
    client.send_delete("t")
    mistake, close = world.cluster.handle(world.flushes.popleft().run(), world.now_ms)
    assert isinstance(mistake, Emit) and isinstance(mistake.fact, Mistake) and "KeyError" in mistake.fact.trace
    assert isinstance(close, Close) and close.connection is client.connection
    assert not other.ask(api_versions, VERSIONS).error
