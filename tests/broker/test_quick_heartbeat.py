"""The heartbeat written out answers what the plain way answers, byte for byte, or leaves it to it."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from broker.driver import Client, World
from broker.test_consumer_groups import ask
from coterie.broker.broker_effects import Send
from coterie.broker.calls import Connection
from coterie.broker.handlers.quick_heartbeat import HEARTBEAT, QuickHeartbeat
from coterie.coordinator.consumer import ConsumerGroup
from coterie.errors import ErrorCode
from coterie.facts import Emit, InstanceIdFenced
from coterie.protocol.apis import heartbeat
from coterie.protocol.frames import request_frame
from coterie.protocol.messages import Heartbeat
from raw_kafka import frame_of

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


# --- consumer groups --------------------------------------------------------------------------------------------------


def world_with_consumer_groups() -> tuple[World, Client]:
    world = World(settings={"group.consumer.assignment.interval.ms": 0})
    client = world.client()
    client.create("t", 2)
    client.find_coordinator()
    for group, member, more in (
        ("stable", "a", {}),
        ("static", "a", {"instance_id": "i"}),
        ("pattern", "a", {"subscribed_topic_regex": "t.*"}),
        ("two", "a", {}),
        ("two", "b", {}),
        ("apart", "a", {}),
        ("apart", "b", {"topics": ["u"]}),
    ):
        says(client, group, member, 0, **{"rebalance_timeout": 60_000, "topics": ["t"], "owned": (), **more})
    for group in ("apart", "pattern"):
        says(client, group, "a", 2)  # they are at epoch 3 now
    return world, client


def unchanged_frame(
    group: str, member: str, epoch: int, version: int = 1, correlation_id: int = 1, client_id: str = "c", **said: Any
) -> bytes:
    words = {
        "group_id": group,
        "member_id": member,
        "member_epoch": epoch,
        "instance_id": None,
        "subscribed_topic_names": said.pop("topics", None),
        "topic_partitions": said.pop("owned", None),
        **said,
    }
    if version == 0:
        words.pop("subscribed_topic_regex", None)
    return frame_of("consumer_group_heartbeat", version, correlation_id, client_id, words)


def answered(client: Client, frame: bytes) -> bytes:
    client.send_frame(frame)
    return client.next_frame()


def says(client: Client, group: str, member: str, epoch: int, **said: Any) -> None:
    answered(client, unchanged_frame(group, member, epoch, **said))


USUAL = st.sampled_from(
    [
        *(unchanged_frame(group, "a", 2) for group in ("stable", "static", "two")),
        *(unchanged_frame(group, "a", 3) for group in ("pattern", "apart", "stable")),
        unchanged_frame("static", "a", 2, instance_id="i"),
        unchanged_frame("stable", "a", 2, instance_id="unknown"),
        unchanged_frame("stable", "a", 2, client_id="d"),
        unchanged_frame("stable", "a", 2, version=0),
    ]
)
UNUSUAL = st.builds(
    unchanged_frame,
    st.sampled_from(["stable", "stable", "static", "pattern", "two", "absent", ""]),
    st.sampled_from(["a", "a", "a", "b", "", "x" * 300]),
    st.sampled_from([2, 2, 2, 3, 1, 0, -1, -2]),
    version=st.sampled_from([1, 1, 0]),
    correlation_id=st.integers(0, 2**31 - 1),
    client_id=st.sampled_from(["c", "c", "c", "d"]),
    instance_id=st.sampled_from([None, None, None, "i", "unknown"]),
    topics=st.sampled_from([None, None, None, ["t"], ["t", "u"], []]),
    owned=st.sampled_from([None, None, ()]),
    subscribed_topic_regex=st.sampled_from([None, None, None, "u.*", ""]),
    server_assignor=st.sampled_from([None, None, "range", "nosuch"]),
)
CHANGES = st.sampled_from(["nothing", "nothing", "topic", "partitions", "joins", "leaves", "renamed"])


BEATS = st.tuples(
    USUAL | USUAL | USUAL | UNUSUAL,
    st.lists(st.tuples(CHANGES, st.sampled_from([0, 4_000, 11_000])), min_size=3, max_size=5),
)


@settings(max_examples=100, deadline=None)
@given(st.lists(BEATS, min_size=2, max_size=4))
@example([(unchanged_frame("stable", "a", 2, instance_id="unknown"), [("nothing", 0)] * 3)])
@example([(unchanged_frame("stable", "a", 2), [("nothing", 0), ("renamed", 0), ("nothing", 0)])])
def test_the_short_way_of_consumer_groups_answers_as_the_plain_one(
    beats: list[tuple[bytes, list[tuple[str, int]]]],
) -> None:
    """K5 to K10: whatever the heartbeat says, again and again, and whatever happens to the group in between."""
    worlds = world_with_consumer_groups(), world_with_consumer_groups()
    (quick, quick_client), (plain, plain_client) = worlds
    short_way = QuickHeartbeat(quick_client.connection)
    number = 0
    for frame, in_between in beats:
        for change, pause_ms in in_between:
            number += 1
            expected = answered(plain_client, frame)
            answer = short_way.answer(quick.node.coordinator, frame, quick.now_ms)
            quick.perform([])
            assert (answered(quick_client, frame) if answer is None else answer[4:]) == expected
            for world, client in worlds:
                _happens(client, change, number)
                world.advance(pause_ms)
            assert _shape(quick) == _shape(plain)
    for world, _ in worlds:
        world.advance(44_999)
    assert _shape(quick) == _shape(plain)
    assert [type(fact).__name__ for fact in quick.facts] == [type(fact).__name__ for fact in plain.facts]


def _happens(client: Client, change: str, number: int) -> None:
    if change == "topic":
        client.create(f"t{number}", 1)
    elif change == "partitions":
        topic = {"name": "t", "count": 3 + number, "assignments": None}
        ask(client, "create_partitions", 3, topics=(topic,), timeout=1_000, validate_only=False)
    elif change == "joins":
        says(client, "stable", f"n{number}", 0, rebalance_timeout=60_000, topics=["t"], owned=())
    elif change == "leaves":
        says(client, "two", "b", -1)
        says(client, "apart", "b", -1)
    elif change == "renamed":
        says(client, "stable", "a", 2, client_id="e")


def _shape(world: World) -> list[object]:
    return [
        (group.group_epoch, group.assignment_epoch, group.state, group.sessions, group.members, group.resolved)
        for shard in world.node.coordinator.shards.values()
        for group in shard.groups.values()
        if isinstance(group, ConsumerGroup)
    ]


def test_a_heartbeat_that_changes_nothing_takes_the_short_way() -> None:
    """K8: also of a static member, and of one that subscribes to a regular expression."""
    world, client = world_with_consumer_groups()
    for group, epoch, instance in (("stable", 2, None), ("static", 2, "i"), ("pattern", 3, None)):
        frame, short_way = unchanged_frame(group, "a", epoch, instance_id=instance), QuickHeartbeat(client.connection)
        answers = [short_way.answer(world.node.coordinator, frame, world.now_ms) for _ in range(3)]
        assert answers[0] is not None and answers[0] == answers[1] == answers[2]


def test_a_frame_that_cannot_be_read_is_not_taken_for_the_one_before() -> None:
    world, client = world_with_consumer_groups()
    frame, short_way = unchanged_frame("stable", "a", 2), QuickHeartbeat(client.connection)
    broken = frame.replace(b"stable", b"\xff" * 6)
    frames = [frame, broken, broken, frame]
    answers = [short_way.answer(world.node.coordinator, each, world.now_ms) for each in frames]
    assert [answer is None for answer in answers] == [False, True, True, False]


def test_a_heartbeat_that_the_short_way_leaves_is_read_once_and_belongs_to_the_plain_one() -> None:
    """K9: the member has a new epoch to hear of, which must be durable before it is answered."""
    world, client = world_with_consumer_groups()
    says(client, "stable", "new", 0, rebalance_timeout=60_000, topics=["t"], owned=())
    frame, short_way = unchanged_frame("stable", "a", 2), QuickHeartbeat(client.connection)
    assert short_way.answer(world.node.coordinator, frame, world.now_ms) is None
    assert client.connection.heartbeat is not None and client.connection.heartbeat[0] is frame
    assert answered(client, frame) == answered(*_with_a_new_member())
    assert client.connection.heartbeat is None
    again = short_way.answer(world.node.coordinator, frame, world.now_ms)
    assert again is None and client.connection.heartbeat is not None
    assert client.connection.heartbeat[1].token is None  # the one before had the answered call


def _with_a_new_member() -> tuple[Client, bytes]:
    _, client = world_with_consumer_groups()
    says(client, "stable", "new", 0, rebalance_timeout=60_000, topics=["t"], owned=())
    return client, unchanged_frame("stable", "a", 2)


def test_a_heartbeat_needs_the_right_to_read_the_group() -> None:
    """K29: without it the plain way answers, with the error."""
    world, client = world_with_consumer_groups()
    frame = unchanged_frame("stable", "a", 2)

    class Denies:
        def authorize(self, *_: object) -> bool:
            return False

    short_way = QuickHeartbeat(client.connection, Denies())  # type: ignore[arg-type]
    answers = [short_way.answer(world.node.coordinator, frame, world.now_ms) for _ in range(3)]
    assert answers == [None] * 3


def test_the_short_way_leaves_a_fenced_heartbeat_to_the_plain_one_which_tells_it() -> None:
    """Rule 18: else the fact that goes with the answer would be lost."""
    world, _ = world_with_groups()
    body = heartbeat.write_request(Heartbeat(None, "static", "nobody", "i", 1), 4)
    frame = request_frame(12, 4, 7, "tester", body, flexible=True)[4:]
    assert QuickHeartbeat().answer(world.node.coordinator, frame, world.now_ms) is None
    told = [
        effect.fact
        for effect in world.node.received(Connection("10.0.0.1"), frame, world.now_ms)
        if isinstance(effect, Emit) and isinstance(effect.fact, InstanceIdFenced)
    ]
    assert [fact.member_id for fact in told] == ["nobody"]
