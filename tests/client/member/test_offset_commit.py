"""Committing (M7), asking for what is committed (M6), and auto-commit (M3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from client.member.harness import GROUP, Harness, Party, tps
from coterie.client.member.facts import AutoCommitFailed, CommitLeftOut
from coterie.client.member.states import MemberState
from coterie.client.types import OffsetAndMetadata, TopicPartition
from coterie.errors import (
    AuthorizationError,
    CommitFailedError,
    ErrorCode,
    FencedInstanceError,
    KafkaError,
    RebalanceInProgressError,
    RequestTimedOutError,
)
from coterie.protocol.messages import (
    FetchedOffset,
    JoinGroup,
    OffsetCommit,
    OffsetFetch,
    OffsetsCommitted,
    OffsetsFetched,
)

T0, T1, T2, T3 = tps("t:0-3")


def refuse(*errors: ErrorCode) -> Callable[[OffsetCommit], OffsetsCommitted]:
    def answer(request: OffsetCommit) -> OffsetsCommitted:
        return OffsetsCommitted(
            request.partitions, [*errors, *[errors[-1]] * len(request.partitions)][: len(request.partitions)]
        )

    return answer


def committed(harness: Harness) -> dict[int, int]:
    group = harness.world.group(GROUP)
    assert group is not None
    return {partition: one.offset for partition, one in group.offsets.get("t", {}).items()}


def quiet(harness: Harness, name: str = "a", **settings: Any) -> Party:
    (party,) = harness.stable(name, enable_auto_commit=False, **settings)
    return party


def test_a_commit_carries_the_generation_and_the_id(harness: Harness) -> None:
    """M7."""
    a = quiet(harness, group_instance_id="i")
    token = a.commits_offsets({T1: 5, T0: 3})
    harness.advance(5)
    assert a.commits == {token: None} and committed(harness) == {0: 3, 1: 5}
    (commit,) = a.requests(OffsetCommit)
    assert (commit.generation_id, commit.member_id, commit.instance_id) == (1, a.member.member_id, "i")


def test_an_empty_commit_is_done_at_once(harness: Harness) -> None:
    """M7: nobody has to be asked."""
    a = harness.party("a")
    token = a.commits_offsets({})
    assert a.commits == {token: None}


def test_a_commit_while_the_group_rebalances_makes_the_member_rejoin(harness: Harness) -> None:
    """M7: REBALANCE_IN_PROGRESS → rejoin, tell the caller."""
    a = quiet(harness)
    harness.refusals.append((OffsetCommit, refuse(ErrorCode.REBALANCE_IN_PROGRESS)))
    token = a.commits_offsets({T0: 3}, within_ms=5_000)
    harness.advance(50)
    assert isinstance(a.commits[token], RebalanceInProgressError) and "Poll until it has ended" in str(a.commits[token])
    harness.settle()
    assert a.requests(JoinGroup)[-1].reason == "offset commit failed since group is already rebalancing"
    assert a.member.generation_id == 2 and a.told("lost") == []


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
def test_a_commit_of_a_member_that_is_out_fails_and_resets(code: ErrorCode, harness: Harness) -> None:
    """M7: reset and CommitFailed; ILLEGAL_GENERATION keeps the id."""
    a = quiet(harness)
    a.ends_poll()
    harness.refusals.append((OffsetCommit, refuse(code)))
    token = a.commits_offsets({T0: 3}, within_ms=5_000)
    harness.advance(50)
    assert isinstance(a.commits[token], CommitFailedError) and "max.poll.interval.ms" in str(a.commits[token])
    assert a.is_in(MemberState.UNJOINED) and bool(a.member.member_id) is (code is ErrorCode.ILLEGAL_GENERATION)


@pytest.mark.parametrize(
    "code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID]
)
def test_a_refusal_that_comes_when_a_newer_rebalance_is_under_way_resets_nothing(
    code: ErrorCode, harness: Harness
) -> None:
    """M7, KAFKA-9823: only "rebalance in progress"."""
    a = quiet(harness)
    b = quiet(harness, "b")
    harness.settle()
    harness.refusals.append((OffsetCommit, None))
    token = a.commits_offsets({T0: 3})
    harness.advance(5)
    (commit,) = [send for _, send in a.sent if isinstance(send.request, OffsetCommit)]
    a.connections.clear()
    b.ends_poll()
    a.wants_rebalance()
    harness.advance(20)
    assert a.is_in(MemberState.JOINING)
    commit.then.reply = refuse(code)(commit.request)  # type: ignore[arg-type]
    a.handle(commit.then)
    assert isinstance(a.commits[token], RebalanceInProgressError)
    assert a.is_in(MemberState.JOINING) and a.member.member_id


def test_a_refusal_of_an_older_generation_leaves_the_newer_one_alone(harness: Harness) -> None:
    """M4, KAFKA-9823: the commit failed, and that is all; Kafka's own client would drop the good generation."""
    a = quiet(harness)
    harness.refusals.append((OffsetCommit, None))
    token = a.commits_offsets({T0: 3})
    harness.advance(5)
    (commit,) = [send for _, send in a.sent if isinstance(send.request, OffsetCommit)]
    a.connections.clear()
    a.wants_rebalance()
    harness.settle()
    commit.then.reply = refuse(ErrorCode.ILLEGAL_GENERATION)(commit.request)  # type: ignore[arg-type]
    a.handle(commit.then)
    assert isinstance(a.commits[token], CommitFailedError)
    assert a.is_in(MemberState.STABLE) and a.member.generation_id == 2


def test_nothing_can_be_committed_between_the_join_and_the_assignment(harness: Harness) -> None:
    """M7: the coordinator would refuse it; poll repairs it."""
    a, b = quiet(harness), quiet(harness, "b")
    harness.settle()
    b.ends_poll()
    a.wants_rebalance()
    harness.advance(20)
    token = a.commits_offsets({T0: 3}, within_ms=5_000)
    assert isinstance(a.commits[token], RebalanceInProgressError) and not a.requests(OffsetCommit)


def test_who_is_no_member_cannot_commit_as_one(harness: Harness) -> None:
    """M7: subscribed, but not joined: the partitions may be somebody else's."""
    a = harness.party("a").subscribes("t")
    token = a.commits_offsets({T0: 3}, within_ms=5_000)
    assert isinstance(a.commits[token], CommitFailedError)


def test_a_listener_may_commit_what_is_being_revoked(harness: Harness) -> None:
    """M3, M14: it still owns it."""
    a = quiet(harness)
    tokens: list[str] = []

    def commit(kind: str, partitions: object) -> None:
        if kind == "revoked":
            tokens.append(a.commits_offsets({T0: 9}, within_ms=5_000))

    a.listener = commit
    a.wants_rebalance()
    harness.settle()
    harness.advance(50)
    assert a.commits[tokens[0]] is None and committed(harness) == {0: 9}


def test_a_synchronous_commit_is_retried_until_its_time_is_up(harness: Harness) -> None:
    """M7: retriable errors."""
    a = quiet(harness)
    harness.refusals.extend((OffsetCommit, refuse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)) for _ in range(3))
    done = a.commits_offsets({T0: 3}, within_ms=5_000)
    harness.advance(5_000)
    assert a.commits[done] is None and len(a.requests(OffsetCommit)) == 4
    harness.refusals.extend((OffsetCommit, refuse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)) for _ in range(300))
    failed = a.commits_offsets({T0: 4}, within_ms=5_000)
    harness.advance(5_000)
    error = a.commits[failed]
    assert isinstance(error, KafkaError) and error.retriable
    harness.refusals.clear()


def test_an_asynchronous_commit_is_sent_once(harness: Harness) -> None:
    """M7: a repeated one could overtake a later one."""
    a = quiet(harness)
    harness.refusals.append((OffsetCommit, refuse(ErrorCode.NOT_COORDINATOR)))
    token = a.commits_offsets({T0: 3})
    harness.advance(5_000)
    error = a.commits[token]
    assert isinstance(error, KafkaError) and error.retriable and len(a.requests(OffsetCommit)) == 1


def test_a_commit_that_is_repeated_never_takes_the_group_back(harness: Harness) -> None:
    """M7: what a later commit has named is left out of the repetition."""
    a = quiet(harness)
    harness.refusals.append((OffsetCommit, refuse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)))
    early = a.commits_offsets({T0: 3, T1: 3}, within_ms=5_000)
    late = a.commits_offsets({T0: 8})
    harness.advance(5_000)
    assert a.commits == {early: None, late: None} and committed(harness) == {0: 8, 1: 3}


def test_a_commit_is_not_repeated_in_another_generation(harness: Harness) -> None:
    """M7: the partitions may be somebody else's by then."""
    a = quiet(harness)
    harness.refusals.extend((OffsetCommit, refuse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)) for _ in range(4))
    token = a.commits_offsets({T0: 3}, within_ms=60_000)
    harness.advance(50)
    a.wants_rebalance()
    harness.settle()
    harness.advance(5_000)
    assert isinstance(a.commits[token], CommitFailedError | RebalanceInProgressError) and committed(harness) == {}


def test_a_static_member_that_polled_too_late_commits_nothing_more_though_the_coordinator_would_take_it(
    harness: Harness,
) -> None:
    """M7, M8, KIP-345: it does not leave, so that its generation goes on without it; but it has given everything up."""
    a = quiet(harness, group_instance_id="i", max_poll_interval_ms=10_000)
    a.ends_poll()
    harness.refusals.extend((OffsetCommit, refuse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)) for _ in range(100))
    token = a.commits_offsets({T0: 3}, within_ms=30_000)
    harness.advance(10_000)
    group = harness.world.group(GROUP)
    assert a.is_in(MemberState.UNJOINED) and group is not None and group.generation_id == 1 and len(group.members) == 1
    harness.refusals.clear()
    harness.advance(5_000)
    assert isinstance(a.commits[token], CommitFailedError) and committed(harness) == {}


def test_commits_wait_for_a_coordinator_in_the_order_in_which_they_were_asked_for(harness: Harness) -> None:
    """M7, M2: a synchronous one as long as it may, an asynchronous one for a single lookup."""
    a = quiet(harness)
    a.member.coordinator = None
    tokens = [a.commits_offsets({T0: number}) for number in (3, 2, 7)]
    harness.advance(50)
    assert [a.commits[token] for token in tokens] == [None] * 3 and committed(harness) == {0: 7}
    a.member.coordinator = None
    harness.lookup_error = KafkaError("nobody there", ErrorCode.COORDINATOR_NOT_AVAILABLE)
    once, long = a.commits_offsets({T0: 8}), a.commits_offsets({T1: 9}, within_ms=2_000)
    harness.advance(50)
    assert "nobody there" in str(a.commits[once]) and long not in a.commits
    harness.advance(2_000)
    assert isinstance(a.commits[long], RequestTimedOutError) and "was not found in time" in str(a.commits[long])


def test_a_commit_that_is_never_answered_ends_in_time(harness: Harness) -> None:
    """M7: nothing hangs."""
    a = quiet(harness)
    harness.refusals.append((OffsetCommit, None))
    token = a.commits_offsets({T0: 3}, within_ms=2_000)
    harness.advance(2_100)
    assert isinstance(a.commits[token], RequestTimedOutError)


def test_rights_are_named_with_their_topics(harness: Harness) -> None:
    """M7: what is wrong with the commit as a whole comes first."""
    a = quiet(harness)
    harness.refusals.append((OffsetCommit, refuse(ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.NONE)))
    token = a.commits_offsets({T0: 3, T1: 4})
    harness.advance(5)
    assert isinstance(a.commits[token], AuthorizationError) and "t-0" in str(a.commits[token])
    assert "t-1" not in str(a.commits[token])


def test_a_commit_of_a_fenced_member_ends_it(harness: Harness) -> None:
    """M4, M7: FENCED_INSTANCE_ID of its own generation is fatal."""
    a = quiet(harness, group_instance_id="i")
    harness.refusals.append((OffsetCommit, refuse(ErrorCode.FENCED_INSTANCE_ID)))
    token = a.commits_offsets({T0: 3})
    harness.advance(5)
    assert isinstance(a.commits[token], FencedInstanceError) and a.is_in(MemberState.FENCED)
    again = a.commits_offsets({T0: 3})
    assert isinstance(a.commits[again], FencedInstanceError)


def test_without_a_subscription_offsets_are_committed_without_membership(harness: Harness) -> None:
    """M7, rule 21: without generation and ids; a group that has members does not take that."""
    a = harness.party("a", group_instance_id="i")
    token = a.commits_offsets({T0: 3}, within_ms=5_000)
    harness.advance(50)
    (commit,) = a.requests(OffsetCommit)
    assert a.commits[token] is None and (commit.generation_id, commit.member_id, commit.instance_id) == (-1, "", None)
    quiet(harness, "b")
    refused = a.commits_offsets({T0: 4}, within_ms=5_000)
    harness.advance(50)
    assert isinstance(a.commits[refused], CommitFailedError) and "has members" in str(a.commits[refused])


# --- what is committed ------------------------------------------------------------------------------------------------


def test_committed_offsets_are_found_for_new_partitions(harness: Harness) -> None:
    """M6: what was never committed has no entry, and falls back to auto.offset.reset."""
    a = quiet(harness)
    a.commits_offsets({T0: 3})
    token = a.asks_committed([T0, T1])
    harness.advance(50)
    assert a.fetched[token].offsets == {T0: OffsetAndMetadata(3)} and a.fetched[token].error is None
    assert a.requests(OffsetFetch)[0].require_stable


def test_an_unstable_offset_is_asked_for_again(harness: Harness) -> None:
    """M6, rule 22: a transaction is about to decide."""
    a = quiet(harness)
    unstable = OffsetsFetched(GROUP, ErrorCode.NONE, [FetchedOffset("t", 0, ErrorCode.UNSTABLE_OFFSET_COMMIT)])
    harness.refusals.extend([(OffsetFetch, unstable)] * 2)
    token = a.asks_committed([T0])
    harness.advance(1_000)
    assert a.fetched[token].error is None and len(a.requests(OffsetFetch)) == 3


def test_a_question_that_is_refused_says_so(harness: Harness) -> None:
    """M6: what is fatal is not waited for, whatever else is unstable."""
    a = quiet(harness)
    mixed = [
        FetchedOffset("t", 0, ErrorCode.UNSTABLE_OFFSET_COMMIT),
        FetchedOffset("t", 1, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ]
    harness.refusals.append((OffsetFetch, OffsetsFetched(GROUP, ErrorCode.NONE, mixed)))
    token = a.asks_committed([T0, T1])
    harness.advance(50)
    assert isinstance(a.fetched[token].error, AuthorizationError)
    harness.refusals.append((OffsetFetch, OffsetsFetched(GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED)))
    token = a.asks_committed([T0])
    harness.advance(50)
    assert isinstance(a.fetched[token].error, AuthorizationError)


def test_a_question_nobody_answers_ends_in_time_and_an_empty_one_at_once(harness: Harness) -> None:
    """M6: nothing hangs."""
    a = quiet(harness)
    nothing = a.asks_committed([])
    assert a.fetched[nothing].offsets == {}
    harness.refusals.append((OffsetFetch, None))
    token = a.asks_committed([T0], within_ms=500)
    harness.advance(600)
    assert isinstance(a.fetched[token].error, RequestTimedOutError)


# --- auto-commit ------------------------------------------------------------------------------------------------------


def test_positions_are_committed_every_interval_during_a_poll(harness: Harness) -> None:
    """M3: and only what has changed."""
    (a,) = harness.stable("a")
    a.positions[T0] = 5
    harness.advance(4_000)
    assert committed(harness) == {}
    harness.advance(1_000)
    assert committed(harness) == {0: 5}
    harness.advance(30_000)
    assert len(a.requests(OffsetCommit)) == 1
    a.positions[T0] = 6
    harness.advance(5_000)
    assert committed(harness) == {0: 6}


def test_what_is_still_being_processed_is_not_committed(harness: Harness) -> None:
    """M1, M3: between two polls the user works on what the first one returned."""
    (a,) = harness.stable("a")
    a.ends_poll()
    a.positions[T0] = 5
    harness.advance(20_000)
    assert committed(harness) == {}
    a.begins_poll()
    harness.advance(5)
    assert committed(harness) == {0: 5}


def test_an_auto_commit_that_fails_is_told_or_tried_again(harness: Harness) -> None:
    """M3: retriable: soon; else it is told, and the next interval tries again."""
    (a,) = harness.stable("a")
    a.positions[T0] = 5
    harness.refusals.append((OffsetCommit, refuse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)))
    harness.advance(5_300)
    assert committed(harness) == {0: 5}
    a.positions[T0] = 6
    harness.refusals.append((OffsetCommit, refuse(ErrorCode.OFFSET_METADATA_TOO_LARGE)))
    harness.advance(5_000)
    assert "OFFSET_METADATA_TOO_LARGE" in a.fact(AutoCommitFailed).error
    harness.advance(5_000)
    assert committed(harness) == {0: 6} and not a.errors


def test_partitions_assigned_by_hand_are_committed_again_and_again(harness: Harness) -> None:
    """M3, rule 23: nobody is subscribed, so the offsets of an idle consumer would expire."""
    a = harness.party("a")
    a.positions[T0] = 5
    a.begins_poll()
    harness.advance(16_000)
    assert committed(harness) == {0: 5} and len(a.requests(OffsetCommit)) == 3


def test_a_new_assignment_restarts_the_clock(harness: Harness) -> None:
    """M6: restart the auto-commit timer."""
    (a,) = harness.stable("a")
    harness.advance(4_000)
    a.wants_rebalance()
    harness.settle()
    a.positions[T0] = 5
    harness.advance(4_500)
    assert committed(harness) == {}
    harness.advance(600)
    assert committed(harness) == {0: 5}


@pytest.mark.parametrize("are_positions", [True, False])
def test_a_commit_of_a_deleted_topic_ends_when_the_metadata_says_so(are_positions: bool, harness: Harness) -> None:
    """Not at the end of its time. Who has named the partition hears of it; positions are committed without it."""
    a = quiet(harness)
    gone = TopicPartition("gone", 0)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    harness.refusals.extend((OffsetCommit, refuse(unknown, ErrorCode.NONE)) for _ in range(2))
    token = a.commits_offsets({gone: 1, T0: 3}, within_ms=60_000, are_positions=are_positions)
    harness.advance(1_000)
    if are_positions:
        assert a.commits == {token: None} and committed(harness) == {0: 3}
        assert list(a.fact(CommitLeftOut).partitions) == [gone]
    else:
        error = a.commits[token]
        assert isinstance(error, KafkaError) and error.code is unknown
        assert "gone-0: the topic was deleted, or never was" in str(error)


def test_metadata_that_cannot_be_had_proves_nothing(harness: Harness) -> None:
    a = quiet(harness)
    harness.metadata_error = KafkaError("nobody is there", ErrorCode.NETWORK_EXCEPTION)
    harness.refusals.extend((OffsetCommit, refuse(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)) for _ in range(3))
    token = a.commits_offsets({TopicPartition("gone", 0): 1}, within_ms=60_000)
    harness.advance(5_000)
    assert a.commits == {token: None} and len(a.requests(OffsetCommit)) == 4
