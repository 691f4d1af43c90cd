"""Taking an assignment (M6, M10), and the generation it belongs to (M14)."""

from __future__ import annotations

import re
from typing import Any

from client.member.harness import Harness, Party, tps
from coterie.assignors import CooperativeSticky
from coterie.client.member.facts import AssignmentTaken
from coterie.client.member.states import MemberState
from coterie.errors import ErrorCode
from coterie.protocol.messages import Heartbeat, JoinGroup, SyncedGroup, SyncGroup
from coterie.protocol.subscription import Assignment, write_assignment

COOPERATIVE: dict[str, Any] = {"assignors": (CooperativeSticky(),)}


def assignment_of(**partitions: list[int]) -> SyncedGroup:
    return SyncedGroup(ErrorCode.NONE, write_assignment(Assignment(partitions)))


def test_a_cooperative_member_gives_up_what_is_gone_and_rejoins_at_once(harness: Harness) -> None:
    """M6, KIP-429: two rebalances, and what stays is never given up."""
    (a,) = harness.stable("a", **COOPERATIVE)
    (b,) = harness.stable("b", **COOPERATIVE)
    harness.settle()
    assert [kind for kind, _ in a.calls] == ["assigned", "revoked", "assigned", "assigned"]
    gone = a.told("revoked")
    assert len(gone) == 2 and set(b.member.assigned) == set(gone)
    assert a.calls[0] == ("assigned", tps("t:0-3"))
    assert a.calls[2:] == [("assigned", [])] * 2, "only added ones, also if none"
    reasons = [join.reason for join in a.requests(JoinGroup)]
    assert reasons[-2:] == ["group is already rebalancing", "need to revoke partitions and re-join"]


def test_only_added_partitions_need_a_position(harness: Harness) -> None:
    """M6: committed offsets are fetched for these; the others are read on without a gap."""
    a, b = harness.stable("a", "b", **COOPERATIVE)
    harness.settle()
    a.positions.update(dict.fromkeys(a.assigned, 5))
    mine = list(a.assigned)
    b.closes()
    harness.advance(4_000)
    harness.settle()
    assert len(a.assigned) == 4 and {one for one in a.assigned if one in a.positions} == set(mine)
    taken = a.fact(AssignmentTaken)
    assert set(taken.added) == set(tps("t:0-3")) - set(mine)


def test_partitions_change_hands_after_the_revocation_and_before_the_assignment(harness: Harness) -> None:
    """M6: the listener that is told of the revocation still owns them."""
    (a,) = harness.stable("a")
    seen: list[tuple[str, int]] = []
    a.listener = lambda kind, _: seen.append((kind, len(a.assigned)))
    harness.stable("b")
    assert seen == [("revoked", 4), ("assigned", 2)]


def test_an_assignment_outside_the_subscription_is_not_taken(harness: Harness) -> None:
    """M6: the subscription has changed since the join: rejoin."""
    harness.has_topics(u=1)
    (a,) = harness.stable("a")
    harness.refusals.append((SyncGroup, assignment_of(u=[0])))
    harness.has_topics(t=5)  # a reason to rebalance
    harness.advance(50)
    harness.settle()
    assert ("assigned", tps("u:0")) not in a.calls
    assert a.requests(JoinGroup)[-1].reason == "received assignment does not match the current subscription"
    assert set(a.member.assigned) == set(tps("t:0-4"))


def test_a_subscription_that_changes_while_it_joins_is_joined_for_again(harness: Harness) -> None:
    """M6: nothing gets lost, whenever it changes."""
    harness.has_topics(u=2)
    harness.stable("a")
    b = harness.party("b").joins("t")
    harness.advance(20)
    assert b.is_in(MemberState.JOINING)
    b.subscribes("u")
    harness.advance(5_000)
    harness.settle()
    assert set(b.member.assigned) == set(tps("u:0-1"))


def test_a_pattern_member_obeys_a_leader_that_has_seen_more(harness: Harness) -> None:
    """M6: topics that match but that it had not heard of are taken, without another rebalance."""
    a = harness.party("a").joins(pattern=re.compile("t.*"))
    harness.settle()
    harness.refusals.append((SyncGroup, assignment_of(t=[0], tea=[1])))
    harness.topics["t"] = harness.topics["t"].__class__(5)
    harness.tell_topics()
    harness.advance(20)
    assert set(a.member.assigned) == set(tps("t:0", "tea:1")) and "tea" in a.member.topics
    assert a.is_in(MemberState.STABLE) and a.member.reason_to_rejoin is None


def polled_away(harness: Harness) -> Party:
    """A member whose assignment has come while the user was elsewhere."""
    (a,) = harness.stable("a")
    b = harness.party("b").joins("t")
    harness.advance(20)
    b.ends_poll()
    harness.advance(4_000)
    assert b.is_in(MemberState.COMPLETING) and not b.calls and a.is_in(MemberState.STABLE)
    return b


def test_an_assignment_waits_for_the_user_to_poll(harness: Harness) -> None:
    """M6: the listener is called in poll, and nothing is taken without it."""
    b = polled_away(harness)
    assert "it waits for the next poll" in b.member.explain(harness.now_ms)
    b.begins_poll()
    harness.settle()
    assert len(b.told("assigned")) == 2


def test_an_assignment_whose_generation_is_lost_before_the_callback_is_forgotten(harness: Harness) -> None:
    """M10: if the heartbeat has changed the generation before the callback runs: rejoin, no callback."""
    b = polled_away(harness)
    harness.refusals.append((Heartbeat, ErrorCode.UNKNOWN_MEMBER_ID))
    harness.refusals.append((Heartbeat, ErrorCode.UNKNOWN_MEMBER_ID))
    harness.advance(4_000)
    assert b.is_in(MemberState.UNJOINED)
    harness.refusals.clear()
    b.begins_poll()
    harness.advance(8_000)
    harness.settle()
    assert [kind for kind, _ in b.calls] == ["assigned"], "once, of the new generation"


def test_a_generation_that_is_lost_while_it_syncs_is_not_taken(harness: Harness) -> None:
    """M10, KAFKA-9823: the answer to the sync belongs to an older life."""
    a = harness.party("a").joins("t")
    harness.refusals.append((SyncGroup, None))
    harness.advance(4_000)
    assert a.is_in(MemberState.SYNCING)
    beat, sync = a.sent[-1][1], a.sent[-2][1]
    assert isinstance(beat.request, Heartbeat) and isinstance(sync.request, SyncGroup)
    a.ends_poll()
    beat.then.reply = ErrorCode.ILLEGAL_GENERATION
    a.handle(beat.then)
    assert a.is_in(MemberState.UNJOINED) and a.member.member_id and a.member.generation_id == -1
    sync.then.reply = assignment_of(t=[0, 1, 2, 3])
    a.handle(sync.then)
    a.begins_poll()
    assert not a.calls and a.is_in(MemberState.JOINING)


def test_each_partition_has_at_most_one_owner_in_a_generation(harness: Harness) -> None:
    """M14."""
    for name in "abcdef":
        harness.stable(name)
        harness.advance(5_000)
        harness.settle()
    assert len({party.member.generation_id for party in harness.parties.values()}) == 1
    assert all(len(names) == 1 for names in harness.owners().values()) and len(harness.owners()) == 4


def test_a_sync_answered_with_another_protocol_is_refused(harness: Harness) -> None:
    """M12: name and type must be those of the join."""
    a = harness.party("a").joins("t")
    harness.refusals.append((SyncGroup, SyncedGroup(ErrorCode.NONE, b"", "consumer", "sticky")))
    harness.advance(100)
    assert "INCONSISTENT_GROUP_PROTOCOL" in str(a.errors[0]) and '"sticky"' in str(a.errors[0])
