"""Simulated groups: the shipped broker and consumers, in virtual time."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from coterie.errors import CoterieError
from coterie.facts import MemberJoined
from coterie.forecast import (
    Autoscale,
    Change,
    Crashes,
    Deploy,
    GroupModel,
    Grow,
    InTurn,
    Nothing,
    Question,
    Scale,
    Slow,
    WorldCost,
    parse_group,
    simulate_group,
)
from coterie.forecast.simulated_group import simulate_owners

SETTINGS = {"session.timeout.ms": 10_000, "metadata.max.age.ms": 5_000}
CONSUMER = {"group.protocol": "consumer"}
STATIC = {"group.instance.id": "each"}


def model(**more: Any) -> GroupModel:
    about: dict[str, Any] = {
        "members": 3,
        "topics": {"t": {"partitions": 6, "records_per_s": 60}},
        "ms_per_record": 4,
        "restart_s": 4,
        "settings": SETTINGS,
    }
    return parse_group({**about, **more}, "test")


def cost(change: Change, seed: int = 1, *, settings: dict[str, str] | None = None, **more: Any) -> WorldCost:
    return simulate_group(Question(model(**more).with_settings(settings or {}), change), seed)


def test_the_same_seed_gives_the_same_costs_and_another_seed_others() -> None:
    first, again, other = (cost(Deploy(), seed) for seed in (1, 1, 2))
    assert first == again and first != other


def test_a_deploy_costs_two_rebalances_for_each_member_and_none_with_static_members() -> None:
    eager, static = cost(Deploy()), cost(Deploy(), settings=STATIC)
    assert eager.rebalances == 6 and eager.unassigned_s > 0
    assert eager.unread_s == pytest.approx(eager.unassigned_s, rel=0.2)  # nobody crashed: they differ by little
    assert static.rebalances == 0 and static.unassigned_s == 0
    assert static.unread_s == pytest.approx(6 * 4.0, rel=0.2), "each partition waits for the restart of its owner"
    assert static.records_delayed == pytest.approx(static.unread_s * 10, rel=0.01), "10 records/s for each partition"
    assert eager.duplicates == static.duplicates == 0, "members that close commit"


@pytest.mark.parametrize("settings", [{}, {"group.protocol": "consumer", "group.consumer.session.timeout.ms": "10000"}])
def test_a_crash_is_detected_when_the_session_ends_and_costs_duplicates(settings: dict[str, str]) -> None:
    found = cost(Crashes(restarts=False), settings=settings)
    assert found.detection_s is not None and 4.5 <= found.detection_s <= 10.5
    assert found.rebalances >= 1 and found.unread_s >= 2 * found.detection_s
    assert found.duplicates is not None and found.duplicates > 0, "what it had not committed is processed again"
    assert found.worst_lag_s is not None and found.worst_lag_s >= found.detection_s
    assert found.is_stable and found.evictions == 0


def test_a_member_that_stalls_for_longer_than_max_poll_interval_is_out() -> None:
    stall = Slow(stall_s=12)
    within, without = (cost(stall, settings={"max.poll.interval.ms": poll_ms}) for poll_ms in ("30000", "6000"))
    assert within.rebalances == within.evictions == 0
    assert without.evictions == 1 and without.rebalances == 2, "it leaves, and it comes back"
    assert without.duplicates is not None and without.duplicates > 0


def test_pauses_that_are_longer_than_the_session_cost_evictions() -> None:
    pauses = {"pause_s": 8, "pause_every_s": 60}
    short, usual = (
        cost(Nothing(5), settings={"session.timeout.ms": session_ms}, **pauses) for session_ms in ("6000", "30000")
    )
    assert short.evictions > 0 and short.rebalances >= short.evictions
    assert usual.evictions == 0 and usual.rebalances == 0


def test_new_partitions_are_unread_until_metadata_is_refreshed() -> None:
    found = cost(Grow("t", 8))
    assert found.rebalances >= 1 and 0 < found.unread_s <= 8 * 8
    assert found.is_stable
    with pytest.raises(CoterieError, match="it has 6"):
        cost(Grow("t", 6))


def test_more_members_and_fewer() -> None:
    more, fewer = cost(Scale(5)), cost(Scale(2))
    assert more.rebalances >= 1 and fewer.rebalances >= 1 and more.is_stable and fewer.is_stable


def test_an_autoscaler_adds_members_in_a_surge_and_removes_them_after_it() -> None:
    rule = Autoscale(threshold=100, every_s=10, cool_down_s=60, least=3, most=6, surge=20, surge_minutes=1, minutes=6)
    never = Autoscale(10**9, 10, 60, 3, 6, 20, 1, 6)
    with_it, without = cost(rule, ms_per_record=8), cost(never, ms_per_record=8)
    assert with_it.rebalances >= 2 and without.rebalances == 0
    assert with_it.worst_lag_s is not None and without.worst_lag_s is not None
    assert with_it.worst_lag_s < without.worst_lag_s


def test_a_group_that_cannot_keep_up_never_catches_up() -> None:
    found = cost(Scale(2), ms_per_record=45)  # 60 records/s need 2.7 members
    assert found.catch_up_s == inf


def test_without_records_nothing_is_said_about_lag() -> None:
    found = cost(Crashes(restarts=False), topics={"t": {"partitions": 6}})
    assert found.records_delayed is None and found.worst_lag_s is None and found.duplicates is None
    assert found.unread_s > 0
    with pytest.raises(CoterieError, match="records_per_s"):
        cost(Slow(), topics={"t": {"partitions": 6}})


def test_a_group_can_be_moved_to_the_consumer_protocol_by_a_deploy() -> None:
    found = cost(Deploy(settings=CONSUMER))
    assert found.is_stable and found.rebalances > 0


def test_changes_in_turn_cost_what_both_cost() -> None:
    both = cost(InTurn((Scale(4), Crashes(restarts=False))))
    assert both.detection_s is not None and both.rebalances >= 2


def test_the_owners_of_a_world_can_be_drawn() -> None:
    owners = simulate_owners(Question(model(), Deploy()), 1)
    assert {one.partition for one in owners.intervals} == {("t", number) for number in range(6)}
    assert len(owners.rebalances) == 6


@pytest.mark.parametrize(
    ("order", "wanted"), [("listed", ["c0.2", "c1.2", "c2.2"]), ("reversed", ["c2.2", "c1.2", "c0.2"])]
)
def test_members_are_deployed_in_the_order_that_was_asked_for(order: str, wanted: list[str]) -> None:
    joins = simulate_owners(Question(model(), Deploy(order=order)), 1).joins
    assert [one.client_id for one in joins if isinstance(one, MemberJoined)][3:] == wanted
