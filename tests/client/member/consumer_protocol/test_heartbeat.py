"""ConsumerGroupHeartbeat: what a member says, when, and what the answers mean (KIP-848)."""

from __future__ import annotations

import re

import pytest

from client.member.consumer_protocol.seat import ID, INTERVAL_MS, Seat, owned
from client.member.harness import GROUP, tps
from coterie.assignors import Topic
from coterie.client.member import events
from coterie.client.member.facts import (
    GroupLeft,
    IdentityDropped,
    PollIntervalExceeded,
    PollResumed,
    RebalanceNotEnforced,
)
from coterie.errors import ErrorCode, KafkaError, UnsupportedVersionError


def test_the_first_heartbeat_says_all_and_the_next_one_nothing_but_who_it_is() -> None:
    seat = Seat(group_instance_id="i", group_remote_assignor="range", client_rack="r").joins("u", "t")
    first = seat.heartbeat
    assert (first.group_id, first.member_id, first.member_epoch, first.instance_id) == (GROUP, ID, 0, "i")
    assert (first.rebalance_timeout_ms, first.server_assignor, first.rack_id) == (60_000, "range", "r")
    assert (first.subscribed_topic_names, first.subscribed_topic_regex, owned(first)) == (["t", "u"], None, {})
    seat.answer(2, t=[0, 1])
    acknowledgement = seat.heartbeat
    assert (acknowledgement.member_epoch, owned(acknowledgement)) == (2, {"t": [0, 1]})
    assert acknowledgement.subscribed_topic_names is None and acknowledgement.rebalance_timeout_ms == -1
    seat.keep(2).advance(INTERVAL_MS)
    third = seat.heartbeat
    assert (third.member_id, third.member_epoch, third.instance_id, owned(third)) == (ID, 2, "i", None)
    assert third.server_assignor is None and third.rack_id is None


def test_the_member_keeps_the_id_that_it_was_given_first() -> None:
    """The id is the client's own for as long as it lives, also over a fencing and a new subscription."""
    seat = Seat().stable(t=[0])
    seat.handle(events.Subscribed(["t"], fresh_id="another"))
    seat.advance(INTERVAL_MS).refuse(ErrorCode.UNKNOWN_MEMBER_ID)
    assert seat.heartbeat.member_id == ID


def test_the_coordinator_says_how_often() -> None:
    seat = Seat().joins("t").answer(2, interval_ms=700, t=[0]).keep(2, interval_ms=700)
    seat.advance(699)
    assert not seat.sent
    seat.advance(1)
    assert seat.heartbeat.member_epoch == 2
    seat.keep(2, interval_ms=2_000).advance(1_999)
    assert not seat.sent
    seat.advance(1)
    assert seat.heartbeat


def test_one_heartbeat_at_a_time() -> None:
    seat = Seat().stable(t=[0]).advance(INTERVAL_MS)
    seat.advance(4 * INTERVAL_MS)
    assert len(seat.sent) == 1


def test_nothing_is_sent_before_the_first_poll() -> None:
    seat = Seat().subscribes("t")
    assert not seat.sent and seat.state == "Unsubscribed"
    seat.begins_poll()
    assert seat.heartbeat.member_epoch == 0 and seat.state == "Joining"


def test_a_new_subscription_is_reported_at_once() -> None:
    seat = Seat().stable(t=[0]).subscribes("t", "u")
    assert seat.heartbeat.subscribed_topic_names == ["t", "u"] and owned(seat.heartbeat) is None
    seat.keep(2).subscribes("u", "t")
    assert not seat.sent, "the same topics are no news"


def test_after_an_error_everything_is_said_again() -> None:
    """A full request is answered with the assignment, so nothing that was lost stays lost."""
    seat = Seat().stable(t=[0]).advance(INTERVAL_MS).lose()
    again = seat.heartbeat
    assert (again.member_epoch, again.subscribed_topic_names, owned(again)) == (2, ["t"], {"t": [0]})
    assert again.rebalance_timeout_ms == 60_000


def test_repeated_errors_back_off() -> None:
    seat = Seat().stable(t=[0]).advance(INTERVAL_MS)
    seat.refuse(ErrorCode.NOT_COORDINATOR)
    assert seat.sent, "the first time it is tried at the new coordinator at once"
    seat.refuse(ErrorCode.NOT_COORDINATOR)
    assert not seat.sent
    seat.advance(1_200)
    assert seat.heartbeat


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH])
def test_a_fenced_member_loses_its_partitions_and_joins_again(code: ErrorCode) -> None:
    seat = Seat().stable(t=[0, 1]).advance(INTERVAL_MS).refuse(code)
    assert seat.calls == [("lost", tps("t:0-1"))] and seat.assigned == []
    join = seat.heartbeat
    assert (join.member_epoch, owned(join), join.subscribed_topic_names) == (0, {}, ["t"])
    assert [one.code for one in seat.facts if isinstance(one, IdentityDropped)] == [code]
    seat.answer(5, t=[1]).keep(5)
    assert seat.state == "Stable" and seat.assigned == tps("t:1")


def test_a_member_that_is_fenced_outside_poll_waits_for_it() -> None:
    """The listener is called only inside poll, and the join comes after it."""
    seat = Seat().stable(t=[0]).ends_poll().advance(INTERVAL_MS).refuse(ErrorCode.UNKNOWN_MEMBER_ID)
    assert seat.state == "Fenced" and not seat.calls and not seat.sent
    seat.begins_poll()
    assert seat.calls == [("lost", tps("t:0"))] and seat.heartbeat.member_epoch == 0


def test_a_fenced_member_is_still_who_it_was_until_it_has_joined_again() -> None:
    """Offsets of records that the user still processes are sent under that epoch, and refused."""
    seat = Seat().stable(t=[0])
    had = seat.member.identity
    seat.ends_poll().advance(INTERVAL_MS).refuse(ErrorCode.UNKNOWN_MEMBER_ID)
    assert seat.member.identity == had == (ID, 2)
    seat.begins_poll()
    assert seat.member.identity == had
    seat.answer(5, t=[0]).keep(5)
    assert seat.member.identity == (ID, 5)


def test_a_member_that_is_fenced_again_and_again_backs_off() -> None:
    seat = Seat().joins("t")
    for _ in range(2):
        seat.refuse(ErrorCode.FENCED_MEMBER_EPOCH)
    seat.refuse(ErrorCode.FENCED_MEMBER_EPOCH)
    assert not seat.sent and seat.state == "Joining"
    seat.advance(1_200)
    assert seat.heartbeat.member_epoch == 0


def test_an_answer_of_an_older_life_changes_nothing() -> None:
    seat = Seat().stable(t=[0]).advance(INTERVAL_MS)
    late = seat.sent.popleft()
    seat.handle(events.CoordinatorAnswered())  # nobody asked
    seat.ends_poll().advance(60_000).begins_poll()  # it has left and joins again
    late.then.error = None
    late.then.reply = Seat().joins("t")._response(9, 1, None)
    seat.handle(late.then)
    assert not seat.member.has_generation


def test_a_late_poll_leaves_and_the_next_one_joins_again() -> None:
    seat = Seat(max_poll_interval_ms=3_000).stable(t=[0]).ends_poll().advance(3_000)
    assert seat.state == "Stale" and seat.heartbeat.member_epoch == -1 and not seat.calls
    assert any(isinstance(one, PollIntervalExceeded) for one in seat.facts)
    seat.sent.popleft()
    seat.advance(60_000)
    assert not seat.sent, "a stale member is silent"
    seat.begins_poll()
    assert seat.calls == [("lost", tps("t:0"))] and seat.heartbeat.member_epoch == 0
    assert any(isinstance(one, PollResumed) for one in seat.facts)


def test_a_static_member_that_polls_late_keeps_its_place() -> None:
    seat = Seat(max_poll_interval_ms=3_000, group_instance_id="i").stable(t=[0]).ends_poll().advance(3_000)
    assert (seat.heartbeat.member_epoch, seat.heartbeat.instance_id) == (-2, "i")


def test_a_listener_that_does_not_return_is_a_late_poll() -> None:
    seat = Seat(max_poll_interval_ms=3_000)
    seat.holds_listener = True
    seat.joins("t").answer(2, t=[0]).advance(3_000)
    assert seat.state == "Stale" and seat.sent[-1].request.member_epoch == -1  # type: ignore[union-attr]


def test_a_join_that_is_refused_for_a_topic_raises_and_goes_on_with_the_next_poll() -> None:
    seat = Seat().joins("t").refuse(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert seat.errors[0].code is ErrorCode.TOPIC_AUTHORIZATION_FAILED  # type: ignore[attr-defined]
    assert not seat.sent and seat.state == "Joining"
    seat.ends_poll().begins_poll().answer(2, t=[0]).keep(2)
    assert seat.state == "Stable"


FATAL = {
    ErrorCode.UNSUPPORTED_VERSION: r"group\.protocol=consumer needs Apache Kafka 4\.0",
    ErrorCode.UNSUPPORTED_ASSIGNOR: r"group\.remote\.assignor",
    ErrorCode.INVALID_REGULAR_EXPRESSION: "RE2",
    ErrorCode.GROUP_MAX_SIZE_REACHED: r"group\.consumer\.max\.size",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "READ on the group",
    ErrorCode.FENCED_INSTANCE_ID: r"group\.instance\.id",
    ErrorCode.UNRELEASED_INSTANCE_ID: r"group\.instance\.id",
    ErrorCode.INVALID_REQUEST: "INVALID_REQUEST",
    ErrorCode.GROUP_ID_NOT_FOUND: "classic protocol",
}


@pytest.mark.parametrize("code", FATAL, ids=lambda code: code.name)
def test_an_error_for_good_is_raised_by_every_poll(code: ErrorCode) -> None:
    seat = Seat(group_instance_id="i").joins("t").refuse(code, "as the broker says it")
    assert seat.state == "Fatal" and not seat.sent
    seat.ends_poll().begins_poll()
    first, second = seat.errors
    assert first is second and re.search(FATAL[code], str(first)) and "as the broker says it" in str(first)
    seat.advance(600_000)
    assert not seat.sent
    seat.closes()
    assert seat.state == "Closed" and not seat.sent, "there is nothing to leave"


def test_an_error_for_good_of_a_member_loses_its_partitions() -> None:
    seat = Seat().stable(t=[0]).advance(INTERVAL_MS).refuse(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    assert seat.calls == [("lost", tps("t:0"))] and len(seat.errors) == 1


def test_a_member_that_failed_for_good_may_unsubscribe_and_begin_anew() -> None:
    seat = Seat().joins("t").refuse(ErrorCode.GROUP_MAX_SIZE_REACHED)
    seat.handle(events.UnsubscribeAsked()).joins("t").answer(2, t=[0]).keep(2)
    assert seat.state == "Stable"


def test_a_broker_without_the_request_is_named() -> None:
    """The connection knows that before anything is sent."""
    seat = Seat().joins("t").lose(UnsupportedVersionError("b:9092 does not speak ConsumerGroupHeartbeat at all"))
    assert "b:9092" in str(seat.errors[0]) and "set group.protocol=classic" in str(seat.errors[0])
    assert isinstance(seat.errors[0], KafkaError)


def test_a_lost_join_of_its_own_that_holds_the_instance_is_released() -> None:
    """The join was accepted, and its answer lost: the coordinator refuses the same member until it has left (-2)."""
    seat = Seat(group_instance_id="i").joins("t").lose()
    seat.refuse(ErrorCode.UNRELEASED_INSTANCE_ID)
    assert (seat.heartbeat.member_epoch, seat.heartbeat.instance_id) == (-2, "i")
    seat.keep(-2, interval_ms=0)
    assert seat.heartbeat.member_epoch == 0 and not seat.errors
    seat.answer(2, t=[0]).keep(2)
    assert seat.state == "Stable"


def test_a_release_that_finds_another_owner_is_for_good() -> None:
    seat = Seat(group_instance_id="i").joins("t").lose()
    seat.refuse(ErrorCode.UNRELEASED_INSTANCE_ID).refuse(ErrorCode.FENCED_INSTANCE_ID)
    assert seat.state == "Fatal"


def test_a_pattern_is_matched_by_the_client_before_it_joins() -> None:
    seat = Seat().joins(pattern=re.compile("[tu]"))
    assert seat.heartbeat.subscribed_topic_names == ["t", "u"] and seat.heartbeat.subscribed_topic_regex is None
    assert seat.watched is None
    seat.answer(2, t=[0]).keep(2)
    seat.handle(events.MetadataChanged({"t": Topic(4)}))
    assert seat.heartbeat.subscribed_topic_names == ["t"], "a topic that was deleted is reported at once"


def test_a_remote_pattern_is_sent_and_taken_back() -> None:
    seat = Seat().joins(remote_pattern="t.*")
    assert (seat.heartbeat.subscribed_topic_names, seat.heartbeat.subscribed_topic_regex) == ([], "t.*")
    seat.answer(1).keep(1).advance(INTERVAL_MS)
    assert seat.heartbeat.subscribed_topic_regex is None
    seat.answer(2, t=[0]).keep(2)
    assert seat.assigned == tps("t:0") and seat.watched == {"t"}
    changed = seat.subscribes("u").heartbeat
    assert (changed.subscribed_topic_names, changed.subscribed_topic_regex) == (["u"], "")


def test_a_rebalance_cannot_be_enforced() -> None:
    seat = Seat().stable(t=[0])
    seat.handle(events.RejoinAsked())
    assert not seat.sent and isinstance(seat.facts[-1], RebalanceNotEnforced)


# --- leaving ----------------------------------------------------------------------------------------------------------


def test_close_revokes_and_leaves() -> None:
    seat = Seat().stable(t=[0]).closes()
    assert seat.log == ["revoked", "heartbeat -1"] and not seat.ended
    seat.keep(-1, interval_ms=0)
    assert seat.state == "Closed" and seat.ended[0].error is None
    assert any(isinstance(one, GroupLeft) and one.leave_sent for one in seat.facts)


@pytest.mark.parametrize(
    ("instance_id", "leave", "epoch"),
    [(None, None, -1), (None, True, -1), (None, False, None), ("i", None, -2), ("i", True, -1), ("i", False, -2)],
)
def test_who_leaves_how(instance_id: str | None, leave: bool | None, epoch: int | None) -> None:
    """KIP-1092: a static member says that it will be back, unless it is told to leave."""
    seat = Seat(group_instance_id=instance_id).stable(t=[0]).closes(leave)
    assert [one.request.member_epoch for one in seat.sent] == ([] if epoch is None else [epoch])  # type: ignore[union-attr]
    assert seat.state == ("Closed" if epoch is None else "Leaving")


def test_a_leave_that_is_not_answered_ends_with_the_time() -> None:
    seat = Seat().stable(t=[0]).closes(within_ms=2_000).advance(2_000)
    assert seat.state == "Closed" and len(seat.ended) == 1


def test_a_join_in_flight_is_followed_by_the_leave() -> None:
    """The coordinator may have accepted it, and the id is known: nobody has to wait for a session to end."""
    seat = Seat().joins("t").closes()
    assert [one.request.member_epoch for one in seat.sent] == [0, -1]  # type: ignore[union-attr]


def test_unsubscribe_leaves_and_the_member_may_come_back() -> None:
    seat = Seat().stable(t=[0])
    seat.handle(events.UnsubscribeAsked())
    assert seat.log == ["revoked", "heartbeat -1"] and seat.state == "Unsubscribed" and len(seat.ended) == 1
    seat.keep(-1, interval_ms=0).subscribes("u")
    assert seat.heartbeat.member_epoch == 0 and seat.heartbeat.member_id == ID


def test_heartbeats_go_on_while_the_listener_holds_up_the_leave() -> None:
    seat = Seat().stable(t=[0])
    seat.holds_listener = True
    seat.closes(within_ms=60_000).advance(INTERVAL_MS)
    assert seat.log == ["revoked", "heartbeat 2"]
    seat.refuse(ErrorCode.UNKNOWN_MEMBER_ID).listener_returns()
    assert not seat.sent and seat.state == "Closed", "it is out already"
