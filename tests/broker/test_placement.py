"""Which node leads what: from names and numbers alone."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.broker.placement import (
    NO_LEADER,
    Partition,
    PartitionState,
    changed_leaders,
    default_state,
    leader_of,
    moved_to,
    new_states,
    preferred_leader_of,
    redistribute,
)

THREE = (1, 2, 3)


def states_of(topic: str, count: int, nodes: tuple[int, ...] = THREE) -> dict[Partition, PartitionState]:
    return new_states(topic, range(count), {}, nodes, nodes)


@pytest.mark.parametrize(
    ("preferred_leader", "number", "up", "leader"),
    [
        (1, 0, {1, 2, 3}, 1),
        (1, 0, {2, 3}, 2),
        (1, 3, {2, 3}, 3),  # the next partition of the same preferred leader begins with the next node
        (1, 6, {2, 3}, 2),
        (1, 0, {3}, 3),
        (1, 3, {2}, 2),
        (2, 0, {1, 3}, 1),
        (2, 4, {1, 3}, 3),
        (3, 0, set(), NO_LEADER),
    ],
)
def test_a_partition_is_led_at_home_or_by_its_first_stand_in_that_is_up(
    preferred_leader: int, number: int, up: set[int], leader: int
) -> None:
    assert leader_of(preferred_leader, number, THREE, up) == leader


def test_one_node_leads_everything_and_nothing_is_unusual() -> None:
    assert {state.leader for state in states_of("t", 50, (7,)).values()} == {7}
    assert states_of("t", 2, (7,)) == {(key): default_state(key, (7,)) for key in [("t", 0), ("t", 1)]}


def test_small_topics_do_not_all_begin_with_the_same_node() -> None:
    assert {preferred_leader_of((f"topic-{number}", 0), THREE) for number in range(20)} == set(THREE)


def test_where_a_partition_is_at_home_never_changes_from_one_version_to_the_next() -> None:
    """It is not written down where it is by rule, so the rule is part of the format of the data directory."""
    assert [preferred_leader_of(("orders", number), THREE) for number in range(4)] == [1, 2, 3, 1]
    assert [preferred_leader_of(("__consumer_offsets", number), THREE) for number in range(4)] == [1, 2, 3, 1]


def test_a_home_that_was_asked_for_is_taken() -> None:
    made = new_states("t", range(2, 4), {2: 3, 3: 3}, THREE, {1, 2})
    assert {key: state.preferred_leader for key, state in made.items()} == {("t", 2): 3, ("t", 3): 3}
    assert {state.leader for state in made.values()} <= {1, 2}


def test_a_move_makes_another_home_and_the_epoch_rises_only_if_the_leader_changes() -> None:
    assert moved_to(("t", 0), PartitionState(1, 1, 4), 2) == {("t", 0): PartitionState(2, 2, 5)}
    assert moved_to(("t", 0), PartitionState(1, 2, 4), 2) == {("t", 0): PartitionState(2, 2, 4)}
    assert moved_to(("t", 0), PartitionState(1, 1, 4), 1) == {}


def test_with_other_nodes_than_before_everything_is_spread_anew_but_what_was_moved() -> None:
    before = {
        ("orders", 0): PartitionState(1, 1, 0),
        ("orders", 1): PartitionState(2, 3, 5),
        ("orders", 2): PartitionState(2, 2, 1),
    }
    assert redistribute(before, THREE, (1,)) == {
        ("orders", 0): PartitionState(1, 1, 0),
        ("orders", 1): PartitionState(1, 1, 6),
        ("orders", 2): PartitionState(1, 1, 2),
    }
    assert redistribute(before, THREE, (1, 2)) == {
        ("orders", 0): PartitionState(2, 2, 1),
        ("orders", 1): PartitionState(1, 1, 6),
        ("orders", 2): PartitionState(2, 2, 1),
    }
    one = {("orders", number): PartitionState(1, 1, 0) for number in range(3)}
    assert {state.leader for state in redistribute(one, (1,), THREE).values()} == {1, 2, 3}


NODES = st.integers(1, 7).map(lambda count: tuple(range(1, count + 1)))


@given(NODES, st.integers(1, 60), st.text("abc-", min_size=1, max_size=5))
def test_partitions_of_a_topic_are_spread_evenly(nodes: tuple[int, ...], count: int, topic: str) -> None:
    shares = Counter(state.leader for state in states_of(topic, count, nodes).values())
    assert max(shares.values()) - min(shares.get(node, 0) for node in nodes) <= 1


@given(st.integers(2, 7), st.integers(1, 200), st.data())
def test_what_a_stopped_node_led_is_spread_over_the_others(count: int, partitions: int, data: st.DataObject) -> None:
    nodes = tuple(range(1, count + 1))
    gone = data.draw(st.sampled_from(nodes))
    states = states_of("t", partitions, nodes)
    changed = changed_leaders(states, nodes, set(nodes) - {gone})
    assert set(changed) == {key for key, state in states.items() if state.leader == gone}, "and nothing else moves"
    shares = Counter(state.leader for state in changed.values())
    assert max(shares.values(), default=0) - min(shares.get(node, 0) for node in nodes if node != gone) <= 1


@given(NODES, st.integers(1, 40), st.lists(st.sets(st.integers(1, 7)), max_size=6))
def test_epochs_rise_by_one_with_every_new_leader_and_all_is_as_before_when_all_are_up(
    nodes: tuple[int, ...], partitions: int, story: list[set[int]]
) -> None:
    first = states_of("t", partitions, nodes)
    states = dict(first)
    for up in [*story, set(nodes)]:
        there = up & set(nodes)
        for key, state in changed_leaders(states, nodes, there).items():
            was = states[key]
            assert (
                state.preferred_leader == was.preferred_leader
                and state.leader != was.leader
                and state.leader_epoch == was.leader_epoch + 1
            )
            assert state.leader in there or (state.leader == NO_LEADER and not there)
            assert was.leader not in there or state.leader == state.preferred_leader, (
                "only a preferred leader takes from one that is up"
            )
            states[key] = state
        assert changed_leaders(states, nodes, there) == {}
    assert {key: state.leader for key, state in states.items()} == {key: state.leader for key, state in first.items()}
