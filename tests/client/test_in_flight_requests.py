"""The requests of one connection by themselves: order, numbers, deadlines, logins in between, idleness."""

from __future__ import annotations

import pytest

from coterie.client.network.in_flight_requests import InFlightRequest, InFlightRequests
from coterie.errors import MalformedError
from coterie.protocol.apis import heartbeat, metadata, produce
from coterie.protocol.frames import read_request_header, request_frame, response_frame

FLEXIBLE = {heartbeat.API.key: 4, metadata.API.key: 9, produce.API.key: 9}


def asked(deadline: float = 30.0) -> InFlightRequest:
    return InFlightRequest(heartbeat.API, 4, 0.0, deadline * 1000)


def send(requests: InFlightRequests, request: InFlightRequest, now: float = 0.0) -> bytes | None:
    return requests.send(request.api, request.version, b"body", request, now)


def answer(number: int) -> bytes:
    return response_frame(number, b"ok", flexible=True)[4:]


@pytest.fixture
def requests() -> InFlightRequests:
    return InFlightRequests("me", 600.0, 0.0)


def test_a_request_is_framed_with_its_number_and_the_client_id(requests: InFlightRequests) -> None:
    first, second = asked(), InFlightRequest(heartbeat.API, 3, 0.0, 30_000)
    assert send(requests, first) == request_frame(12, 4, 1, "me", b"body", flexible=True)
    assert send(requests, second) == request_frame(12, 3, 2, "me", b"body", flexible=False)
    assert (first.correlation_id, second.correlation_id, len(requests)) == (1, 2, 2)


def test_the_first_request_without_an_answer_is_the_one_that_is_answered(requests: InFlightRequests) -> None:
    sent = [asked(), asked()]
    for each in sent:
        send(requests, each)
    found = [requests.answered(answer(number)) for number in (1, 2)]
    assert [request for request, _ in found] == sent and not len(requests)
    assert answer(2)[found[1][1] :] == b"ok"


def test_an_answer_out_of_order_cannot_be_used(requests: InFlightRequests) -> None:
    send(requests, asked())
    send(requests, asked())
    with pytest.raises(MalformedError, match=r"the answer to request 2 came where that to 1 \(Heartbeat\) was due"):
        requests.answered(answer(2))
    assert len(requests) == 2, "what is refused changes nothing"


def test_a_late_answer_finds_nothing_that_was_asked(requests: InFlightRequests) -> None:
    send(requests, asked())
    requests.answered(answer(1))
    with pytest.raises(MalformedError, match="7 bytes came and nothing had been asked"):
        requests.answered(answer(1))


def test_a_request_without_an_answer_is_numbered_and_not_waited_for(requests: InFlightRequests) -> None:
    frame = requests.send(produce.API, 9, b"", None, 0.0)
    assert frame is not None and read_request_header(frame[4:], FLEXIBLE)[2] == 1 and not len(requests)
    follower = asked()
    send(requests, follower)
    assert requests.answered(answer(2))[0] is follower


def test_numbers_begin_again_after_the_highest(requests: InFlightRequests) -> None:
    requests._last_correlation_id = 2**31 - 2
    sent = [asked(), asked()]
    for each in sent:
        send(requests, each)
    assert [each.correlation_id for each in sent] == [2**31 - 1, 1]


def test_the_request_whose_time_ended_first_has_expired_whatever_the_order(requests: InFlightRequests) -> None:
    long, short, shorter = asked(30.0), asked(2.0), asked(1.0)
    for each in (long, short, shorter):
        send(requests, each)
    assert requests.expired(0.999) is None
    assert requests.expired(1.0) is shorter and requests.expired(5.0) is shorter
    assert len(requests) == 3, "the connection has to end, which drops them"
    assert requests.drop() == [long, short, shorter] and not len(requests)


def test_an_answered_request_does_not_expire(requests: InFlightRequests) -> None:
    send(requests, asked(1.0))
    requests.answered(answer(1))
    assert requests.expired(2.0) is None


def test_requests_are_held_back_from_the_login_on_and_go_on_in_order(requests: InFlightRequests) -> None:
    """S33: the login itself is sent, and the earlier requests are still answered."""
    before, login, held = asked(), asked(), [asked(), asked()]
    requests.login_at = 10.0
    assert send(requests, before, 9.9) is not None
    assert [send(requests, each, 10.0) for each in held] == [None, None]
    assert requests.answered(answer(1))[0] is before and not requests.sent
    assert requests.frame(login.api, login.version, b"", login) and login.correlation_id == 2
    assert requests.answered(answer(2))[0] is login
    assert len(requests) == 2 and [each.correlation_id for each in held] == [0, 0]
    released = requests.release()
    assert [each.request for each in released] == held
    for each in released:
        requests.frame(*each)
    assert [each.correlation_id for each in held] == [3, 4]
    assert send(requests, asked(), 11.0) is not None, "the next session has no end yet"


def test_a_request_that_is_held_back_expires_and_is_dropped_like_the_others(requests: InFlightRequests) -> None:
    requests.login_at = 0.0
    held = asked(3.0)
    assert send(requests, held) is None
    requests.send(produce.API, 9, b"", None, 0.0)
    assert len(requests) == 2 and requests.expired(3.0) is held
    assert requests.drop() == [held] and not len(requests) and not requests.release()


def test_a_request_that_was_given_up_during_a_login_does_not_expire_later(requests: InFlightRequests) -> None:
    requests.login_at = 0.0
    send(requests, asked(3.0))
    requests.release()
    assert requests.expired(3.0) is None


def test_a_connection_is_idle_if_nothing_is_asked_and_nothing_is_due(requests: InFlightRequests) -> None:
    assert requests.idle_at == 600.0 and not requests.is_idle(599.0) and requests.is_idle(600.0)
    send(requests, asked(), 500.0)
    assert requests.idle_at == 1100.0
    assert not requests.is_idle(1200.0), "it waits for an answer"
    requests.answered(answer(1))
    assert requests.idle_at == 1800.0 and requests.is_idle(1800.0)


def test_a_connection_may_be_idle_for_ever() -> None:
    requests: InFlightRequests = InFlightRequests("me", -0.001, 0.0)
    assert requests.idle_at == float("inf") and not requests.is_idle(1e9)
