"""Heartbeats that say nothing new: the short way does what the rule does, whatever has happened to the group."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.consumer.group_world import GROUP, GroupWorld
from coterie.coordinator.consumer import heartbeat as rule
from coterie.coordinator.consumer.group import ConsumerGroup
from coterie.coordinator.consumer.quick_heartbeat import answer_quickly
from coterie.errors import ErrorCode, MalformedError
from coterie.protocol import subscription
from coterie.protocol.apis import consumer_group_heartbeat
from coterie.protocol.messages import ConsumerGroupHeartbeat, ConsumerGroupHeartbeatAnswer, JoinGroup, Protocol
from coterie.protocol.subscription import Assignment, Subscription, write_assignment, write_subscription

MEMBERS = ("a", "b", "c")
TOPICS = (("t",), ("t",), ("t", "u"), ("u", "nosuch"), tuple("tuvwxyz"))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("beats"), st.sampled_from(MEMBERS), st.sampled_from(["", "", "", "owned", "client", "late"])),
        st.tuples(st.just("pass"), st.sampled_from(["", "owned"])),
        st.tuples(st.just("pass"), st.just("owned")),
        st.tuples(st.just("joins"), st.sampled_from(MEMBERS), st.sampled_from(TOPICS)),
        st.tuples(st.just("leaves"), st.sampled_from(MEMBERS)),
        st.tuples(st.just("matches"), st.sampled_from(MEMBERS), st.sampled_from(["t|u", "v"])),
        st.tuples(st.just("classic")),
        st.tuples(st.just("topic"), st.sampled_from(["create", "grow", "delete"])),
        st.tuples(st.just("advance"), st.sampled_from([1, 1_000, 30_000])),
        st.tuples(st.just("disk"), st.sampled_from(["holds", "writes", "fails"])),
        st.tuples(st.just("restart")),
    ),
    max_size=25,
)


def play(steps: list[tuple[Any, ...]], interval_ms: int) -> list[Any]:
    """Return all that can be seen after each step."""
    many = dict.fromkeys("vwxyz", 1)
    world = GroupWorld({"group_consumer_assignment_interval_ms": interval_ms}, t=4, u=2, **many)
    members = {name: world.member(name, "i" if name == "c" else None) for name in MEMBERS}
    seen: list[Any] = []
    for number, (what, *about) in enumerate(steps):
        _step(world, members, number, what, *about)
        seen.append(_seen(world))
    world.world.holds_writes = False
    world.world.end_writes()
    world.world.advance(60_000)
    return [*seen, _seen(world)]


def _step(world: GroupWorld, members: Any, number: int, what: str, *about: Any) -> None:
    story = world.world
    if what == "pass":
        for member in members.values():
            _beat(member, about[0])
    elif what == "beats":
        _beat(members[about[0]], about[1])
    elif what == "joins":
        members[about[0]].joins(*about[1], expect="*")
    elif what == "matches":
        members[about[0]].joins(expect="*", pattern=about[1])
    elif what == "leaves":
        members[about[0]].leaves(expect="*")
    elif what == "classic":
        protocols = [Protocol("range", write_subscription(Subscription(("t",), None, {}, version=1)))]
        world.ask(JoinGroup(0, GROUP, "", None, "consumer", protocols, 30_000, 60_000, "d", "c", "/h"))
    elif what == "topic":
        topics = world.image.topics
        if about[0] == "create" or (about[0] == "delete" and "u" not in topics):
            world.image.create(f"n{number}", 1)
        elif about[0] == "grow":
            world.image.create("t", topics["t"].partitions + 1)
        else:
            world.image.delete("u")
    elif what == "advance":
        story.advance(about[0])
    elif what == "restart":
        story.move_coordinator()
    elif about[0] == "holds":
        story.holds_writes = True
    else:
        story.end_writes(ErrorCode.NONE if about[0] == "writes" else ErrorCode.NOT_ENOUGH_REPLICAS)
        story.holds_writes = False


def _beat(member: Any, how: str) -> None:
    if not member.epoch:
        return
    if how == "owned":
        there = member.world.image.topics
        member.owned = {name: numbers for name, numbers in member.owned.items() if name in there}
        member.beats(expect="*", owned=member.owned)
    elif how == "client":
        member.says(member.epoch, expect="*", instance_id="i")
    elif how == "late":
        member.beats(expect="*", epoch=max(member.epoch - 1, 1))
    else:
        member.beats(expect="*")


def _seen(world: GroupWorld) -> tuple[Any, ...]:
    story = world.world
    group = story.shard.groups.get(GROUP)
    shape: Any = None
    if isinstance(group, ConsumerGroup):
        shape = (
            group.group_epoch,
            group.assignment_epoch,
            group.state,
            {name: (one.epoch, one.previous_epoch, one.state, one.assigned, one.pending_revocation)
             for name, one in group.members.items()},
            {name: (one.deadline_ms, one.alarm_ms) for name, one in group.sessions.items()},
            group.holders,
            group.held_bytes,
            len(group.unwritten),
            group.is_rebalancing,
        )  # fmt: skip
    log = [(entry.key, entry.value) for entry in story.log]
    return repr(shape), log, dict(story.replies), [repr(fact) for fact in story.facts], story.writes_under_way


@settings(max_examples=150, deadline=None)
@given(STEPS, st.sampled_from([0, 1_000]))
def test_the_short_way_does_what_the_rule_does(steps: list[tuple[Any, ...]], interval_ms: int) -> None:
    """K5 to K13: answers, records, state and facts, after each step."""
    short = play(steps, interval_ms)
    with patch.object(rule, "answer_quickly", lambda *_: None):
        plain = play(steps, interval_ms)
    assert short == plain


def test_a_member_that_keeps_its_partitions_catches_up_the_short_way() -> None:
    """K9, K10: the answer has no assignment, there is one record, and the session starts again."""
    world = GroupWorld(t=1)
    a = world.member("a").joins("t")
    world.member("b").joins("t")
    world.world.advance(5_000)
    group, epoch = world.group, a.epoch
    assert group.members["a"].epoch == epoch < group.assignment_epoch
    request = ConsumerGroupHeartbeat(0, GROUP, "a", epoch, client_id="c", client_host="/h")
    assert answer_quickly(group, request, world.world.now_ms) is not None
    assert group.members["a"].epoch == group.assignment_epoch
    assert group.sessions["a"].deadline_ms == world.world.now_ms + group.session_timeout_ms
    again = GroupWorld(t=1)
    a = again.member("a").joins("t")
    again.member("b").joins("t")
    before = len(again.world.log)
    a.beats()
    assert a.epoch == again.group.assignment_epoch and a.heard is not None and a.heard.assignment is None
    assert len(again.world.log) == before + 1


def test_an_epoch_that_could_not_be_written_is_taken_back() -> None:
    """K27: the member is answered with an error, and so is everybody who has seen its epoch."""
    world = GroupWorld(t=1)
    a = world.member("a").joins("t")
    world.member("b").joins("t")
    before = a.epoch
    world.world.holds_writes = True
    last = world.world.token()
    a.beats(epoch=before)
    a.beats(epoch=world.group.assignment_epoch)  # it finds the epoch that the first got
    assert a.heard is None and world.group.members["a"].epoch == world.group.assignment_epoch > before
    world.world.end_writes(ErrorCode.NOT_ENOUGH_REPLICAS)
    answers = [world.world.replies[last + number] for number in (1, 2)]
    assert [answer.error for answer in answers] == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
    assert world.group.members["a"].epoch == before and not world.group.unwritten
    world.world.holds_writes = False
    assert a.beats(epoch=before).epoch == world.group.assignment_epoch


@given(
    st.builds(
        ConsumerGroupHeartbeatAnswer,
        st.sampled_from(ErrorCode),
        st.none() | st.text(max_size=5),
        st.none() | st.text(max_size=200),
        st.integers(-(2**31), 2**31 - 1),
        st.integers(0, 2**31 - 1),
        st.none() | st.dictionaries(st.uuids(), st.lists(st.integers(0, 9), max_size=3), max_size=2),
    ),
    st.sampled_from(consumer_group_heartbeat.API.versions),
)
def test_answers_are_written_as_responses_are(answer: ConsumerGroupHeartbeatAnswer, version: int) -> None:
    topics = None if answer.assignment is None else [(each, list(has)) for each, has in answer.assignment.items()]
    data = consumer_group_heartbeat.write_response(answer, version)
    read = consumer_group_heartbeat.read_response(data, 0, version)
    assert consumer_group_heartbeat.write_response(read, version) == data
    found = None if read.assignment is None else read.assignment.topic_partitions
    shown = None if found is None else [(each.topic_id or UUID(int=0), list(each.partitions)) for each in found]
    assert shown == topics
    assert (read.error, read.message, read.member_id) == (answer.error, answer.message, answer.member_id)
    assert (read.member_epoch, read.heartbeat_interval_ms) == (answer.member_epoch, answer.heartbeat_interval_ms)


@settings(max_examples=300)
@given(st.data(), st.sampled_from(consumer_group_heartbeat.API.versions))
def test_a_request_that_says_nothing_new_is_read_as_any_other(data: st.DataObject, version: int) -> None:
    """Also if bytes of it are changed, cut off or added."""
    names = st.text(max_size=5) | st.sampled_from(["g" * 126, "g" * 127, "g" * 300])
    epoch = data.draw(st.integers(-2, 2**31 - 1))
    request = consumer_group_heartbeat.Request(
        group_id=data.draw(names), member_id=data.draw(names), member_epoch=epoch, rack_id=data.draw(st.none() | names)
    )
    frame = bytearray(b"head" + consumer_group_heartbeat.write_request(request, version))
    for _ in range(data.draw(st.integers(0, 2))):
        frame[data.draw(st.integers(4, len(frame) - 1))] = data.draw(st.integers(0, 255))
    whole = bytes(frame[: data.draw(st.integers(4, len(frame)) | st.just(len(frame)))]) + data.draw(
        st.sampled_from([b"", b"", b"\0", bytes(11), b"\0\0\xff\xff\xff\xff\0\0\0\0\0"])
    )
    assert _read_by(consumer_group_heartbeat.read_request, whole, version) == _read_by(
        consumer_group_heartbeat._read_request, whole, version
    )


def _read_by(read: Any, frame: bytes, version: int) -> object:
    try:
        return read(frame, 4, version)
    except MalformedError as error:
        return str(error)


@given(st.dictionaries(st.text(max_size=3), st.lists(st.integers(0, 2**31 - 1), max_size=3), max_size=2))
def test_an_assignment_of_one_topic_is_written_as_any_other(partitions: dict[str, list[int]]) -> None:
    written = write_assignment(Assignment(partitions))
    writer = subscription._writer(Assignment({}).version)
    subscription._write_partitions(writer, partitions)
    writer.nullable_binary(None)
    assert written == writer.done()
