"""Coordinators are moved: groups go on, and nobody who waits is forgotten."""

from __future__ import annotations

from typing import Any

import pytest

from broker.cluster_world import Three, elsewhere, ready
from coterie.errors import ErrorCode
from coterie.facts import GroupLoaded, MemberExpired
from coterie.protocol.apis import describe_groups, list_groups
from coterie.protocol.messages import DescribeGroup, ListGroups
from coterie.protocol.offsets_topic import OFFSETS_TOPIC
from logs import FaultyFiles

NONE, NOT_COORDINATOR, LOADING = ErrorCode.NONE, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


@pytest.fixture
def world() -> Three:
    return ready()


def test_a_group_goes_on_in_its_generation_at_its_new_coordinator(world: Three) -> None:
    """C4: no rebalance, everybody's session starts again; the old coordinator knows nothing of it."""
    old = world.of_coordinator("g")
    member = old.enter("g", b"mine")
    assert old.commit("g", {("t", 0): 7}, member=member) == [NONE]
    world.move_coordinator("g", elsewhere(world))
    world.happened()
    new = world.of_coordinator("g")
    assert new.node is not old.node
    assert old.heartbeat("g", member.member_id, member.generation_id) is NOT_COORDINATOR
    assert new.heartbeat("g", member.member_id, member.generation_id) is NONE
    assert new.offsets_of("g") == {("t", 0): 7}
    assert new.commit("g", {("t", 0): 8}, member=member) == [NONE]
    (described,) = new.ask(describe_groups, [DescribeGroup(None, "g")], 5)
    assert (described.state, [one.assignment for one in described.members]) == ("Stable", [b"mine"])
    (loaded,) = [fact for fact in world.facts if isinstance(fact, GroupLoaded)]
    assert (loaded.group_id, loaded.generation_id) == ("g", member.generation_id)


def test_find_coordinator_names_the_new_one_everywhere(world: Three) -> None:
    there = elsewhere(world)
    world.move_coordinator("g", there)
    assert [world.client(node).find_coordinator("g").node_id for node in (1, 2, 3)] == [there] * 3


def test_joins_and_syncs_that_wait_are_answered_by_the_coordinator_that_goes(world: Three) -> None:
    """C4: NOT_COORDINATOR, so that they look for the new one."""
    leader, follower, late = (world.of_coordinator("g") for _ in range(3))
    for client in (leader, follower):
        client.send_join("g", version=3)
    one = leader.answer()
    leader.send_join("g", one.member_id, version=3)  # the rebalance of two
    first, second = leader.answer(), follower.answer()
    assert first.generation_id == second.generation_id
    follower.send_sync("g", second)
    late.send_join("h", version=3)
    assert follower.answers == 0
    world.move_coordinator("g", elsewhere(world))
    assert follower.answer().error is NOT_COORDINATOR
    assert world.of_coordinator("g").heartbeat("g", first.member_id, 1) is not NOT_COORDINATOR


def test_a_join_that_waits_is_answered_by_the_coordinator_that_goes(world: Three) -> None:
    first, second = world.of_coordinator("g"), world.of_coordinator("g")
    member = first.enter("g", version=3)
    second.send_join("g", version=3)
    assert second.answers == 0, f"{member.member_id} has not come back yet"
    world.move_coordinator("g", elsewhere(world))
    assert second.answer().error is NOT_COORDINATOR


@pytest.mark.parametrize("well", [True, False])
def test_a_commit_that_waits_for_the_disk_is_told_to_ask_again_and_no_offset_comes_from_nowhere(well: bool) -> None:
    """C4: it may have been written or not; the new coordinator says which, when the disk has."""
    files = FaultyFiles()
    world = ready(files)
    client, there = world.of_coordinator("g"), elsewhere(world)
    client.commit("g", {("t", 0): 1})
    world.auto = False
    world.move_coordinator("g", there)
    client.send_commit("g", {("t", 0): 2})  # written, and flushed when it is known who leads
    world.flush()  # who leads is kept
    assert client.committed() == [NOT_COORDINATOR]
    new = world.client(there)
    assert new.commit("g", {("t", 0): 9}) == [LOADING]
    files.refuses_sync = not well
    world.flush(ahead=9)
    files.refuses_sync = False
    world.auto = True
    world.flush_all()
    world.advance(2_000)
    assert new.offsets_of("g") == {("t", 0): 2 if well else 1}
    assert new.commit("g", {("t", 0): 3}) == [NONE]


def test_a_commit_that_was_not_written_when_the_coordinator_went_never_is(world: Three) -> None:
    """C4: it waited for a flush to end, and is told to ask again."""
    client, producer, there = world.of_coordinator("g"), world.of_leader("t"), elsewhere(world)
    client.commit("g", {("t", 0): 1})
    world.auto = False
    world.move_coordinator("g", there)
    producer.send_produce("t", b"a")
    client.send_commit("g", {("t", 0): 2})
    world.flush()  # who leads is kept
    assert client.committed() == [NOT_COORDINATOR]
    world.auto = True
    world.flush_all()
    assert producer.produced().base_offset == 0
    assert world.client(there).offsets_of("g") == {("t", 0): 1}


def test_while_groups_are_read_everybody_is_told_to_wait_but_heartbeats_are_believed(world: Three) -> None:
    """C3."""
    member = world.of_coordinator("g").enter("g")
    there = elsewhere(world)
    world.auto = False
    world.move_coordinator("g", there)
    world.flush()  # who leads is kept
    world.happened()
    new = world.client(there)
    assert new.heartbeat("g", "anybody", 99) is NONE
    assert new.commit("g", {("t", 0): 9}) == [LOADING]
    assert new.join("g").error is LOADING
    error, groups = new.ask(list_groups, ListGroups(None, [], []))
    assert (error, groups) == (LOADING, [])
    world.auto = True
    world.flush_all()
    world.perform([])
    assert new.heartbeat("g", "anybody", 99) is ErrorCode.UNKNOWN_MEMBER_ID
    assert new.heartbeat("g", member.member_id, member.generation_id) is NONE


def test_a_coordinator_that_moves_on_while_it_loads_is_loaded_where_it_ends_up(world: Three) -> None:
    member = world.of_coordinator("g").enter("g")
    first = world.coordinator("g")
    second = world.other_than(first)
    third = world.other_than(first, second)
    world.auto = False
    for node in (second, third, first, second):
        world.move_coordinator("g", node)
    world.auto = True
    world.flush_all()
    world.perform([])
    assert world.outcomes == [None] * 4
    assert world.coordinator("g") == second
    answers = {node: world.client(node).heartbeat("g", member.member_id, 1) for node in (first, second, third)}
    assert answers == {first: NOT_COORDINATOR, second: NONE, third: NOT_COORDINATOR}


def test_a_log_that_cannot_be_read_is_tried_again() -> None:
    files = FaultyFiles()
    world = ready(files)
    member = world.of_coordinator("g").enter("g")
    there = elsewhere(world)
    log = next(
        log for (topic, _), log in world.cluster.directory.logs.items() if topic == OFFSETS_TOPIC and log.log_end_offset
    )
    whole = log._segments
    log._segments = [_Unreadable(whole[0])]  # type: ignore[list-item]
    world.move_coordinator("g", there)
    assert world.client(there).commit("g", {("t", 0): 1}) == [LOADING]
    assert any("cannot read" in trouble for trouble in world.troubles)
    log._segments = whole
    world.advance(1_000)
    assert world.client(there).heartbeat("g", member.member_id, 1) is NONE


class _Unreadable:
    """A segment on a disk that is away."""

    def __init__(self, segment: Any) -> None:
        self._segment = segment

    def __getattr__(self, name: str) -> Any:
        return getattr(self._segment, name)

    def read(self, *_: Any, **__: Any) -> bytes:
        raise OSError(5, "broken disk")


def test_sessions_end_at_the_new_coordinator_and_only_there(world: Three) -> None:
    """C4: a fresh session begins with the load."""
    member = world.of_coordinator("g").enter("g", session_timeout_ms=30_000)
    world.advance(20_000)
    world.move_coordinator("g", elsewhere(world))
    world.advance(20_000)
    assert world.of_coordinator("g").heartbeat("g", member.member_id, 1) is NONE
    world.advance(30_001)
    (gone,) = [fact for fact in world.facts if isinstance(fact, MemberExpired)]
    assert gone.member_id == member.member_id
    assert world.of_coordinator("g").heartbeat("g", member.member_id, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_with_flush_os_a_coordinator_moves_as_well() -> None:
    world = ready(sync=False)
    member = world.of_coordinator("g").enter("g")
    world.move_coordinator("g", elsewhere(world))
    assert world.of_coordinator("g").heartbeat("g", member.member_id, 1) is NONE


def test_the_first_to_move_a_coordinator_has_the_topic_of_the_groups_made() -> None:
    world = Three()
    world.move_coordinator("g", 3)
    world.happened()
    assert world.client(1).find_coordinator("g").node_id == 3


def test_offsets_of_a_deleted_topic_are_deleted_by_every_coordinator(world: Three) -> None:
    """Rule 23."""
    groups = [f"g{number}" for number in range(6)]
    for group in groups:
        world.of_coordinator(group).commit(group, {("t", 0): 1})
    assert world.client(1).delete("t") is NONE
    assert [world.of_coordinator(group).offsets_of(group) for group in groups] == [{}] * 6
