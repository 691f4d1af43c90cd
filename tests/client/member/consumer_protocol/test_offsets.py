"""Commits and committed offsets of a member of a KIP-848 group: they carry its epoch."""

from __future__ import annotations

from client.member.consumer_protocol.seat import INTERVAL_MS, Seat
from client.member.harness import tps
from coterie.client.member import events
from coterie.errors import CommitFailedError, ErrorCode
from coterie.protocol.messages import FetchedOffset, OffsetCommit, OffsetFetch, OffsetsFetched

T0, T1 = tps("t:0-1")


def commit_of(seat: Seat) -> OffsetCommit:
    found = next(one for one in seat.sent if isinstance(one.request, OffsetCommit))
    seat.sent.remove(found)
    seat.sent.appendleft(found)
    assert isinstance(found.request, OffsetCommit)
    return found.request


def test_a_commit_carries_id_and_epoch() -> None:
    seat = Seat(group_instance_id="i").stable(t=[0]).commits_offsets({T0: 3})
    commit = commit_of(seat)
    assert (commit.member_id, commit.generation_id, commit.instance_id) == (seat.member.member_id, 2, "i")
    seat.commit_is()
    assert seat.commits == {"commit": None}


def test_a_stale_commit_is_repeated_with_the_new_epoch() -> None:
    seat = Seat().stable(t=[0]).advance(INTERVAL_MS).commits_offsets({T0: 3})
    seat.sent.rotate(1)
    seat.commit_is(ErrorCode.STALE_MEMBER_EPOCH).keep(3).advance(1_200)
    assert commit_of(seat).generation_id == 3
    seat.commit_is()
    assert seat.commits == {"commit": None}


def test_a_stale_commit_that_is_sent_once_fails() -> None:
    """As commitAsync in Java."""
    seat = Seat().stable(t=[0]).commits_offsets({T0: 3}, within_ms=None).commit_is(ErrorCode.STALE_MEMBER_EPOCH)
    error = seat.commits["commit"]
    assert isinstance(error, CommitFailedError) and error.code is ErrorCode.STALE_MEMBER_EPOCH


def test_a_commit_is_not_repeated_for_partitions_that_were_given_up() -> None:
    """Their new owner may have committed since: the old offset would set the group back."""
    seat = Seat().stable(t=[0, 1]).commits_offsets({T0: 3, T1: 4}).commit_is(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    seat.handle(events.HeartbeatDue())
    seat.member.wants_heartbeat = True
    seat.handle(events.PollBegan()).answer(2, t=[0]).keep(3).advance(1_200)
    assert isinstance(seat.commits["commit"], CommitFailedError)
    assert not any(isinstance(one.request, OffsetCommit) for one in seat.sent)


def test_a_commit_of_a_fenced_member_fails() -> None:
    seat = Seat().stable(t=[0]).ends_poll().advance(INTERVAL_MS).refuse(ErrorCode.UNKNOWN_MEMBER_ID)
    seat.commits_offsets({T0: 3})
    assert isinstance(seat.commits["commit"], CommitFailedError) and not seat.sent


def test_a_refused_commit_fences_nobody() -> None:
    """The heartbeat will say it, if it is so."""
    seat = Seat().stable(t=[0]).commits_offsets({T0: 3}).commit_is(ErrorCode.UNKNOWN_MEMBER_ID)
    assert isinstance(seat.commits["commit"], CommitFailedError) and seat.state == "Stable"


def test_a_consumer_without_a_subscription_commits_without_an_id() -> None:
    seat = Seat().commits_offsets({T0: 3})
    commit = commit_of(seat)
    assert (commit.member_id, commit.generation_id) == ("", -1)


def test_a_question_for_committed_offsets_carries_the_epoch() -> None:
    seat = Seat().stable(t=[0])
    seat.handle(events.CommittedAsked("asked", [T0], seat.now_ms + 10_000))
    asked = seat.sent[0].request
    assert isinstance(asked, OffsetFetch) and (asked.member_id, asked.member_epoch) == (seat.member.member_id, 2)
    seat._reply(OffsetsFetched("g", ErrorCode.STALE_MEMBER_EPOCH)).advance(INTERVAL_MS)
    beats = [one for one in seat.sent if not isinstance(one.request, OffsetFetch)]
    seat.sent.remove(beats[0])
    again = seat.sent[0].request
    assert isinstance(again, OffsetFetch)
    seat._reply(OffsetsFetched("g", ErrorCode.NONE, [FetchedOffset("t", 0, offset=9)]))
    assert seat.fetched["asked"].offsets[T0].offset == 9


def test_a_consumer_that_is_no_member_asks_without_an_id() -> None:
    seat = Seat()
    seat.handle(events.CommittedAsked("asked", [T0], seat.now_ms + 10_000))
    asked = seat.sent[0].request
    assert isinstance(asked, OffsetFetch) and (asked.member_id, asked.member_epoch) == (None, -1)


def test_auto_commit_goes_on_while_a_topic_is_unknown() -> None:
    seat = Seat(enable_auto_commit=True, auto_commit_interval_ms=1_000)
    seat.joins("t", "v").answer(2, t=[0], v=[0]).keep(2)
    assert seat.state == "Reconciling"
    seat.positions = {T0: 4}
    seat.ends_poll().advance(1_500).begins_poll()
    assert commit_of(seat).partitions[0].offset == 4


def test_close_commits_before_it_leaves() -> None:
    seat = Seat(enable_auto_commit=True, auto_commit_interval_ms=60_000).stable(t=[0])
    seat.positions = {T0: 4}
    seat.closes()
    assert seat.log == ["commit"]
    seat.commit_is()
    assert seat.log == ["commit", "revoked", "heartbeat -1"]
