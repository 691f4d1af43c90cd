"""The tables of a member of a KIP-848 group, and what it says of itself."""

from __future__ import annotations

import pytest

from client.member.consumer_protocol.seat import INTERVAL_MS, Seat
from coterie.client.member.consumer_protocol.membership import AGENDA
from coterie.client.member.consumer_protocol.states import (
    DOING,
    HEARTBEAT_API,
    NEXT,
    ON_ERROR,
    OTHERWISE,
    ConsumerMemberState,
    enter,
    on_error,
)
from coterie.client.member.states import ErrorAction
from coterie.errors import ErrorCode, IllegalTransitionError

CODES = [code for code in ErrorCode if code]


def test_the_tables_name_every_state() -> None:
    assert set(DOING) == set(NEXT) == set(AGENDA) == set(ConsumerMemberState)
    assert set(ON_ERROR) == set(OTHERWISE)
    reached, grown = {ConsumerMemberState.UNSUBSCRIBED}, True
    while grown:
        more = {following for state in reached for following in NEXT[state]}
        grown = not more <= reached
        reached |= more
    assert reached == set(ConsumerMemberState)
    assert [state for state in ConsumerMemberState if not NEXT[state]] == [ConsumerMemberState.CLOSED]


def test_a_member_moves_along_the_arrows_alone() -> None:
    for state in ConsumerMemberState:
        for following in ConsumerMemberState:
            member = Seat().member
            member.state = state
            if following in NEXT[state]:
                enter(member, following, 5)
                assert (member.state, member.state_since_ms) == (following, 5)
            else:
                with pytest.raises(IllegalTransitionError, match="can be reached"):
                    enter(member, following, 5)


@pytest.mark.parametrize("code", CODES, ids=lambda code: code.name)
def test_what_is_done_about_an_error_of_a_heartbeat(code: ErrorCode) -> None:
    """The table is what happens, to a member and to a newcomer."""
    member = Seat().stable(t=[0]).advance(INTERVAL_MS).refuse(code)
    newcomer = Seat().joins("t").refuse(code)
    what = on_error(HEARTBEAT_API, code)
    if what in {ErrorAction.RETRY, ErrorAction.FIND_COORDINATOR}:
        assert member.state == "Stable" and newcomer.state == "Joining"
        assert member.advance(1_200).heartbeat.member_epoch == 2
        assert newcomer.advance(1_200).heartbeat.member_epoch == 0
    elif what is ErrorAction.DROP_GENERATION:
        assert member.calls[0][0] == "lost" and member.heartbeat.member_epoch == 0
        assert newcomer.heartbeat.member_epoch == 0
    elif what is ErrorAction.FAIL:
        assert len(member.errors) == len(newcomer.errors) == 1
        assert member.state == "Stable" and member.advance(INTERVAL_MS).heartbeat.member_epoch == 2
    elif what is ErrorAction.RELEASE:
        assert newcomer.state == "Fatal"
    else:
        assert what is ErrorAction.FATAL and member.state == newcomer.state == "Fatal"
        assert member.calls[0][0] == "lost" and len(member.errors) == len(newcomer.errors) == 1


def test_explain_says_the_epoch_and_what_it_waits_for() -> None:
    seat = Seat(group_instance_id="i", enable_auto_commit=True, auto_commit_interval_ms=90_000)
    explain = seat.member.explain
    assert "a consumer without a member id" in explain(1_000) and "waits for a subscription" in explain(1_000)
    seat.subscribes("t")
    assert "it waits for the next poll" in explain(1_000)
    seat.begins_poll()
    assert 'member "id-1" (instance "i")' in explain(1_500) and "is Joining for 0.5 s" in explain(1_500)
    assert "the answer to its heartbeat" in explain(1_500)
    seat.holds_listener = True
    seat.answer(4, t=[0, 1])
    assert "the rebalance listener to return (assigned)" in explain(1_500)
    seat.holds_listener = False
    seat.listener_returns()
    assert "is Stable" in explain(1_500) and "member epoch 4, 2 partitions" in explain(1_500)
    seat.keep(4).ends_poll().advance(INTERVAL_MS).answer(4, t=[0])
    assert "is Reconciling" in explain(seat.now_ms) and "waits for the next poll" in explain(seat.now_ms)
    seat.positions = dict.fromkeys(seat.assigned, 3)
    seat.begins_poll()
    assert "the commit before the revocation" in explain(seat.now_ms) and "1 request pending" in explain(seat.now_ms)
    seat.commit_is().ends_poll().refuse(ErrorCode.UNKNOWN_MEMBER_ID)
    assert "is Fenced" in explain(seat.now_ms) and "it has lost 1 partition" in explain(seat.now_ms)
