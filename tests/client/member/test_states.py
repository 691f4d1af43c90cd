"""The tables of a member: which stage may follow which, and what every error of every request does (M4, M7, M8, M13).

Generated: a code times a request for all codes there are, against the real rules in a harness.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from client.member.harness import Harness, Party, tps
from coterie.client.member.facts import CoordinatorLost, IdentityDropped
from coterie.client.member.states import (
    DOING,
    NEXT,
    ON_ERROR,
    OTHERWISE,
    ApiName,
    ErrorAction,
    MemberState,
    enter,
    on_error,
)
from coterie.errors import (
    CommitFailedError,
    ConnectionLostError,
    ErrorCode,
    FencedInstanceError,
    IllegalTransitionError,
    KafkaError,
    RebalanceInProgressError,
    RequestTimedOutError,
)
from coterie.protocol.messages import Heartbeat, JoinGroup, LeaveGroup, OffsetCommit, OffsetFetch, SyncGroup

CODES = [code for code in ErrorCode if code]
T0 = tps("t:0")[0]

REQUEST: Mapping[ApiName, type[Any]] = {
    ApiName.JOIN_GROUP: JoinGroup,
    ApiName.SYNC_GROUP: SyncGroup,
    ApiName.HEARTBEAT: Heartbeat,
    ApiName.OFFSET_COMMIT: OffsetCommit,
    ApiName.OFFSET_FETCH: OffsetFetch,
    ApiName.LEAVE_GROUP: LeaveGroup,
}
"""All but FindCoordinator, whose answer is the driver's to read."""


def test_the_tables_name_every_stage_and_every_request() -> None:
    """Every stage can be reached, says what it is doing, and leads somewhere until the end."""
    assert set(DOING) == set(NEXT) == set(MemberState)
    assert set(ON_ERROR) == set(OTHERWISE) == set(ApiName)
    reached, grown = {MemberState.UNJOINED}, True
    while grown:
        more = {following for stage in reached for following in NEXT[stage]}
        grown = not more <= reached
        reached |= more
    assert reached == set(MemberState) and [stage for stage in MemberState if not NEXT[stage]] == [MemberState.CLOSED]


@pytest.mark.parametrize("stage", MemberState)
@pytest.mark.parametrize("following", MemberState)
def test_a_member_moves_along_the_arrows_alone(stage: MemberState, following: MemberState, harness: Harness) -> None:
    """M4: states.py alone assigns the stage."""
    member = harness.party("a").member
    member.state = stage
    if following in NEXT[stage]:
        enter(member, following, 5)
        assert (member.state, member.state_since_ms) == (following, 5)
    else:
        with pytest.raises(IllegalTransitionError, match="can be reached"):
            enter(member, following, 5)
        assert member.state is stage


def ask(api: ApiName, harness: Harness) -> tuple[Party, str]:
    """A member that is about to send this request, and the token of its pending, if it is one."""
    token = ""
    if api in {ApiName.JOIN_GROUP, ApiName.SYNC_GROUP}:
        a = harness.party("a", group_instance_id="i", enable_auto_commit=False).joins("t")
    else:
        (a,) = harness.stable("a", group_instance_id="i", enable_auto_commit=False)
    if api is ApiName.OFFSET_COMMIT:
        token = a.commits_offsets({T0: 3}, within_ms=2_000)
    elif api is ApiName.OFFSET_FETCH:
        token = a.asks_committed([T0], within_ms=2_000)
    elif api is ApiName.LEAVE_GROUP:
        a.closes(leave=True)
    return a, token


@pytest.mark.parametrize("code", CODES, ids=lambda code: code.name)
@pytest.mark.parametrize("api", REQUEST, ids=str)
def test_what_is_done_about_an_error(api: ApiName, code: ErrorCode) -> None:
    """M4, M7, M8, M13: the table is what happens, and afterwards the member works, or says why it does not."""
    harness = Harness()
    harness.refusals.append((REQUEST[api], lambda request: harness.refusal(request, code)))
    a, token = ask(api, harness)
    before = a.member.member_id
    harness.advance(3_500)
    assert not harness.refusals, "the request was sent"
    FOLLOWS[on_error(api, code)](a, api, code, token, before)
    if not a.is_in(MemberState.FENCED) and not a.is_in(MemberState.CLOSED):
        a.ends_poll().begins_poll()
        harness.settle()


def errand_error(party: Party, token: str) -> Exception | None:
    return party.commits[token] if token in party.commits else party.fetched[token].error


def retried(party: Party, api: ApiName, code: ErrorCode, token: str, _before: str) -> None:
    assert not party.errors
    assert len(party.requests(REQUEST[api])) >= 2
    if token:
        assert errand_error(party, token) is None
    if on_error(api, code) is ErrorAction.FIND_COORDINATOR:
        assert party.fact(CoordinatorLost)


def rejoined(party: Party, api: ApiName, _code: ErrorCode, token: str, _before: str) -> None:
    assert not party.errors and party.told("lost") == [] and len(party.requests(JoinGroup)) >= 2
    if token:
        assert isinstance(errand_error(party, token), RebalanceInProgressError)


def dropped(party: Party, api: ApiName, code: ErrorCode, token: str, before: str) -> None:
    assert not party.errors
    assert code.name in party.fact(IdentityDropped).why
    if token:
        assert isinstance(errand_error(party, token), CommitFailedError)
    if api in {ApiName.HEARTBEAT, ApiName.OFFSET_COMMIT}:
        assert party.told("lost") == tps("t:0-3")
        if on_error(api, code) is ErrorAction.DROP_GENERATION:
            assert party.member.member_id == before


def fenced(party: Party, _api: ApiName, _code: ErrorCode, token: str, _before: str) -> None:
    assert party.is_in(MemberState.FENCED) and isinstance(party.errors[-1], FencedInstanceError)
    if token:
        assert isinstance(errand_error(party, token), FencedInstanceError)


def failed(party: Party, api: ApiName, code: ErrorCode, token: str, _before: str) -> None:
    error = errand_error(party, token) if token else party.errors[0]
    assert isinstance(error, KafkaError) and error.code is code and code.name in str(error)
    assert 'group "readers"' in str(error) and api.value in str(error)
    assert token or len(party.errors) == 1, "said once a poll"


def ignored(party: Party, _api: ApiName, _code: ErrorCode, _token: str, _before: str) -> None:
    assert party.is_in(MemberState.CLOSED) and not party.errors and not party.ended[0].error


FOLLOWS: Mapping[ErrorAction, Callable[[Party, ApiName, ErrorCode, str, str], None]] = {
    ErrorAction.RETRY: retried,
    ErrorAction.FIND_COORDINATOR: retried,
    ErrorAction.TAKE_ID: retried,
    ErrorAction.REJOIN: rejoined,
    ErrorAction.DROP_GENERATION: dropped,
    ErrorAction.DROP_IDENTITY: dropped,
    ErrorAction.FATAL: fenced,
    ErrorAction.FAIL: failed,
    ErrorAction.IGNORE: ignored,
}


@pytest.mark.parametrize("code", CODES, ids=lambda code: code.name)
def test_what_is_done_about_a_lookup_that_fails(code: ErrorCode) -> None:
    """M2: looked up again in the background, or said to the caller of poll; and then it works."""
    harness = Harness()
    harness.lookup_error = KafkaError("no", code)
    a = harness.party("a").joins("t")
    harness.advance(3_000)
    if on_error(ApiName.FIND_COORDINATOR, code) is ErrorAction.RETRY:
        assert not a.errors and a.member.find_failures > 3
    else:
        failed(a, ApiName.FIND_COORDINATOR, code, "", "")
        a.ends_poll().begins_poll()
    harness.lookup_error = None
    harness.settle()


@pytest.mark.parametrize("error", [ConnectionLostError("gone"), RequestTimedOutError("silence")], ids=["lost", "late"])
@pytest.mark.parametrize("api", REQUEST, ids=str)
def test_a_connection_that_is_lost_is_no_answer(api: ApiName, error: KafkaError) -> None:
    """M4: the coordinator is looked up again, and what was asked is asked again."""
    harness = Harness()
    harness.refusals.append((REQUEST[api], None))
    a, token = ask(api, harness)
    for _ in range(40):
        if not harness.refusals:
            break
        harness.advance(100)
    a.connections.clear()
    send = next(send for _, send in reversed(a.sent) if isinstance(send.request, REQUEST[api]))
    send.then.error = error
    a.handle(send.then)
    if api is ApiName.LEAVE_GROUP:
        assert a.is_in(MemberState.CLOSED)
        return
    harness.advance(1_500)
    retried(a, api, error.code, token, "")
    harness.settle()


@pytest.mark.parametrize(
    "api", [ApiName.JOIN_GROUP, ApiName.SYNC_GROUP, ApiName.OFFSET_COMMIT, ApiName.OFFSET_FETCH], ids=str
)
def test_an_error_that_is_not_kafkas_reaches_whoever_asked_as_it_is(api: ApiName) -> None:
    """M4: a defect, or a version that does not fit: said, not swallowed."""
    harness = Harness()
    harness.refusals.append((REQUEST[api], None))
    a, token = ask(api, harness)
    harness.advance(100)
    a.connections.clear()
    send = next(send for _, send in reversed(a.sent) if isinstance(send.request, REQUEST[api]))
    send.then.error = raised = ValueError("no such version")
    a.handle(send.then)
    assert (errand_error(a, token) if token else a.errors[0]) is raised
