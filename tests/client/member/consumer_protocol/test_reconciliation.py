"""From what a member owns to what it is assigned: commit, revoke, take, acknowledge (KIP-848)."""

from __future__ import annotations

from uuid import UUID

import pytest

from client.member.consumer_protocol.seat import INTERVAL_MS, TOPICS, Seat, owned
from client.member.harness import tps
from coterie.assignors import Topic
from coterie.client.member.facts import AssignmentReconciled, AutoCommitFailed, TopicIdsUnknown
from coterie.client.member.states import ListenerError
from coterie.errors import ErrorCode
from coterie.protocol.messages import OffsetCommit

T0, T1 = tps("t:0-1")


def test_what_is_assigned_is_taken_and_acknowledged() -> None:
    seat = Seat().joins("t").answer(2, t=[0, 1])
    assert seat.log == ["heartbeat 0", "assigned", "heartbeat 2"] and seat.assigned == tps("t:0-1")
    assert owned(seat.heartbeat) == {"t": [0, 1]} and seat.state == "Stable"
    fact = next(one for one in seat.facts if isinstance(one, AssignmentReconciled))
    assert (fact.member_epoch, fact.partitions, fact.added) == (2, tps("t:0-1"), tps("t:0-1"))


def test_nothing_assigned_is_told_too() -> None:
    """As in Java: the listener is called after the first assignment, even if it is empty."""
    seat = Seat().joins("t").answer(2)
    assert seat.calls == [("assigned", [])]


def test_revoked_before_it_is_acknowledged() -> None:
    """Another member gets the partition only after the heartbeat without it."""
    seat = Seat().stable(t=[0, 1]).advance(INTERVAL_MS).answer(2, t=[0])
    assert seat.log[-3:] == ["revoked", "assigned", "heartbeat 2"]
    assert seat.calls == [("revoked", [T1]), ("assigned", [])] and owned(seat.heartbeat) == {"t": [0]}
    seat.keep(3)
    assert seat.state == "Stable" and seat.member.generation_id == 3 and seat.assigned == [T0]


def test_auto_commit_comes_before_the_revocation() -> None:
    seat = Seat(enable_auto_commit=True, auto_commit_interval_ms=60_000).stable(t=[0, 1])
    seat.positions = {T0: 5, T1: 7}
    seat.advance(INTERVAL_MS).answer(2, t=[0])
    assert seat.log == ["heartbeat 2", "commit"] and seat.held == [T1] and not seat.calls
    commit = seat.sent[0].request
    assert isinstance(commit, OffsetCommit) and commit.generation_id == 2
    assert [(one.partition, one.offset) for one in commit.partitions] == [(0, 5), (1, 7)]
    seat.commit_is()
    assert seat.log[2:] == ["revoked", "assigned", "heartbeat 2"]


def test_a_commit_that_fails_does_not_hold_up_the_revocation() -> None:
    seat = Seat(enable_auto_commit=True, auto_commit_interval_ms=60_000).stable(t=[0])
    seat.positions = {T0: 5}
    seat.advance(INTERVAL_MS).answer(2).commit_is(ErrorCode.UNKNOWN_MEMBER_ID)
    assert seat.calls == [("revoked", [T0]), ("assigned", [])]
    assert any(isinstance(one, AutoCommitFailed) for one in seat.facts)


def test_the_commit_before_the_revocation_takes_the_new_epoch() -> None:
    """STALE_MEMBER_EPOCH: it is sent again with the epoch that a heartbeat has brought."""
    seat = Seat(enable_auto_commit=True, auto_commit_interval_ms=60_000).stable(t=[0, 1])
    seat.positions = {T1: 7}
    seat.advance(INTERVAL_MS).answer(2, interval_ms=50, t=[0]).advance(50)
    assert seat.log[-2:] == ["commit", "heartbeat 2"]
    seat.commit_is(ErrorCode.STALE_MEMBER_EPOCH).keep(4)
    assert not seat.calls
    seat.advance(200)
    commit = seat.sent[-1].request
    assert isinstance(commit, OffsetCommit) and commit.generation_id == 4
    seat.sent.rotate(1)
    seat.commit_is()
    assert seat.calls == [("revoked", [T1]), ("assigned", [])]


def test_partitions_change_only_inside_poll() -> None:
    seat = Seat().stable(t=[0]).ends_poll().advance(INTERVAL_MS).answer(3, t=[0, 1])
    assert seat.state == "Reconciling" and not seat.calls and seat.assigned == [T0]
    seat.advance(INTERVAL_MS)
    assert owned(seat.heartbeat) is None, "heartbeats go on, and report nothing new"
    seat.keep(3).begins_poll()
    assert seat.calls == [("assigned", [T1])] and owned(seat.heartbeat) == {"t": [0, 1]}


def test_a_newer_assignment_during_the_listener_is_taken_after_it() -> None:
    seat = Seat().stable(t=[0, 1])
    seat.holds_listener = True
    seat.advance(INTERVAL_MS).answer(2, t=[0]).advance(INTERVAL_MS)
    seat.answer(2)  # now nothing is left
    assert seat.calls == [("revoked", [T1])]
    seat.holds_listener = False
    seat.listener_returns()
    assert seat.calls == [("revoked", [T1]), ("revoked", [T0]), ("assigned", [])]
    assert owned(seat.heartbeat) == {} and seat.keep(3).state == "Stable"


def test_partitions_are_reported_as_soon_as_they_are_read() -> None:
    """A heartbeat during the listener that left them out would free them for others."""
    seat = Seat().stable(t=[0])
    seat.holds_listener = True
    seat.advance(INTERVAL_MS).answer(3, t=[0, 1]).advance(INTERVAL_MS)
    assert seat.calls == [("assigned", [T1])] and owned(seat.heartbeat) == {"t": [0, 1]}
    seat.lose()
    assert owned(seat.heartbeat) == {"t": [0, 1]}, "all is said again, and it is true"


def test_partitions_that_were_taken_back_before_the_poll_are_acknowledged_as_given_up() -> None:
    """The coordinator waits for that word, although the member owns what it has owned before."""
    seat = Seat().stable(t=[0]).ends_poll().advance(INTERVAL_MS).answer(3, t=[0, 1]).advance(INTERVAL_MS)
    seat.answer(3, t=[0]).begins_poll()
    assert owned(seat.heartbeat) == {"t": [0]} and seat.keep(4).state == "Stable"


def test_new_partitions_wait_for_the_answer_to_a_report_without_them() -> None:
    """The report may free them: only its answer says whether they are still its own."""
    seat = Seat().stable(t=[0]).ends_poll().advance(INTERVAL_MS).answer(3, t=[0, 1])
    seat.advance(INTERVAL_MS).lose().begins_poll()
    assert owned(seat.heartbeat) == {"t": [0]} and not seat.calls
    seat.answer(4, t=[0])
    assert seat.calls == [("assigned", [])] and seat.assigned == [T0]


def test_an_assignment_that_is_out_of_date_after_the_revocation_is_not_taken() -> None:
    seat = Seat().stable(t=[0, 1])
    seat.holds_listener = True
    seat.advance(INTERVAL_MS).answer(3, t=[0, 2]).advance(INTERVAL_MS).answer(3, t=[0, 3])
    seat.holds_listener = False
    seat.listener_returns()
    assert seat.calls == [("revoked", [T1]), ("assigned", tps("t:3"))] and owned(seat.heartbeat) == {"t": [0, 3]}


def test_a_member_that_is_fenced_in_its_listener_loses_the_rest() -> None:
    seat = Seat().stable(t=[0, 1])
    seat.holds_listener = True
    seat.advance(INTERVAL_MS).answer(2, t=[0]).advance(INTERVAL_MS).refuse(ErrorCode.UNKNOWN_MEMBER_ID)
    assert seat.state == "Fenced"
    seat.holds_listener = False
    seat.listener_returns()
    assert seat.calls == [("revoked", [T1]), ("lost", [T0])] and seat.heartbeat.member_epoch == 0


def test_a_listener_that_raises_does_not_stop_it() -> None:
    """The partition is revoked all the same, or nobody could read it; the caller of poll gets the error."""
    seat = Seat().stable(t=[0, 1])
    seat.holds_listener = True
    seat.advance(INTERVAL_MS).answer(2, t=[0])
    seat.holds_listener = False
    seat.listener_returns(ValueError("no"))
    assert isinstance(seat.errors[0], ListenerError) and owned(seat.heartbeat) == {"t": [0]}


def test_the_same_assignment_again_changes_nothing() -> None:
    seat = Seat().stable(t=[0]).advance(INTERVAL_MS).answer(3, t=[0])
    assert not seat.calls and not seat.sent and seat.member.generation_id == 3 and seat.state == "Stable"


def test_a_topic_that_the_metadata_does_not_have_waits() -> None:
    seat = Seat().joins("t", "v").answer(2, t=[0], v=[0])
    assert seat.assigned == [T0] and owned(seat.heartbeat) == {"t": [0]} and seat.state == "Reconciling"
    assert any(isinstance(one, TopicIdsUnknown) and one.topic_ids == [str(TOPICS["v"])] for one in seat.facts)
    seat.keep(2).topics["v"] = Topic(1)
    seat.advance(1_000)
    assert seat.assigned == [T0, *tps("v:0")] and owned(seat.heartbeat) == {"t": [0], "v": [0]}
    assert seat.keep(2).state == "Stable" and seat.calls[-1] == ("assigned", tps("v:0"))


def test_a_member_that_knows_none_of_its_topics_waits_without_a_word() -> None:
    seat = Seat().joins("v").answer(2, v=[0])
    assert not seat.calls and not seat.sent and seat.state == "Reconciling"
    assert "metadata of 1 topic" in seat.member.explain(seat.now_ms)
    seat.advance(INTERVAL_MS).answer(3)  # the topic is gone again
    assert seat.calls == [("assigned", [])] and seat.keep(3).state == "Stable"


def test_a_revocation_does_not_wait_for_an_unknown_topic() -> None:
    seat = Seat().stable(t=[0, 1]).advance(INTERVAL_MS).answer(2, t=[0], v=[0])
    assert seat.calls == [("revoked", [T1]), ("assigned", [])] and owned(seat.heartbeat) == {"t": [0]}


def test_a_topic_that_was_created_again_is_reported_by_its_new_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """The partition has the same name: nothing is revoked, and the fetcher notices the other topic by itself."""
    seat = Seat().stable(t=[0])
    monkeypatch.setitem(TOPICS, "t", UUID(int=9))
    seat.advance(INTERVAL_MS).answer(3, t=[0])
    reported = seat.heartbeat.topic_partitions
    assert reported is not None and [one.topic_id for one in reported] == [UUID(int=9)]
    assert seat.calls == [("assigned", [])] and seat.assigned == [T0]


def test_close_in_the_middle_of_a_reconciliation_gives_everything_up() -> None:
    seat = Seat().stable(t=[0, 1])
    seat.holds_listener = True
    seat.advance(INTERVAL_MS).answer(2, t=[0]).closes()
    seat.listener_returns()
    assert seat.calls == [("revoked", [T1]), ("revoked", [T0])]
    seat.listener_returns()
    assert seat.heartbeat.member_epoch == -1
