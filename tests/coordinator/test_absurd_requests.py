"""Whatever a client sends is answered by a code of Kafka's, and the core goes on: no exception, no hang, no leak."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.checks import (
    check_bookkeeping,
    check_late_commits,
    check_timers,
    check_writes,
    waiting_tokens,
)
from coterie.errors import ErrorCode
from coterie.protocol.messages import (
    CommitPartition,
    DeleteGroup,
    DescribeGroup,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    ListGroups,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    Protocol,
    SyncGroup,
    TopicsDeleted,
    TransactionMarker,
)
from coterie.stories import Story
from coterie.structs import field_names, replace

HERE = ("a-1", "i-2", "g", "i", "t", "range", "consumer", "")
"""Words that mean something to the group these requests are sent to."""

words = st.one_of(
    st.sampled_from(HERE),
    st.text(st.characters(exclude_categories=()), max_size=8),  # lone surrogates too
    st.sampled_from(("x" * 40_000, "é" * 20_000, "\ud800", "\x00")),
)
numbers = st.one_of(
    st.integers(-3, 3), st.sampled_from((10_000, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63), 2**70)), st.integers()
)
data = st.one_of(
    st.binary(max_size=12),
    st.sampled_from((b"\x00\x01\x7f\xff\xff\xff", b"\xff\xff\x00\x00\x00\x00", b"\x00" * 100_000)),
)
topics = st.lists(st.tuples(words, st.lists(numbers, max_size=3)), max_size=3)

# By the type a message declares: anything at all of that type.
ANY: dict[str, st.SearchStrategy[Any]] = {
    "str": words,
    "str | None": st.none() | words,
    "int": numbers,
    "int | None": st.none() | numbers,
    "bool": st.booleans(),
    "Sequence[str]": st.lists(words, max_size=3),
    "Sequence[Protocol]": st.lists(st.builds(Protocol, st.just("range") | words, data), max_size=3),
    "Sequence[tuple[str, bytes]]": st.lists(st.tuples(words, data), max_size=3),
    "Sequence[LeavingMember]": st.lists(
        st.builds(LeavingMember, words, st.none() | words, st.none() | words), max_size=3
    ),
    "Sequence[CommitPartition]": st.lists(
        st.builds(CommitPartition, words, numbers, numbers, numbers, st.none() | words), max_size=3
    ),
    "Sequence[tuple[str, Sequence[int]]]": topics,
    "Sequence[tuple[str, Sequence[int]]] | None": st.none() | topics,
    "Sequence[UUID | None] | None": st.none() | st.lists(st.none() | st.uuids(), max_size=2),
    "frozenset[str]": st.frozensets(words, max_size=2),
}


def join(**fields: Any) -> JoinGroup:
    usual: dict[str, Any] = {
        "token": 1_000,
        "group_id": "g",
        "member_id": "",
        "instance_id": None,
        "protocol_type": "consumer",
        "protocols": [Protocol("range", b"")],
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 60_000,
        "fresh_id": "9",
        "client_id": "c",
    }
    return JoinGroup(**{**usual, **fields})


SENSIBLE: list[Any] = [
    join(needs_member_id=False),
    join(),
    join(group_id="new", needs_member_id=False),
    join(instance_id="i"),
    join(instance_id="j"),
    join(member_id="a-1", protocols=[Protocol("range", b"new")]),
    SyncGroup(0, "g", "a-1", None, 2, [("a-1", b"1")]),
    SyncGroup(0, "g", "a-1", None, 3, [("a-1", b"1")]),
    Heartbeat(0, "g", "a-1", None, 2),
    LeaveGroup(0, "g", [LeavingMember("a-1")]),
    LeaveGroup(0, "g", [LeavingMember("", "i"), LeavingMember("a-1")]),
    OffsetCommit(0, "g", "a-1", None, 2, [CommitPartition("v", 0, 1)]),
    OffsetCommit(0, "simple", "", None, -1, [CommitPartition("v", 0, 1)]),
    OffsetCommit(0, "g", "a-1", None, 2, [CommitPartition("v", 0, 1)], producer_id=7, producer_epoch=0),
    OffsetFetch(0, "g", [("v", [0]), ("u", [0])]),
    OffsetDelete(0, "g", [("v", [0]), ("u", [0])]),
    OffsetDelete(0, "simple", [("v", [0])]),
    DeleteGroup(0, "simple"),
    DeleteGroup(0, "g"),
    DescribeGroup(0, "g"),
    ListGroups(0, ["stable"]),
    TransactionMarker(0, 7, 0, committed=True),
    TopicsDeleted(frozenset({"u"})),
]


@st.composite
def requests(draw: st.DrawFn) -> Any:
    """A request that makes sense, with up to two of its fields replaced by anything their type allows."""
    request = draw(st.sampled_from(SENSIBLE))
    names = [name for name in field_names(request) if name not in {"token", "fresh_id"}]
    replaced = draw(st.lists(st.sampled_from(names), max_size=2))
    types = type(request).__annotations__
    return replace(request, **{name: draw(ANY[types[name]]) for name in replaced})


def a_group() -> Story:
    """Stable, one dynamic and one static member, with an offset."""
    story = Story(group_initial_rebalance_delay_ms=0)
    story.world.now_ms = 1_700_000_000_000
    story.stable("a", old=True)
    story.stable("s", old=True, instance="i")
    story.member("a").commits({"u:0": 7})
    assert list(story.group.members) == ["a-1", "i-2"] and story.group.generation_id == 2
    return story


@settings(max_examples=max(settings().max_examples, 300))
@given(st.lists(st.tuples(requests(), st.sampled_from((0, 0, 1, 10_000, 300_000))), max_size=8), st.booleans())
def test_nothing_a_client_can_say_breaks_the_core(said: list[tuple[Any, int]], holds: bool) -> None:
    """Words, numbers and bytes of the declared types, however absurd, also those that no record can hold."""
    story = a_group()
    world = story.world
    world.holds_writes = holds
    for request, ms in said:
        if hasattr(request, "token"):
            request.token = world.token()
        if isinstance(request, JoinGroup):
            request.fresh_id = f"fresh-{request.token}"
        world.send(request)
        world.advance(ms)
        for group in world.shard.classic_groups():
            check_bookkeeping(group)
        check_writes(world.shard)
        check_timers(world.shard)
        check_late_commits(world.shard, world.now_ms)
    world.end_writes()
    live = {group_id: group.offsets for group_id, group in world.shard.groups.items()}
    again = {group.group_id: group.offsets for group in world.replay().groups(world.settings, world.now_ms)}
    assert {key: value for key, value in live.items() if value} == {key: value for key, value in again.items() if value}
    world.move_coordinator()
    assert not waiting_tokens(world.shard)


def commit(offset: int = 1, metadata: str | None = "", generation_id: int = 2, partition: int = 0) -> OffsetCommit:
    return OffsetCommit(1_000, "g", "a-1", None, generation_id, [CommitPartition("v", partition, offset, -1, metadata)])


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (join(group_id=""), ErrorCode.INVALID_GROUP_ID),
        (join(session_timeout_ms=0), ErrorCode.INVALID_SESSION_TIMEOUT),
        (join(session_timeout_ms=-1), ErrorCode.INVALID_SESSION_TIMEOUT),
        (join(session_timeout_ms=2**31 - 1), ErrorCode.INVALID_SESSION_TIMEOUT),
        (join(protocols=[]), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (join(protocols=[Protocol("range", b"")] * 2), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (join(protocols=[Protocol("RANGE", b"")]), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (join(protocol_type=""), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (join(protocol_type="connect"), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (join(group_id="new", protocols=[]), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (join(group_id="new", protocol_type=""), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (join(member_id="\ud800"), ErrorCode.UNKNOWN_MEMBER_ID),
        (join(member_id="x" * 40_000), ErrorCode.UNKNOWN_MEMBER_ID),
        (join(member_id="a-1", instance_id="i"), ErrorCode.FENCED_INSTANCE_ID),
        (join(member_id="a-1", instance_id=""), ErrorCode.UNKNOWN_MEMBER_ID),
        (join(group_id="x" * 40_000, needs_member_id=False), ErrorCode.UNKNOWN_SERVER_ERROR),
        (join(group_id="\ud800", needs_member_id=False), ErrorCode.UNKNOWN_SERVER_ERROR),
        (SyncGroup(1_000, "g", "a-1", None, -(2**31)), ErrorCode.ILLEGAL_GENERATION),
        (SyncGroup(1_000, "g", "a-1", None, 2, needs_protocol=True), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (SyncGroup(1_000, "g", "a-1", None, 2, protocol_name=""), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (Heartbeat(1_000, "g", "a-1", None, -1), ErrorCode.ILLEGAL_GENERATION),
        (Heartbeat(1_000, "g", "a-1", None, 2**31 - 1), ErrorCode.ILLEGAL_GENERATION),
        (Heartbeat(1_000, "g", "", None, 2), ErrorCode.UNKNOWN_MEMBER_ID),
        (LeaveGroup(1_000, "", []), ErrorCode.INVALID_GROUP_ID),
        (LeaveGroup(1_000, "g", []), ErrorCode.NONE),
        (commit(offset=-(2**63)), ErrorCode.NONE),
        (commit(offset=2**63 - 1), ErrorCode.NONE),
        (commit(partition=-1), ErrorCode.NONE),  # whoever knows the topics has refused it before
        (commit(metadata=None), ErrorCode.NONE),
        (commit(metadata="😀" * 2_048), ErrorCode.NONE),
        (commit(metadata="😀" * 2_049), ErrorCode.OFFSET_METADATA_TOO_LARGE),
        (commit(metadata="\ud800"), ErrorCode.UNKNOWN_SERVER_ERROR),
        (commit(generation_id=-1), ErrorCode.ILLEGAL_GENERATION),
        (commit(generation_id=3), ErrorCode.ILLEGAL_GENERATION),
        (OffsetDelete(1_000, "", []), ErrorCode.INVALID_GROUP_ID),
        (OffsetDelete(1_000, "g", []), ErrorCode.NONE),
        (DeleteGroup(1_000, ""), ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
def test_absurd_values_are_answered_as_kafka_does(request_: Any, error: ErrorCode) -> None:
    story = a_group()
    story.world.send(request_)
    answer = story.world.replies[1_000]
    if isinstance(answer, ErrorCode):
        assert answer is error
    else:
        assert (answer.errors[0] if hasattr(answer, "errors") else answer.error) is error


@pytest.mark.parametrize(
    "metadata", [b"", b"\xff", b"\x00\x01\x7f\xff\xff\xff", b"\x00\x00\x00\x00\x00\x01\x00\x02\xc3\x28"]
)
def test_a_subscription_that_cannot_be_read_is_passed_on_and_protects_every_topic(metadata: bytes) -> None:
    """Rules 20, 24: the coordinator does not care what members tell each other, until it is asked to delete offsets."""
    story = Story(group_initial_rebalance_delay_ms=0)
    story.member("a").joins(old=True, protocols=[Protocol("range", metadata)])
    story.advance(ms=0)
    assert story.member("a").answer.members[0].metadata == metadata
    story.member("a").syncs({"a": b"\xff"}, expect="ff")
    story.member("a").commits({"elsewhere:0": 1}, expect="ok")
    story.world.send(OffsetDelete(1_000, "g", [("elsewhere", [0])]))
    assert story.world.replies[1_000].partitions[0].error is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
