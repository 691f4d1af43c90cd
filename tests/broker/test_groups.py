"""The group APIs through the node: many groups in a request, ids instead of names, what comes back (C4)."""

from __future__ import annotations

from uuid import UUID

import pytest

from broker.driver import Client, World
from broker.speaker import commit_request
from coterie.errors import ErrorCode
from coterie.protocol.api import NOT_ASKED
from coterie.protocol.apis import (
    delete_groups,
    describe_groups,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
)
from coterie.protocol.messages import (
    DeleteGroup,
    DescribeGroup,
    LeaveGroup,
    LeavingMember,
    ListGroups,
    OffsetDelete,
    OffsetFetch,
)


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def client(world: World) -> Client:
    client = world.client()
    client.find_coordinator()
    client.create("t", 2)
    return client


# --- several groups ---------------------------------------------------------------------------------------------------


def test_offsets_of_many_groups_come_in_the_order_asked(client: Client) -> None:
    """C7: who asks twice is answered twice; rule 22: an absent group has no offsets and no error."""
    for number in range(6):
        client.commit(f"g{number}", {("t", 0): number})
    asked = ["g3", "g0", "absent", "g3", "g5"]
    found = client.ask(offset_fetch, [OffsetFetch(None, group, None) for group in asked], 8)
    assert [one.group_id for one in found] == asked
    assert [[part.offset for part in one.partitions] for one in found] == [[3], [0], [], [3], [5]]


def test_groups_are_described_in_the_order_asked(client: Client) -> None:
    """Rule 25, C7."""
    client.commit("simple", {("t", 0): 1})
    member = client.enter("full")
    asked = ["full", "absent", "simple", "full"]
    found = client.ask(describe_groups, [DescribeGroup(None, group) for group in asked], 6)
    assert [(one.group_id, one.state) for one in found] == [
        ("full", "Stable"),
        ("absent", "Dead"),
        ("simple", "Empty"),
        ("full", "Stable"),
    ]
    assert [one.error for one in found] == [
        ErrorCode.NONE,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.NONE,
        ErrorCode.NONE,
    ]
    (described,) = found[0].members
    assert (described.member_id, described.client_id, described.client_host) == (
        member.member_id,
        "tester",
        "/10.0.0.1",
    )


def test_groups_are_deleted_when_the_disk_says_so_each_with_its_answer(world: World, client: Client) -> None:
    """Rule 24; each distinct group once (C7)."""
    for group in ("a", "b"):
        client.commit(group, {("t", 0): 1})
    client.enter("full")
    world.auto = False
    other = world.client()
    other.send(delete_groups, [DeleteGroup(None, group) for group in ("a", "full", "absent", "b", "a")], 2)
    assert other.answers == 0
    while world.flushes:
        world.flush()
    answer = dict(other.answer())
    assert answer == {
        "a": ErrorCode.NONE,
        "b": ErrorCode.NONE,
        "full": ErrorCode.NON_EMPTY_GROUP,
        "absent": ErrorCode.GROUP_ID_NOT_FOUND,
    }
    assert client.offsets_of("a") == {}


def test_requests_that_name_no_group_are_answered(client: Client) -> None:
    assert client.ask(offset_fetch, [], 8) == []
    assert client.ask(describe_groups, [], 6) == []
    assert dict(client.ask(delete_groups, [], 2)) == {}


@pytest.mark.parametrize("version", [3, 5, 6])
def test_who_asks_what_it_may_do_hears_everything_of_a_group_that_is_there(client: Client, version: int) -> None:
    """Rule 25: there is no authoriser, so all rights there are; none are told with an error."""
    client.commit("g", {("t", 0): 1})
    asked = [DescribeGroup(None, group, asks_rights=True) for group in ("g", "absent")]
    there, absent = client.ask(describe_groups, asked, version)
    assert (there.authorized_operations, absent.authorized_operations) == (3400, 3400 if version < 6 else NOT_ASKED)
    (silent,) = client.ask(describe_groups, [DescribeGroup(None, "g")], version)
    assert silent.authorized_operations == NOT_ASKED


def test_all_groups_of_all_partitions_are_listed(client: Client) -> None:
    """Rule 25."""
    for number in range(10):
        client.commit(f"g{number}", {("t", 0): number})
    client.enter("full")
    error, groups = client.ask(list_groups, ListGroups(None))
    assert error is ErrorCode.NONE
    assert {(one.group_id, one.state) for one in groups} == {
        *((f"g{number}", "Empty") for number in range(10)),
        ("full", "Stable"),
    }


# --- topics by id -----------------------------------------------------------------------------------------------------


def test_commit_and_fetch_by_topic_id(world: World, client: Client) -> None:
    """Rules 21, 22, version 10: an unknown id is an error for its partitions, the rest is taken."""
    topic_id, stranger = client.create("by-id"), UUID(int=77)
    request = commit_request(
        "g", {("by-id", 0): 5, ("x", 0): 6, ("by-id", 9): 7}, ids={"by-id": topic_id, "x": stranger}
    )
    answer = client.ask(offset_commit, request, 10)
    errors = {
        (part.topic_id, part.partition): error for part, error in zip(answer.partitions, answer.errors, strict=True)
    }
    assert errors == {
        (topic_id, 0): ErrorCode.NONE,
        (stranger, 0): ErrorCode.UNKNOWN_TOPIC_ID,
        (topic_id, 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    fetched = OffsetFetch(None, "g", [("", [0, 1]), ("", [3])], topic_ids=[topic_id, stranger])
    (found,) = client.ask(offset_fetch, [fetched], 10)
    assert {(one.topic_id, one.partition, one.offset, one.error) for one in found.partitions} == {
        (topic_id, 0, 5, ErrorCode.NONE),
        (topic_id, 1, -1, ErrorCode.NONE),
        (stranger, 3, -1, ErrorCode.UNKNOWN_TOPIC_ID),
    }
    (every,) = client.ask(offset_fetch, [OffsetFetch(None, "g", None)], 10)
    assert [(one.topic_id, one.offset) for one in every.partitions] == [(topic_id, 5)]


def test_a_commit_for_topics_that_are_not_there_asks_no_group(client: Client) -> None:
    """Rule 21, first step."""
    assert client.commit("g", {("nowhere", 0): 1, ("t", 2): 1}) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2
    (described,) = client.ask(describe_groups, [DescribeGroup(None, "g")], 5)
    assert described.state == "Dead"


def test_deleted_offsets_are_gone(client: Client) -> None:
    """Rule 24."""
    client.commit("g", {("t", 0): 1, ("t", 1): 2})
    answer = client.ask(offset_delete, OffsetDelete(None, "g", [("t", [0])]))
    assert answer.error is ErrorCode.NONE
    assert client.offsets_of("g") == {("t", 1): 2}


def test_offsets_of_partitions_that_are_not_there_cannot_be_deleted(client: Client) -> None:
    """Rule 24: each is told so, the others go; an error of the group speaks for all."""
    asked = OffsetDelete(None, "g", [("nowhere", [0]), ("t", [2, 0])])
    refused = client.ask(offset_delete, asked)
    assert (refused.error, refused.partitions) == (ErrorCode.GROUP_ID_NOT_FOUND, [])
    client.commit("g", {("t", 0): 1, ("t", 1): 2})
    answer = client.ask(offset_delete, asked)
    assert answer.error is ErrorCode.NONE
    assert {(entry.topic, entry.partition): entry.error for entry in answer.partitions} == {
        ("nowhere", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("t", 2): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("t", 0): ErrorCode.NONE,
    }
    assert client.offsets_of("g") == {("t", 1): 2}


# --- what comes back --------------------------------------------------------------------------------------------------


def after_a_crash(world: World, **settings: object) -> tuple[World, Client]:
    world.cluster.directory.release()
    again = World(world.files, settings, now_ms=world.now_ms + 1_000_000)
    return again, again.client()


def test_a_stable_group_goes_on_after_a_crash(world: World, client: Client) -> None:
    """C4: members, generation, assignment and offsets are there; every session starts again."""
    member = client.enter("g", b"mine")
    client.commit("g", {("t", 0): 5}, member=member)
    again, back = after_a_crash(world)
    assert back.heartbeat("g", member.member_id, member.generation_id) is ErrorCode.NONE
    assert back.sync("g", member).assignment == b"mine"
    assert back.commit("g", {("t", 0): 6}, member=member) == [ErrorCode.NONE]
    again.advance(29_999)
    (described,) = back.ask(describe_groups, [DescribeGroup(None, "g")], 5)
    assert described.state == "Stable"
    again.advance(30_000)
    (described,) = back.ask(describe_groups, [DescribeGroup(None, "g")], 5)
    assert described.state == "Empty"
    assert back.offsets_of("g") == {("t", 0): 6}


def test_an_unfinished_rebalance_does_not_come_back(world: World, client: Client) -> None:
    """C4: a group that was Preparing is Stable again at its last generation; pending ids are gone."""
    member = client.enter("g")
    other = world.client()
    newcomer = other.join("g")
    other.send_join("g", newcomer.member_id)
    assert client.heartbeat("g", member.member_id, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    _, back = after_a_crash(world)
    assert back.heartbeat("g", member.member_id, 1) is ErrorCode.NONE
    assert back.join("g", newcomer.member_id).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_that_never_synced_comes_back_empty(world: World, client: Client) -> None:
    """C4: one that died in its first Completing is Empty at generation 0, so its next is 1."""
    joined = client.join("g", client.join("g").member_id)
    assert joined.generation_id == 1
    _, back = after_a_crash(world)
    assert back.heartbeat("g", joined.member_id, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    (described,) = back.ask(describe_groups, [DescribeGroup(None, "g")], 5)
    assert described.state == "Empty"
    assert back.enter("g").generation_id == 1


def test_the_generation_goes_on_after_everybody_left(world: World, client: Client) -> None:
    member = client.enter("g")
    assert client.ask(leave_group, LeaveGroup(None, "g", [LeavingMember(member.member_id)])).error is ErrorCode.NONE
    _, back = after_a_crash(world)
    assert back.enter("g").generation_id == 3


def test_a_static_member_is_known_after_a_crash(world: World, client: Client) -> None:
    """C4, KIP-345."""
    first = client.enter("g", instance_id="i")
    _, back = after_a_crash(world)
    again = back.join("g", instance_id="i")
    assert (again.error, again.generation_id) == (ErrorCode.NONE, first.generation_id)
    assert again.member_id != first.member_id


def test_a_deleted_group_stays_deleted(world: World, client: Client) -> None:
    client.commit("g", {("t", 0): 1})
    client.ask(delete_groups, [DeleteGroup(None, "g")], 2)
    _, back = after_a_crash(world)
    (described,) = back.ask(describe_groups, [DescribeGroup(None, "g")], 6)
    assert described.state == "Dead"


def test_a_group_over_its_size_prepares_at_once(world: World, client: Client) -> None:
    """C4: group.max.size was made smaller."""
    member = client.enter("g")
    other = world.client()
    newcomer = other.join("g")
    other.send_join("g", newcomer.member_id)
    joined = client.join("g", member.member_id)
    client.sync("g", joined, {joined.member_id: b"a", newcomer.member_id: b"b"})
    _, back = after_a_crash(world, **{"group.max.size": 1})
    assert back.heartbeat("g", member.member_id, joined.generation_id) is ErrorCode.REBALANCE_IN_PROGRESS


def test_sessions_end_by_the_nodes_clock(world: World, client: Client) -> None:
    """Rule 14, on the way through the node."""
    member = client.enter("g", session_timeout_ms=10_000)
    world.advance(9_999)
    assert client.heartbeat("g", member.member_id, member.generation_id) is ErrorCode.NONE
    world.advance(9_999)
    assert client.heartbeat("g", member.member_id, member.generation_id) is ErrorCode.NONE
    world.advance(10_000)
    assert client.heartbeat("g", member.member_id, member.generation_id) is ErrorCode.UNKNOWN_MEMBER_ID
