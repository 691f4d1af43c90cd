"""What members make a broker hold is counted, bounded for a member, a group and in all, and given back."""

from __future__ import annotations

import pytest

from broker.driver import Client, World
from coterie.coordinator.classic.member_bytes import count_held
from coterie.coordinator.runtime import partition_of
from coterie.errors import ErrorCode
from coterie.facts import MemberTurnedAway

FULL = ErrorCode.GROUP_MAX_SIZE_REACHED
MIB = 1 << 20


def world_of(**bounds: int) -> World:
    names = {
        "member": "coterie.group.member.max.bytes",
        "group": "coterie.group.max.bytes",
        "all_groups": "coterie.groups.max.bytes",
    }
    world = World(settings={names[name]: value for name, value in bounds.items()})
    world.client().find_coordinator()
    return world


def held(world: World) -> int:
    """What is counted, which must be what is there."""
    groups = [group for shard in world.node.coordinator.shards.values() for group in shard.classic_groups()]
    assert [group.held_bytes for group in groups] == [count_held(group) for group in groups]
    assert world.cluster.held_by_groups.total == sum(group.held_bytes for group in groups)
    return world.cluster.held_by_groups.total


def join(client: Client, group: str, size: int, member_id: str = "", **options: object) -> ErrorCode:
    """With so much metadata, in a version that gives no id first; NONE also if the answer has to wait."""
    client.send_join(group, member_id, protocols={"range": bytes(size)}, version=3, **options)
    return client.answer().error if client.answers else ErrorCode.NONE


def why(world: World) -> str:
    return next(fact.why for fact in reversed(world.facts) if isinstance(fact, MemberTurnedAway))


def test_forty_members_with_twenty_megabytes_each_are_refused() -> None:
    world = world_of()
    before = held(world)
    for _ in range(40):
        assert join(world.client(), "g", 20 * MIB) is FULL
    assert held(world) == before
    assert "coterie.group.member.max.bytes" in why(world)
    assert not any(shard.groups for shard in world.node.coordinator.shards.values()), (
        "there is no group of refused ones"
    )


def test_a_group_and_all_groups_are_bounded() -> None:
    world = world_of(group=10 * MIB, all_groups=25 * MIB)
    assert [join(world.client(), "g", 3 * MIB) for _ in range(5)] == [ErrorCode.NONE] * 3 + [FULL] * 2
    assert "coterie.group.max.bytes" in why(world)
    answers = [join(world.client(), f"g{number}", 4 * MIB - 1_000) for number in range(6)]
    assert answers == [ErrorCode.NONE] * 3 + [FULL] * 3
    assert "coterie.groups.max.bytes" in why(world)
    assert held(world) <= 25 * MIB


def test_what_a_member_held_is_given_back_when_it_expires() -> None:
    world = world_of()
    client = world.client()
    client.enter("g", protocols={"range": bytes(MIB)})
    assert held(world) > MIB
    world.advance(31_000)
    assert held(world) == 0


def test_new_metadata_takes_the_place_of_the_old() -> None:
    """Also a member that is here is refused what would be too much; it is gone then, as one too many is."""
    world = world_of(group=4 * MIB)
    client = world.client()
    joined = client.enter("g", protocols={"range": bytes(3 * MIB)})
    full = held(world)
    assert join(client, "g", MIB, joined.member_id) is ErrorCode.NONE
    assert held(world) < full - MIB
    assert join(client, "g", 4 * MIB - 300, joined.member_id) is FULL
    assert held(world) == 0


def test_a_static_member_that_comes_back_is_counted_once() -> None:
    world = world_of(group=4 * MIB)
    client = world.client()
    for _ in range(3):
        joined = client.join("g", instance_id="i", protocols={"range": bytes(3 * MIB)})
        assert joined.error is ErrorCode.NONE
        assert client.sync("g", joined, {joined.member_id: b"x"}).error is ErrorCode.NONE
    assert held(world) < 4 * MIB


def test_ids_that_were_given_out_are_counted_until_they_lapse() -> None:
    world = world_of(group=200_000)
    answers = [world.client().join("g", protocols={"range": b"m"}).error for _ in range(5)]
    assert answers == [ErrorCode.MEMBER_ID_REQUIRED] * 5
    assert held(world) > 0
    world.advance(31_000)
    assert held(world) == 0


def test_assignments_are_counted_and_too_large_ones_refused_as_too_large_a_record_is() -> None:
    world = world_of(group=4 * MIB)
    client = world.client()
    client.enter("g", bytes(MIB))
    assert held(world) > MIB
    joined = client.join("h", client.join("h").member_id)
    assert client.sync("h", joined, {joined.member_id: bytes(4 * MIB)}).error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert held(world) < 2 * MIB


def test_groups_that_go_elsewhere_are_held_elsewhere() -> None:
    world = world_of()
    world.client().enter("g", protocols={"range": bytes(MIB)})
    before = held(world)
    partition = partition_of("g", 3)
    log = world.node.replicas.log("__consumer_offsets", partition)
    assert log is not None
    world.perform(world.node.groups.lose(partition, world.now_ms))
    assert held(world) == 0
    world.node.groups.gain(partition, log)
    world.perform(world.cluster.after([], world.now_ms))
    world.advance(100)
    assert held(world) == before


@pytest.mark.parametrize("version", [3, 9])
def test_a_member_beside_them_is_not_troubled(version: int) -> None:
    world = world_of(all_groups=5 * MIB)
    calm, greedy = world.client(), world.client()
    member = calm.enter("calm")
    for number in range(20):
        greedy.send_join(f"greedy{number}", protocols={"range": bytes(2 * MIB)}, version=version)
        assert calm.heartbeat("calm", member.member_id, 1) is ErrorCode.NONE
    assert held(world) <= 5 * MIB
