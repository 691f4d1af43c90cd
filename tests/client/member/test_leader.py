"""Leading a rebalance (M5), and assignors that raise or answer nonsense."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from client.member.harness import Harness, tps
from coterie.assignors import Assignment, Assignor, CooperativeSticky, Member, Range, Topic
from coterie.client.member.states import AssignorError, MemberState
from coterie.errors import ErrorCode, KafkaError
from coterie.protocol.messages import JoinedGroup, JoinedMember, JoinGroup, SyncedGroup, SyncGroup


class Custom(Assignor):
    name = "custom"

    def __init__(self, answer: Callable[[Sequence[Member]], Any], *, cooperative: bool = False) -> None:
        self.answer = answer
        self.cooperative = cooperative

    def assign(self, members: Sequence[Member], topics: Mapping[str, Topic]) -> Assignment:  # noqa: ARG002
        found: Assignment = self.answer(members)
        return found


def test_the_leader_assigns_topics_it_does_not_subscribe_to(harness: Harness) -> None:
    """M5, M14: members may subscribe to different topics; the leader needs the metadata of all of them."""
    harness.has_topics(u=2)
    a = harness.party("a").joins("t")
    b = harness.party("b").joins("u")
    harness.settle()
    assert a.member.snapshot is not None and set(a.member.snapshot) == {"t", "u"}
    assert set(a.watched or ()) == {"t", "u"} and set(b.watched or ()) == {"u"}
    assert set(b.member.assigned) == set(tps("u:0-1")) and set(a.member.assigned) == set(tps("t:0-3"))


def test_the_leader_rejoins_when_partitions_appear_in_anybodys_topic(harness: Harness) -> None:
    """M5: and nobody else needs to know."""
    harness.has_topics(u=2)
    harness.party("a").joins("t")
    b = harness.party("b").joins("u")
    harness.settle()
    harness.has_topics(u=3)
    harness.advance(5_000)
    harness.settle()
    assert set(b.member.assigned) == set(tps("u:0-2"))
    assert harness.world.ledger.rebalances_of("readers")[-1].reason == "cached metadata has changed"


def test_a_topic_that_is_created_and_one_that_is_deleted_start_a_rebalance(harness: Harness) -> None:
    """M5."""
    (a,) = harness.stable("a", topics=("t", "later"))
    assert set(a.member.assigned) == set(tps("t:0-3"))
    harness.has_topics(later=1)
    harness.settle()
    assert set(a.member.assigned) == set(tps("t:0-3", "later:0"))
    del harness.topics["t"]
    harness.tell_topics()
    harness.settle()
    assert set(a.member.assigned) == set(tps("later:0"))


def test_metadata_that_is_only_repeated_starts_nothing(harness: Harness) -> None:
    """M5: a leader that rejoined on every refresh would never rest."""
    (a,) = harness.stable("a")
    for _ in range(5):
        harness.tell_topics()
        harness.advance(1_000)
    assert a.member.generation_id == 1


def test_racks_that_move_count_only_for_members_that_have_one(harness: Harness) -> None:
    """M5, KIP-881."""
    harness.topics["t"] = Topic(2, [{"r1"}, {"r2"}])
    (a,) = harness.stable("a", client_rack="r1")
    harness.topics["t"] = Topic(2, [{"r2"}, {"r1"}])
    harness.tell_topics()
    harness.settle()
    assert a.member.generation_id == 2
    other = Harness()
    other.topics["t"] = Topic(2, [{"r1"}, {"r2"}])
    (b,) = other.stable("b")
    other.topics["t"] = Topic(2, [{"r2"}, {"r1"}])
    other.tell_topics()
    other.settle()
    assert b.member.generation_id == 1


def test_a_member_that_stops_leading_stops_watching_the_topics_of_others(harness: Harness) -> None:
    """M5."""
    harness.has_topics(u=2)
    a = harness.party("a").joins("t")
    b = harness.party("b").joins("u")
    harness.settle()
    a.unsubscribes()
    harness.advance(100)
    assert a.watched == frozenset()
    a.subscribes("t")
    harness.advance(5_000)
    harness.settle()
    assert set(a.watched or ()) == {"t"} and set(b.watched or ()) == {"t", "u"}, "b leads now"


def test_a_new_topic_that_matches_a_pattern_is_joined_for(harness: Harness) -> None:
    """M5: whoever hears of it first, leader or not."""
    a, b = (harness.party(name).joins(pattern=re.compile("logs[.].*")) for name in "ab")
    harness.settle()
    assert not a.member.assigned and not b.member.assigned
    harness.topics["logs.x"] = Topic(2)
    harness.topics["mylogs.x"] = Topic(2)
    b.hears_of_topics()
    harness.advance(5_000)
    harness.settle()
    assert a.member.assigned | b.member.assigned == set(tps("logs.x:0-1")), "the whole name matches, or it does not"
    assert a.member.generation_id == b.member.generation_id


def test_a_returning_static_leader_watches_and_syncs_with_an_empty_list(harness: Harness) -> None:
    """M5, KIP-814: skip_assignment."""
    (a,) = harness.stable("a", group_instance_id="i")
    a.closes()
    harness.advance(100)
    (b,) = harness.stable("b", group_instance_id="i")
    assert b.requests(SyncGroup)[-1].assignments == ()
    assert b.member.generation_id == 1 and set(b.member.assigned) == set(tps("t:0-3"))
    harness.has_topics(t=5)
    harness.settle()
    assert set(b.member.assigned) == set(tps("t:0-4")), "it watches, and rejoins as the leader it is"


def test_metadata_the_leader_cannot_get_is_asked_for_again(harness: Harness) -> None:
    """M5: a retriable error is no reason to assign without it."""
    harness.metadata_error = KafkaError("no", ErrorCode.NETWORK_EXCEPTION)
    a = harness.party("a").joins("t")
    harness.advance(2_000)
    assert a.is_in(MemberState.LEADING) and not a.errors
    assert "back-off" in a.member.explain(harness.now_ms)
    harness.metadata_error = None
    harness.settle()
    assert len(a.member.assigned) == 4


def test_metadata_the_leader_may_not_have_is_the_callers_error(harness: Harness) -> None:
    """M5."""
    harness.metadata_error = KafkaError("not allowed", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    a = harness.party("a").joins("t")
    harness.advance(2_000)
    assert [str(error) for error in a.errors] == ["not allowed"] and a.is_in(MemberState.UNJOINED)


def assigned_by(answer: Callable[[Sequence[Member]], Any]) -> Harness:
    harness = Harness({"t": 4, "u": 1})
    harness.party("a", assignors=(Custom(answer),)).joins("t")
    harness.advance(2_000)
    return harness


def raises(_members: Sequence[Member]) -> Assignment:
    raise ZeroDivisionError("the lag is zero")


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (raises, "the lag is zero"),
        (lambda _: None, "NoneType"),
        (lambda members: {members[0].id: [("t", 0)]}, "cannot be read"),
        (lambda members: {members[0].id: {"t": ["0"]}}, "cannot be read"),
        (lambda _: {"ghost": {"t": [0]}}, 'no member "ghost"'),
        (lambda members: {members[0].id: {"t": [0, 4]}}, 'topic "t" has no partition 4'),
        (lambda members: {members[0].id: {"t": [-1]}}, "no partition -1"),
        (lambda members: {members[0].id: {"t": [0, 1, 0]}}, "t-0 is given to"),
        (lambda members: {members[0].id: {"u": [0]}}, 'does not subscribe to topic "u"'),
    ],
)
def test_an_assignor_that_raises_or_answers_nonsense_is_the_callers_error(answer: Any, says: str) -> None:
    """M5, M14: a clear error for the caller of poll, never a hang, and nobody is given anything."""
    harness = assigned_by(answer)
    a = harness.parties["a"]
    (error,) = a.errors
    assert isinstance(error, AssignorError) and says in str(error) and '"custom"' in str(error)
    assert not a.requests(SyncGroup) and not a.member.assigned
    a.ends_poll().begins_poll()
    harness.advance(2_000)
    assert len(a.errors) == 2, "the next poll tries again, and says it again"
    a.closes()
    harness.advance(100)
    assert a.is_in(MemberState.CLOSED)
    (b,) = harness.stable("b", assignors=(Range(),))
    assert len(b.member.assigned) == 4, "the group is rid of it"


def test_a_member_the_assignor_forgets_gets_nothing(harness: Harness) -> None:
    """Rule 11: left out, it would get bytes that are no assignment; so the leader writes an empty one."""
    only_first = Custom(lambda members: {members[0].id: {"t": range(4)}})
    a = harness.party("a", assignors=(only_first,)).joins("t")
    b = harness.party("b", assignors=(only_first,)).joins("t")
    harness.settle()
    assert sorted([len(a.member.assigned), len(b.member.assigned)]) == [0, 4] and not (a.errors or b.errors)


def test_a_cooperative_assignor_that_takes_too_early_is_refused(harness: Harness) -> None:
    """KIP-429: what somebody still owns is first given to nobody."""
    to_last = Custom(lambda members: {max(one.id for one in members): {"t": range(4)}}, cooperative=True)
    a = harness.party("a", assignors=(to_last,)).joins("t")
    harness.settle()
    harness.party("b", assignors=(to_last,)).joins("t")
    harness.advance(10_000)
    assert "still owns it" in str(a.errors[0]) and len(a.member.assigned) == 4


def test_cooperative_sticky_may_hand_out_what_only_a_stale_claim_holds(harness: Harness) -> None:
    """KIP-792: it looks at the generations itself."""
    a, b = harness.stable("a", "b", assignors=(CooperativeSticky(),))
    harness.settle()
    assert not a.errors and not b.errors
    assert sorted(a.member.assigned | b.member.assigned) == tps("t:0-3")


def test_a_member_of_the_group_that_is_no_consumer_is_the_leaders_error(harness: Harness) -> None:
    """M5: its subscription cannot be read."""
    a = harness.party("a").joins("t")
    others = [JoinedMember("a", None, b"\0"), JoinedMember("x", None, b"junk")]
    harness.refusals.append((JoinGroup, JoinedGroup(ErrorCode.NONE, "a", 1, "consumer", "range", "a", others)))
    harness.advance(100)
    assert isinstance(a.errors[0], AssignorError) and "malformed" in str(a.errors[0])


def test_an_assignment_that_cannot_be_read_is_the_members_error(harness: Harness) -> None:
    """M6: the leader's assignor left it out, or is of another kind."""
    a = harness.party("a").joins("t")
    harness.refusals.append((SyncGroup, SyncedGroup(ErrorCode.NONE, b"")))
    harness.advance(100)
    assert isinstance(a.errors[0], AssignorError) and "cannot be read" in str(a.errors[0])
    a.ends_poll().begins_poll()
    harness.settle()


@pytest.mark.parametrize("where", ["user_data", "on_assignment"])
def test_what_an_assignor_raises_elsewhere_reaches_the_caller_of_poll(where: str, harness: Harness) -> None:
    """M6, M14: user data is needed to join; on_assignment is only told."""

    def fails(*_args: Any) -> None:
        raise ValueError("oh")

    assignor = Range()
    setattr(assignor, where, fails)
    a = harness.party("a", assignors=(assignor,)).joins("t")
    harness.advance(2_000)
    (error,) = a.errors
    assert isinstance(error, AssignorError) and isinstance(error.__cause__, ValueError)
    assert a.is_in(MemberState.UNJOINED if where == "user_data" else MemberState.STABLE)
