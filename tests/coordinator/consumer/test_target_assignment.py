"""K16 to K18: the vote, and the assignors `range` and `uniform`."""

from __future__ import annotations

from coordinator.consumer.group_world import GroupWorld
from coterie.assignors import Member, Topic
from coterie.coordinator.consumer.target_assignment import ASSIGNORS, preferred_server_assignor, uniform_assignor


def test_the_assignor_that_most_members_name_wins() -> None:
    """K16: who names none does not vote; nobody votes: the default; a tie goes to uniform."""
    world = GroupWorld(t=1)
    a = world.member("a").joins("t")
    assert preferred_server_assignor(world.group) == "uniform"
    a.beats(assignor="range")
    assert preferred_server_assignor(world.group) == "range"
    world.member("b").joins("t")
    assert preferred_server_assignor(world.group) == "range"
    c = world.member("c").joins("t", assignor="uniform")
    assert preferred_server_assignor(world.group) == "uniform"
    c.beats(assignor="range")
    assert preferred_server_assignor(world.group) == "range"
    world.member("d").joins("t", assignor="uniform")
    assert preferred_server_assignor(world.group) == "range"


def test_range_is_contiguous_and_static_members_come_first() -> None:
    """K17: by instance id, then the others by member id."""
    topics = {"t": Topic(4), "t2": Topic(2)}
    members = [Member(f"m{number}", ["t", "t2"]) for number in range(3)]
    assert _range(members[:2], topics) == {"m0": {"t": [0, 1], "t2": [0]}, "m1": {"t": [2, 3], "t2": [1]}}
    three = {"m0": {"t": [0, 1], "t2": [0]}, "m1": {"t": [2], "t2": [1]}, "m2": {"t": [3]}}
    assert _range(members, topics) == three
    members[2].instance_id = "i"
    assert _range(members, topics)["m2"]["t"] == [0, 1]
    world = GroupWorld(t=2)
    a = world.member("a").joins("t", assignor="range")
    z = world.member("z", "i").joins("t", assignor="range")
    a.beats().gives_up()
    z.beats()
    assert world.shares() == {"a": {"t": [1]}, "z": {"t": [0]}}


def _range(members: list[Member], topics: dict[str, Topic]) -> dict[str, dict[str, list[int]]]:
    assigned = ASSIGNORS["range"](members, topics)
    return {who: {topic: list(ids) for topic, ids in has.items()} for who, has in assigned.items()}


def test_uniform_balances_and_moves_no_more_than_it_must() -> None:
    """K18: complete, disjoint, within one of each other, sticky to the last target."""
    topics = {"t": Topic(7), "u": Topic(6)}
    members: list[Member] = []
    for count in range(1, 7):
        members.append(Member(f"m{count}", ["t", "u"]))
        before = {(topic, number): m.id for m in members for topic, ids in m.owned.items() for number in ids}
        assigned = uniform_assignor(members, topics)
        after = {(topic, number): who for who, has in assigned.items() for topic, ids in has.items() for number in ids}
        assert len(after) == 13
        loads = [sum(map(len, has.values())) for has in assigned.values()]
        assert max(loads) - min(loads) <= 1
        moved = sum(after[place] != owner for place, owner in before.items())
        assert moved == sum(map(len, assigned[members[-1].id].values())) - (13 if count == 1 else 0)
        members = [Member(member.id, member.topics, owned=assigned[member.id]) for member in members]


def test_uniform_with_different_topics_is_balanced_as_far_as_they_allow() -> None:
    """K18."""
    topics = {"t": Topic(4), "t2": Topic(2)}
    assigned = uniform_assignor([Member("m0", ["t"]), Member("m1", ["t", "t2"])], topics)
    assert sum(map(len, assigned["m0"].values())) == 3
    assert list(assigned["m1"]["t2"]) == [0, 1]


def test_a_changed_vote_counts_when_something_else_bumps_the_epoch() -> None:
    """K16."""
    world = GroupWorld(t=4)
    a = world.member("a").joins("t", assignor="uniform")
    a.beats(assignor="range")
    world.expect("Stable", 2)
