"""A member says what it is doing, what it waits for and since when, at any time."""

from __future__ import annotations

import pytest

from client.member.room import Party, Room, tps
from coterie.client.member.states import DOING, Stage
from coterie.errors import ErrorCode, KafkaError
from coterie.protocol.messages import JoinGroup, OffsetCommit, SyncGroup


def said(party: Party) -> str:
    return party.member.explain(party.room.now_ms)


def test_a_life_in_words(room: Room) -> None:
    """M1 to M14, as a person who looks at it sees them."""
    a = room.party("a", group_instance_id="one")
    assert said(a) == (
        'a consumer without a member id (instance "one") of group "readers" is in no rebalance, for 0 s; '
        "it waits for a subscription."
    )
    a.subscribes("t")
    room.advance(2_000)
    assert said(a).endswith("is in no rebalance, for 2 s; it waits for poll to be called.")
    room.lookup_error = KafkaError("no", ErrorCode.COORDINATOR_NOT_AVAILABLE)
    a.begins_poll()
    assert "it waits for the coordinator to be found" in said(a)
    room.advance(2_000)
    assert "lookups of the coordinator have failed; the next one" in said(a)
    room.lookup_error = None
    room.refusals.append((SyncGroup, None))
    room.advance(2_000)
    assert "waits for the coordinator to answer its sync, which it does when the leader has assigned" in said(a)
    room.disconnect(a)
    room.settle()
    assert said(a).startswith(f'member "{a.member.member_id}"') and "generation 2, 4 partitions." in said(a)
    a.ends_poll()
    room.advance(7_000)
    assert said(a).endswith("it waits for the next poll (the last one ended 7 s ago).")
    a.wants_rebalance("because")
    assert said(a).endswith("it waits for poll to be called; it wants to rejoin: because.")
    room.refusals.append((OffsetCommit, None))
    a.positions[tps("t:0")[0]] = 5
    a.begins_poll()
    room.advance(10)
    assert "it waits for the commit before the join; 1 pending_requests are under way (commit before the join)" in said(
        a
    )


def test_who_waits_for_others_says_so(room: Room) -> None:
    """M4."""
    _, b = room.stable("a", "b")
    b.ends_poll()
    c = room.party("c").joins("t")
    room.advance(5_000)
    assert "answer its join, which it does when every member has joined or their time is up" in said(c)


def test_a_back_off_is_said(room: Room) -> None:
    """M4."""
    a = room.party("a").joins("t")
    room.refusals.extend(
        (JoinGroup, lambda request: room.refusal(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)) for _ in range(9)
    )
    room.advance(1_000)
    assert "it waits for a back-off to end: 4 attempts have failed" in said(a)


def test_a_listener_that_is_being_called_is_named(room: Room) -> None:
    """M14."""
    a = room.party("a")
    a.holds_listener = True
    a.joins("t")
    room.advance(3_000)
    assert "it waits for the rebalance listener to return (assigned)" in said(a)


@pytest.mark.parametrize("stage", Stage)
def test_every_stage_has_words(stage: Stage, room: Room) -> None:
    """So that nobody has to look up a name."""
    a = room.party("a")
    a.member.stage = stage
    assert DOING[stage] in said(a)
