"""A member says what it is doing, what it waits for and since when, at any time."""

from __future__ import annotations

import pytest

from client.member.harness import Harness, Party, tps
from coterie.client.member.states import DOING, MemberState
from coterie.errors import ErrorCode, KafkaError
from coterie.protocol.messages import JoinGroup, OffsetCommit, SyncGroup


def said(party: Party) -> str:
    return party.member.explain(party.harness.now_ms)


def test_a_life_in_words(harness: Harness) -> None:
    """M1 to M14, as a person who looks at it sees them."""
    a = harness.party("a", group_instance_id="one")
    assert said(a) == (
        'a consumer without a member id (instance "one") of group "readers" is Unjoined: it is not '
        "taking part in a rebalance; it waits for a subscription."
    )
    a.subscribes("t")
    harness.advance(2_000)
    assert said(a).endswith("it is not taking part in a rebalance; it waits for the next poll.")
    harness.lookup_error = KafkaError("no", ErrorCode.COORDINATOR_NOT_AVAILABLE)
    a.begins_poll()
    assert "it waits for the answer to FindCoordinator" in said(a)
    harness.advance(2_000)
    assert "it waits for the next FindCoordinator request (" in said(a)
    harness.lookup_error = None
    harness.refusals.append((SyncGroup, None))
    harness.advance(2_000)
    assert "waits for the answer to SyncGroup, which comes when the leader has assigned the partitions" in said(a)
    harness.disconnect(a)
    harness.settle()
    assert said(a).startswith(f'member "{a.member.member_id}"') and "generation 2, 4 partitions." in said(a)
    a.ends_poll()
    harness.advance(7_000)
    assert said(a).endswith("it waits for the next poll (the last one ended 7 s ago).")
    a.wants_rebalance("because")
    assert said(a).endswith("it waits for the next poll; it wants to rejoin: because.")
    harness.refusals.append((OffsetCommit, None))
    a.positions[tps("t:0")[0]] = 5
    a.begins_poll()
    harness.advance(10)
    assert "it waits for the commit before the join; 1 request pending (commit before the join)" in said(a)


def test_who_waits_for_others_says_so(harness: Harness) -> None:
    """M4."""
    _, b = harness.stable("a", "b")
    b.ends_poll()
    c = harness.party("c").joins("t")
    harness.advance(5_000)
    assert "the answer to JoinGroup, which comes when all members have joined or the rebalance timeout is over" in said(
        c
    )


def test_a_back_off_is_said(harness: Harness) -> None:
    """M4."""
    a = harness.party("a").joins("t")
    harness.refusals.extend(
        (JoinGroup, lambda request: harness.refusal(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)) for _ in range(9)
    )
    harness.advance(1_000)
    assert "it waits for the end of a back-off after 4 failed attempts" in said(a)


def test_a_listener_that_is_being_called_is_named(harness: Harness) -> None:
    """M14."""
    a = harness.party("a")
    a.holds_listener = True
    a.joins("t")
    harness.advance(3_000)
    assert "it waits for the rebalance listener to return (assigned)" in said(a)


@pytest.mark.parametrize("stage", MemberState)
def test_every_stage_has_words(stage: MemberState, harness: Harness) -> None:
    """So that nobody has to look up a name."""
    a = harness.party("a")
    a.member.state = stage
    assert DOING[stage] in said(a)
