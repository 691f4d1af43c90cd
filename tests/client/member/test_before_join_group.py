"""Before a join (M3, M10)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from client.member.harness import GROUP, Harness, Party, tps
from coterie.assignors import CooperativeSticky, Sticky
from coterie.client.member.facts import AutoCommitFailed, CommitLeftOut, PreparationCutShort
from coterie.client.member.states import MemberState
from coterie.errors import ErrorCode, KafkaError
from coterie.protocol.messages import JoinedGroup, JoinGroup, OffsetCommit, OffsetsCommitted
from coterie.protocol.subscription import read_subscription

COOPERATIVE: dict[str, Any] = {"assignors": (CooperativeSticky(),)}


def committed(harness: Harness, partition: str) -> int:
    (one,) = tps(partition)
    group = harness.world.group(GROUP)
    assert group is not None
    return group.offsets[one.topic][one.partition].offset


def refuse(error: ErrorCode) -> Callable[[OffsetCommit], OffsetsCommitted]:
    def answer(request: OffsetCommit) -> OffsetsCommitted:
        return OffsetsCommitted(request.partitions, [error] * len(request.partitions))

    return answer


def joined(error: ErrorCode, request: JoinGroup) -> JoinedGroup:
    return JoinedGroup(error, request.member_id)


def read(party: Party, **positions: int) -> None:
    """`read(a, t0=5)`: poll has returned t-0 up to offset 4."""
    for name, at in positions.items():
        party.positions[tps(f"{name[:-1]}:{name[-1]}")[0]] = at


def test_an_eager_member_commits_then_gives_everything_up_then_joins(harness: Harness) -> None:
    """M3, in this order; what is about to be given up is not read on meanwhile."""
    (a,) = harness.stable("a")
    read(a, t0=7, t3=9)
    order: list[str] = []
    a.listener = lambda kind, _: order.append(f"{kind} with {committed(harness, 't:0')} committed")
    harness.party("b").joins("t")
    harness.settle()
    assert order[0] == "revoked with 7 committed" and committed(harness, "t:3") == 9
    kinds = [type(send.request).__name__ for _, send in a.sent]
    assert kinds.index("OffsetCommit") < len(kinds) - 1 - kinds[::-1].index("JoinGroup")
    assert a.told("revoked") == tps("t:0-3")


def test_partitions_are_held_while_they_are_committed(harness: Harness) -> None:
    """M3: a poll that returned more records between commit and revocation would have them read twice."""
    (a,) = harness.stable("a")
    read(a, t0=7)
    harness.delay_ms = lambda: 40
    a.wants_rebalance()
    assert a.held == tps("t:0-3")
    harness.settle()
    assert a.held == []


def test_without_auto_commit_nothing_is_committed(harness: Harness) -> None:
    """M3: only if enabled."""
    (a,) = harness.stable("a", enable_auto_commit=False)
    read(a, t0=7)
    a.wants_rebalance()
    harness.settle()
    assert not a.requests(OffsetCommit)


def test_a_commit_before_the_join_is_retried_and_then_the_rebalance_goes_on(harness: Harness) -> None:
    """M3: retriable errors are retried."""
    (a,) = harness.stable("a")
    read(a, t0=7)
    harness.refusals.extend((OffsetCommit, refuse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)) for _ in range(3))
    a.wants_rebalance()
    harness.settle()
    assert committed(harness, "t:0") == 7 and len(a.requests(OffsetCommit)) == 4


def test_a_commit_before_the_join_that_is_refused_does_not_stop_the_rebalance(harness: Harness) -> None:
    """M3: then go on whatever the result."""
    (a,) = harness.stable("a")
    read(a, t0=7)
    harness.refusals.append((OffsetCommit, refuse(ErrorCode.OFFSET_METADATA_TOO_LARGE)))
    a.wants_rebalance()
    harness.settle()
    assert "OFFSET_METADATA_TOO_LARGE" in a.fact(AutoCommitFailed).error
    assert a.member.generation_id == 2 and not a.errors


def test_a_commit_before_the_join_has_the_rebalance_timeout_and_no_more(harness: Harness) -> None:
    """M3: whoever waits longer is thrown out of the group for being late."""
    (a,) = harness.stable("a", session_timeout_ms=30_000, max_poll_interval_ms=20_000)
    read(a, t0=7)
    harness.refusals.extend((OffsetCommit, refuse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)) for _ in range(1_000))
    a.wants_rebalance()
    harness.advance(19_000)
    assert a.is_in(MemberState.PREPARING) and "the commit before the join" in a.member.explain(harness.now_ms)
    harness.advance(2_000)
    harness.refusals.clear()
    harness.settle()
    assert a.member.generation_id == 2
    assert not a.errors
    assert {type(fact) for fact in a.facts} & {PreparationCutShort, AutoCommitFailed}


def without(topic: str) -> Callable[[OffsetCommit], OffsetsCommitted]:
    """A coordinator whose cluster has no such topic any more."""

    def answer(request: OffsetCommit) -> OffsetsCommitted:
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return OffsetsCommitted(
            request.partitions, [unknown if one.topic == topic else ErrorCode.NONE for one in request.partitions]
        )

    return answer


def test_a_deleted_topic_is_left_out_of_the_commit_before_the_join(harness: Harness) -> None:
    """Better than Java, whose group waits for max.poll.interval.ms; two looks at the metadata are enough."""
    harness.has_topics(u=1)
    a, b = harness.stable("a", "b", topics=("t", "u"), max_poll_interval_ms=300_000)
    reads_u = a if tps("u:0")[0] in a.assigned else b
    for one in (a, b):
        one.positions = dict.fromkeys(one.assigned, 7)
    del harness.topics["u"]
    harness.refusals.extend((OffsetCommit, without("u")) for _ in range(1_000))
    harness.tell_topics()
    harness.settle(5_000)
    assert harness.owners().keys() == set(tps("t:0-3"))
    assert list(reads_u.fact(CommitLeftOut).partitions) == tps("u:0")
    assert {one.topic for one in reads_u.requests(OffsetCommit)[-1].partitions} == {"t"}
    assert not [fact for one in (a, b) for fact in one.facts if isinstance(fact, AutoCommitFailed)]


def test_a_topic_that_the_metadata_has_is_committed_when_the_coordinator_knows_it(harness: Harness) -> None:
    """Brokers hear of a new topic one after the other."""
    (a,) = harness.stable("a")
    read(a, t0=7)
    harness.refusals.extend((OffsetCommit, without("t")) for _ in range(4))
    a.wants_rebalance()
    harness.settle()
    assert committed(harness, "t:0") == 7 and len(a.requests(OffsetCommit)) == 5


def test_a_cooperative_member_keeps_what_it_owns_while_it_joins(harness: Harness) -> None:
    """M3, KIP-429: it gives up only topics it no longer wants, and says in its join what it still owns."""
    harness.has_topics(u=2)
    (a,) = harness.stable("a", topics=("t", "u"), **COOPERATIVE)
    a.calls.clear()
    a.subscribes("t")
    harness.advance(2)
    assert a.calls == [("revoked", tps("u:0-1"))]
    assert set(a.member.assigned) == set(tps("t:0-3"))
    harness.settle()
    said = read_subscription(a.requests(JoinGroup)[-1].protocols[0].metadata)
    assert said.owned == {"t": [0, 1, 2, 3]} and said.generation_id == 1 and list(said.topics) == ["t"]
    assert a.calls == [("revoked", tps("u:0-1")), ("assigned", [])], "assigned is called also if nothing is new"


def test_what_a_lost_member_owned_is_lost_and_not_revoked(harness: Harness) -> None:
    """M3: generation or id already gone: somebody else may be reading, so it is too late to commit."""
    (a,) = harness.stable("a")
    a.ends_poll()
    harness.world.crash()
    harness.world.log.clear()
    harness.world.crash()
    harness.advance(4_000)
    assert a.is_in(MemberState.UNJOINED) and not a.member.member_id
    assert a.told("lost") == [], "the user is not here to be told"
    a.begins_poll()
    harness.settle()
    assert a.calls[1:] == [("lost", tps("t:0-3")), ("assigned", tps("t:0-3"))]


def test_the_preparation_runs_once_however_often_the_join_is_repeated(harness: Harness) -> None:
    """M10."""
    (a,) = harness.stable("a")
    read(a, t0=7)
    for error in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR, ErrorCode.REBALANCE_IN_PROGRESS):
        harness.refusals.append((JoinGroup, lambda request, error=error: joined(error, request)))
    a.wants_rebalance()
    harness.settle()
    assert len(a.requests(OffsetCommit)) == 1
    assert [kind for kind, _ in a.calls] == ["assigned", "revoked", "assigned"]


def test_an_error_for_the_caller_of_poll_does_not_make_it_prepare_again(harness: Harness) -> None:
    """M10: the next poll goes on with the join."""
    (a,) = harness.stable("a")
    harness.refusals.append((JoinGroup, lambda request: joined(ErrorCode.GROUP_MAX_SIZE_REACHED, request)))
    a.wants_rebalance()
    harness.advance(5_000)
    assert a.is_in(MemberState.UNJOINED) and len(a.errors) == 1, "one error, and no hammering at the coordinator"
    a.ends_poll().begins_poll()
    harness.settle()
    assert [kind for kind, _ in a.calls] == ["assigned", "revoked", "assigned"]


def test_a_rebalance_begins_only_when_the_user_polls(harness: Harness) -> None:
    """M1, M3: what poll returned is processed when poll is called again; committing it earlier would lose records."""
    (a,) = harness.stable("a")
    read(a, t0=7)
    a.ends_poll()
    harness.party("b").joins("t")
    harness.advance(8_000)
    assert not a.requests(OffsetCommit) and len(a.requests(JoinGroup)) == 2
    assert "it wants to rejoin: group is already rebalancing" in a.member.explain(harness.now_ms)
    a.begins_poll()
    harness.settle()
    assert committed(harness, "t:0") == 7


def test_what_is_lost_during_the_preparation_is_lost_and_not_revoked(harness: Harness) -> None:
    """M3: the heartbeat hears of it while the commit is under way."""
    (a,) = harness.stable("a")
    read(a, t0=7)
    harness.refusals.extend((OffsetCommit, refuse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)) for _ in range(100))
    a.wants_rebalance()
    harness.world.log.clear()
    harness.world.crash()
    harness.advance(4_000)
    harness.refusals.clear()
    harness.settle()
    assert a.told("lost") == tps("t:0-3") and a.told("revoked") == []


def test_a_pattern_is_matched_with_fresh_metadata_before_the_join(harness: Harness) -> None:
    """M5: one new topic costs one rebalance, not one for every member that hears of it."""
    a = harness.party("a").joins(pattern=re.compile("t.*"))
    harness.settle()
    assert set(a.member.assigned) == set(tps("t:0-3")) and a.watched is None
    harness.topics["tt"] = harness.topics["t"]  # nobody is told
    a.wants_rebalance()
    harness.settle()
    assert set(a.member.assigned) == set(tps("t:0-3", "tt:0-3"))


def test_metadata_that_cannot_be_had_for_a_pattern_is_asked_for_again(harness: Harness) -> None:
    """M2, M5: retriable: back off; else the caller of poll gets it."""
    harness.metadata_error = KafkaError("no", ErrorCode.NETWORK_EXCEPTION)
    a = harness.party("a").joins(pattern=re.compile("t"))
    harness.advance(3_000)
    assert not a.errors
    harness.metadata_error = KafkaError("no rights")
    harness.advance(3_000)
    assert [str(error) for error in a.errors] == ["no rights"]
    harness.metadata_error = None
    a.ends_poll().begins_poll()
    harness.settle()


def test_sticky_members_say_what_they_had_although_they_gave_it_up(harness: Harness) -> None:
    """M3: an eager join owns nothing; what the sticky assignor needs to know travels in its user data."""
    a, b = harness.stable("a", "b", assignors=(Sticky(),))
    before = {name: set(party.member.assigned) for name, party in harness.parties.items()}
    b.closes()
    harness.advance(4_000)
    harness.settle()
    assert before["a"] <= set(a.member.assigned)
    assert not read_subscription(a.requests(JoinGroup)[-1].protocols[0].metadata).owned
