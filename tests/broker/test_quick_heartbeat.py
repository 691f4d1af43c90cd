"""The heartbeat written out answers what the plain way answers, byte for byte, or leaves it to it."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.driver import Client, World
from coterie.broker.broker_effects import Send
from coterie.broker.calls import Connection
from coterie.broker.handlers.quick_heartbeat import HEARTBEAT, QuickHeartbeat
from coterie.errors import ErrorCode
from coterie.protocol.apis import heartbeat
from coterie.protocol.frames import request_frame
from coterie.protocol.messages import Heartbeat

GROUPS = ("stable", "preparing", "empty", "absent", "")


def world_with_groups() -> tuple[World, list[str]]:
    """Two of them are the same in everything, ids included."""
    world = World()
    client, other = world.client(), world.client()
    client.find_coordinator()
    client.create("t")
    stable = client.enter("stable")
    static = client.enter("static", instance_id="i")
    preparing = client.enter("preparing")
    other.send_join("preparing", other.join("preparing").member_id)
    client.commit("empty", {("t", 0): 1})
    return world, [stable.member_id, static.member_id, preparing.member_id, "nobody", "", "x" * 200]


_, MEMBERS = world_with_groups()


def plain_answer(world: World, frame: bytes) -> bytes | None:
    """As it goes without the short way; None if the connection is closed for it."""
    connection = Connection("10.0.0.1")
    effects = world.node.received(connection, frame, world.now_ms)
    sent = [effect.data for effect in effects if isinstance(effect, Send) and effect.connection is connection]
    assert len(sent) <= 1
    return bytes(sent[0]) if sent and isinstance(sent[0], bytes) else None


HEARTBEATS = st.builds(
    Heartbeat,
    token=st.none(),
    group_id=st.sampled_from([*GROUPS, "static", "g" * 300]),
    member_id=st.sampled_from(MEMBERS),
    instance_id=st.sampled_from([None, None, "i", "unknown"]),
    generation_id=st.sampled_from([1, 1, 1, 0, -1, 2]),
)
CLIENT_IDS = st.sampled_from(["tester", "", None, "c" * 300, "\N{GREEK SMALL LETTER ALPHA}"])


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(HEARTBEATS, CLIENT_IDS, st.integers(-(2**31), 2**31 - 1), st.integers(0, 20_000)), max_size=4),
    st.lists(st.integers(0, 3), max_size=8),
)
def test_the_short_way_answers_as_the_plain_one(
    said: list[tuple[Heartbeat, str | None, int, int]], again: list[int]
) -> None:
    """Also if it says what it said before, and in what follows from it: the sessions of both end at the same time."""
    beats = [*said, *(said[which % len(said)] for which in again if said)]
    (quick, _), (plain, _) = world_with_groups(), world_with_groups()
    short_way = QuickHeartbeat()
    for beat, client_id, correlation_id, pause_ms in beats:
        body = heartbeat.write_request(beat, 4)
        frame = request_frame(12, 4, correlation_id, client_id, body, flexible=True)[4:]
        assert frame.startswith(HEARTBEAT)
        expected = plain_answer(plain, frame)
        answer = short_way.answer(quick.node.coordinator, frame, quick.now_ms)
        quick.perform([])
        if answer is None:
            answer = plain_answer(quick, frame)
        assert answer == expected
        for world in (quick, plain):
            world.advance(pause_ms)
    for world in (quick, plain):
        world.advance(29_999)
    assert [type(fact).__name__ for fact in quick.facts] == [type(fact).__name__ for fact in plain.facts]


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_what_is_odd_about_a_frame_is_left_to_the_plain_way_or_read_as_it_reads_it(data: st.DataObject) -> None:
    """Bytes changed, cut off or added at the end, tagged fields in the header."""
    (quick, members), (plain, _) = world_with_groups(), world_with_groups()
    body = heartbeat.write_request(Heartbeat(None, "stable", members[0], None, 1), 4)
    as_it_should_be = request_frame(12, 4, 7, "tester", body, flexible=True)[4:]
    frame = bytearray(as_it_should_be)
    for _ in range(data.draw(st.integers(0, 3))):
        frame[data.draw(st.integers(8, len(frame) - 1))] = data.draw(st.integers(0, 255))
    whole = bytes(frame[: data.draw(st.integers(8, len(frame)))]) + data.draw(st.binary(max_size=3))
    short_way = QuickHeartbeat()
    for world in (quick, plain):
        assert short_way.answer(world.node.coordinator, as_it_should_be, world.now_ms) is not None
    answer = short_way.answer(quick.node.coordinator, whole, quick.now_ms)
    if answer is not None:
        assert answer == plain_answer(plain, whole)


def test_an_ordinary_heartbeat_takes_the_short_way() -> None:
    world = World()
    client: Client = world.client()
    client.find_coordinator()
    member = client.enter("g")
    frame = client.frame_of(heartbeat, Heartbeat(None, "g", member.member_id, None, 1))
    assert QuickHeartbeat().answer(world.node.coordinator, frame, world.now_ms) is not None
    client.forget()
    assert client.heartbeat("g", member.member_id, 1) is ErrorCode.NONE
