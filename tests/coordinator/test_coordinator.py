"""C1-C3, C5: which partition, which node, and what is answered without a shard."""

from __future__ import annotations

from typing import Any

import pytest

from coterie.coordinator.classic.effects import Reply
from coterie.coordinator.runtime import Append, AppendBatch, GroupCoordinator, find_coordinator, partition_of
from coterie.coordinator.runtime.coordinator import REFUSALS
from coterie.errors import ErrorCode
from coterie.facts import Emit, GroupLoaded, RecordsSkipped
from coterie.protocol.messages import (
    CommitPartition,
    ConsumerGroupHeartbeat,
    DeleteGroup,
    DescribeConsumerGroup,
    DescribeGroup,
    GroupsListed,
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
)
from coterie.settings.group_coordinator_settings import GroupCoordinatorSettings

JOIN = JoinGroup(1, "g", "", None, "consumer", [Protocol("range", b"")], 10_000, 60_000, "uuid")

REQUESTS: list[Any] = [
    JOIN,
    SyncGroup(1, "g", "m", None, 1),
    Heartbeat(1, "g", "m", None, 1),
    LeaveGroup(1, "g", [LeavingMember("m")]),
    OffsetCommit(1, "g", "", None, -1, [CommitPartition("t", 0, 1)]),
    OffsetFetch(1, "g", None),
    OffsetDelete(1, "g", []),
    DeleteGroup(1, "g"),
    DescribeGroup(1, "g"),
    ConsumerGroupHeartbeat(1, "g", "m", 1),
    DescribeConsumerGroup(1, "g"),
]


def error_in(answer: Any) -> ErrorCode:
    if isinstance(answer, ErrorCode):
        return answer
    error: ErrorCode = answer.errors[0] if hasattr(answer, "errors") else answer.error
    return error


def ask(coordinator: GroupCoordinator, request: Any, now_ms: int = 0) -> Any:
    (answer,) = [effect.answer for effect in coordinator.handle(request, now_ms) if isinstance(effect, Reply)]
    return answer


@pytest.mark.parametrize(
    ("group_id", "partition"),
    # as Java has it; the hash of my-group is negative, and would be 36 if its sign were masked away as of old
    [("", 0), ("g", 3), ("hello", 22), ("my-group", 12), ("polygenelubricants", 0), ("héllo 😀", 5)],
)
def test_a_group_belongs_to_the_absolute_value_of_its_java_hash(group_id: str, partition: int) -> None:
    """C1: and of the smallest int it is 0."""
    assert partition_of(group_id, 50) == partition


def test_the_coordinator_of_a_group_is_the_leader_of_its_partition() -> None:
    """C2: the empty key is served; other kinds of key are not ours; without an offsets topic there is none yet."""
    leaders = {partition_of("g", 50): 2, 0: 1}
    assert find_coordinator(0, "g", 50, leaders.get) == (ErrorCode.NONE, 2)
    assert find_coordinator(0, "", 50, leaders.get) == (ErrorCode.NONE, 1)
    assert find_coordinator(0, "g", 50, lambda _: None) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
    assert find_coordinator(9, "g", 50, leaders.get) == (ErrorCode.INVALID_REQUEST, -1)


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: type(request).__name__)
def test_a_partition_that_is_not_ours_answers_not_coordinator(request_: Any) -> None:
    """C3."""
    assert error_in(ask(GroupCoordinator(), request_)) is ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: type(request).__name__)
def test_while_it_is_read_everything_waits_but_heartbeats_are_believed(request_: Any) -> None:
    """C3."""
    coordinator = GroupCoordinator()
    coordinator.gain(partition_of("g", 50))
    wanted = ErrorCode.NONE if isinstance(request_, Heartbeat) else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert error_in(ask(coordinator, request_)) is wanted


def test_every_request_of_a_group_can_be_refused() -> None:
    """C3: the table has them all."""
    assert {type(request) for request in REQUESTS} == set(REFUSALS)


def test_some_mistakes_are_answered_whoever_coordinates() -> None:
    """Section 2, order of checks: group id, session bounds and a missing protocol come before the coordinator."""
    coordinator = GroupCoordinator()
    assert error_in(ask(coordinator, Heartbeat(1, "", "m", None, 1))) is ErrorCode.INVALID_GROUP_ID
    assert error_in(ask(coordinator, LeaveGroup(1, "", []))) is ErrorCode.INVALID_GROUP_ID
    bad = JoinGroup(1, "g", "", None, "consumer", [], 1, 1, "uuid")
    assert error_in(ask(coordinator, bad)) is ErrorCode.INVALID_SESSION_TIMEOUT
    sync = SyncGroup(1, "", "m", None, 1, needs_protocol=True)
    assert error_in(ask(coordinator, sync)) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_list_fails_as_a_whole_while_anything_is_read() -> None:
    """C3."""
    coordinator = GroupCoordinator()
    coordinator.gain(3)
    coordinator.gain(4)
    coordinator.loaded(3, 0)
    assert ask(coordinator, ListGroups(1)) == GroupsListed(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    coordinator.loaded(4, 0)
    assert ask(coordinator, ListGroups(1)) == GroupsListed(ErrorCode.NONE, [])


def taken(append: Append) -> AppendBatch:
    batch = append.batch()
    assert batch is not None
    return batch


def serve(
    coordinator: GroupCoordinator, event: Any, log: dict[int, list[tuple[bytes, bytes | None]]], now_ms: int
) -> list[Any]:
    """Drive it: appends are durable at once. Returns everything else."""
    out: list[Any] = []
    todo = coordinator.handle(event, now_ms)
    while todo:
        effect = todo.pop(0)
        if isinstance(effect, Append):
            partition = log.setdefault(effect.partition, [])
            batch = taken(effect)
            batch.then.base_offset = len(partition)
            partition += batch.records
            todo += coordinator.handle(batch.then, now_ms)
        else:
            out.append(effect)
    return out


def test_groups_of_many_partitions_live_side_by_side_and_move_one_by_one() -> None:
    """C1, C3, C4, C5: each request is handled whole before the next."""
    settings = GroupCoordinatorSettings(offsets_topic_num_partitions=4)
    coordinator = GroupCoordinator(settings)
    log: dict[int, list[tuple[bytes, bytes | None]]] = {}
    for partition in range(4):
        coordinator.gain(partition)
        coordinator.loaded(partition, 0)
    names = [f"group-{number}" for number in range(20)]
    for name in names:
        commit = OffsetCommit(name, name, "", None, -1, [CommitPartition("t", 0, 7)])
        replies = [one for one in serve(coordinator, commit, log, 0) if isinstance(one, Reply)]
        assert [reply.token for reply in replies] == [name]
    assert sorted(row.group_id for row in ask(coordinator, ListGroups(1)).groups) == sorted(names)

    lost = partition_of(names[0], 4)
    coordinator.lose(lost, 10)
    assert ask(coordinator, OffsetFetch(1, names[0], None)).error is ErrorCode.NOT_COORDINATOR
    replay = coordinator.gain(lost)
    for position, (key, value) in enumerate(log[lost]):
        replay.record(position, key, value)
    replay.record(98, b"\x00\x63", b"from the future")
    replay.record(99, b"", b"assignment_error")
    told = [effect.fact for effect in coordinator.loaded(lost, 20) if isinstance(effect, Emit)]
    assert {fact.group_id for fact in told if isinstance(fact, GroupLoaded)} == {
        name for name in names if partition_of(name, 4) == lost
    }
    assert [fact.counts for fact in told if isinstance(fact, RecordsSkipped)] == [{0x63: 1, -1: 1}]
    assert ask(coordinator, OffsetFetch(1, names[0], None)).partitions[0].offset == 7

    serve(coordinator, TopicsDeleted(frozenset({"t"})), log, 30)
    assert ask(coordinator, OffsetFetch(1, names[0], None)).partitions == []


def test_an_append_of_an_earlier_life_is_not_mistaken_for_one_of_this() -> None:
    """C4: a partition that comes back while its last write is still under way."""
    coordinator = GroupCoordinator(GroupCoordinatorSettings(offsets_topic_num_partitions=1))
    coordinator.gain(0)
    coordinator.loaded(0, 0)
    commit = OffsetCommit("old", "g", "", None, -1, [CommitPartition("t", 0, 1)])
    (old,) = [taken(effect) for effect in coordinator.handle(commit, 0) if isinstance(effect, Append)]
    coordinator.lose(0, 0)
    coordinator.gain(0)
    coordinator.loaded(0, 0)
    again = OffsetCommit("new", "g", "", None, -1, [CommitPartition("t", 0, 2)])
    (new,) = [taken(effect) for effect in coordinator.handle(again, 0) if isinstance(effect, Append)]
    assert coordinator.handle(old.then, 0) == []
    assert [effect.token for effect in coordinator.handle(new.then, 0) if isinstance(effect, Reply)] == ["new"]


def test_timers_ring_through_the_coordinator() -> None:
    """Rule 3 and C5: whatever shard they belong to."""
    coordinator = GroupCoordinator()
    coordinator.gain(partition_of("g", 50))
    coordinator.loaded(partition_of("g", 50), 0)
    log: dict[int, list[tuple[bytes, bytes | None]]] = {}
    serve(coordinator, JOIN, log, 0)
    assert list(coordinator.timers.due(9_999)) == []
    rang = [effect for event in coordinator.timers.due(10_000) for effect in coordinator.handle(event, 10_000)]
    assert any(isinstance(effect, Emit) for effect in rang)
