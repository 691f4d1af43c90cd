"""Who may connect, who is sent away for room, what waits its turn, and what of it all is told."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from coterie.broker.broker_facts import AuthenticationFailed, ConnectionDropped, FactsLeftOut, Trouble
from coterie.broker.calls import WAITING_BYTES, Call, Connection, Route
from coterie.broker.connection_limits import LITTLE, MUCH, SPARE_FILES, ConnectionLimits, silence_of
from coterie.broker.io.fact_listeners import MOST, PERIOD_MS, LogRateLimit
from coterie.broker.io.scheduling import BUSY_MS, FRAMES, LARGE, SPARE, Scheduling
from coterie.facts import GroupDied
from coterie.protocol.apis import by_key, heartbeat
from coterie.settings.broker_settings import BrokerSettings
from coterie.settings.config_def import SettingsError

MIB = 1 << 20
ROUTE = Route(by_key[heartbeat.API.key], heartbeat, lambda *_: [])


class Crowd:
    """Connections that hold as much as the test says."""

    def __init__(self, settings: Mapping[str, object] | None = None, files: int = 100_000) -> None:
        self.sizes: dict[Connection, int] = {}
        self.dropped: list[Connection] = []
        self.limits = ConnectionLimits(
            BrokerSettings.of(settings or {}), files, lambda one: self.sizes[one], self._drop
        )

    def _drop(self, connection: Connection, why: str) -> None:
        assert "queued.max.request.bytes" in why
        connection.is_closed = True
        self.dropped.append(connection)

    def comes(self, host: str = "10.0.0.1") -> Connection:
        connection = Connection(host)
        assert self.limits.refusal_of(host, 0) is None
        self.limits.came(connection)
        self.sizes[connection] = 0
        return connection

    def holds(self, connection: Connection, size: int) -> bool:
        self.sizes[connection] = size
        return self.limits.weigh(connection)


LIMIT = {"queued.max.request.bytes": 100 * MIB, "socket.request.max.bytes": 50 * MIB}


# --- connections ------------------------------------------------------------------------------------------------------


def test_connections_are_counted_in_all_and_for_each_address() -> None:
    settings = {"max.connections": 4, "max.connections.per.ip": 2, "max.connections.per.ip.overrides": "10.0.0.9:3"}
    crowd = Crowd(settings)
    first = crowd.comes("10.0.0.1")
    crowd.comes("10.0.0.1")
    assert "from 10.0.0.1, as many as max.connections.per.ip" in str(crowd.limits.refusal_of("10.0.0.1", 0))
    assert crowd.limits.refusal_of("10.0.0.9", 0) is None
    crowd.limits.went(first)
    assert crowd.limits.refusal_of("10.0.0.1", 0) is None
    for _ in range(3):
        crowd.comes("10.0.0.9")
    assert "4 connections, as many as max.connections" in str(crowd.limits.refusal_of("10.0.0.2", 0))


def test_files_are_left_for_the_logs() -> None:
    """Connections that take the last file would make every write fail."""
    crowd = Crowd(files=SPARE_FILES + 12)
    crowd.comes()
    assert crowd.limits.refusal_of("10.0.0.1", 10) is None
    assert "ulimit -n" in str(crowd.limits.refusal_of("10.0.0.1", 11))


@pytest.mark.parametrize("text", ["10.0.0.1", "10.0.0.1:", ":5", "10.0.0.1:many"])
def test_an_override_is_an_address_and_a_count(text: str) -> None:
    with pytest.raises(SettingsError, match=r"max\.connections\.per\.ip\.overrides"):
        BrokerSettings.of({"max.connections.per.ip.overrides": text})


def test_who_is_silent_and_waits_for_nothing_is_sent_away_and_who_never_finishes() -> None:
    connection = Connection("10.0.0.1")
    assert silence_of(connection, silent_ms=1_000, arriving_ms=1_000, idle_ms=1_000) is None
    assert "nothing was heard for 1000 ms" in str(silence_of(connection, 1_001, 0, 1_000))
    assert "one request took more than 1000 ms" in str(silence_of(connection, 0, 1_001, 1_000))
    connection.call = Call(connection, ROUTE, 4, 1)
    assert silence_of(connection, 1_001, 0, 1_000) is None


def test_what_waits_is_counted_in_requests_and_in_bytes_and_forgotten_as_a_whole() -> None:
    connection = Connection("10.0.0.1")
    for frame in (b"one", b"three"):
        connection.put_off(frame)
    assert connection.waits_with_more_than(0.5, 3) and not connection.waits_with_more_than(1, 2)
    assert (connection.next_waiting(), connection.waiting_bytes) == (b"one", 5)
    connection.put_off(bytes(WAITING_BYTES))
    assert connection.waits_with_more_than(1, 100)
    connection.forget_waiting()
    assert not connection.waiting and not connection.waits_with_more_than(0, 100)


# --- memory -----------------------------------------------------------------------------------------------------------


def test_who_has_held_much_for_the_longest_time_goes_first() -> None:
    crowd = Crowd(LIMIT)
    small, old, young, last = (crowd.comes() for _ in range(4))
    assert crowd.holds(small, LITTLE - 1)
    assert crowd.holds(old, 10 * MIB) and crowd.holds(young, 40 * MIB)
    assert crowd.holds(old, 12 * MIB), "holding more does not make it younger"
    assert crowd.holds(last, 40 * MIB) and not crowd.dropped
    crowd.holds(last, 49 * MIB)
    assert crowd.dropped == [old]


def test_the_small_go_only_when_nobody_holds_much() -> None:
    crowd = Crowd({"queued.max.request.bytes": 1_000, "socket.request.max.bytes": 1_000})
    people = [crowd.comes() for _ in range(11)]
    for one in people:
        crowd.holds(one, 100)
    assert crowd.dropped == people[:2], "and a sixteenth of the room is free then"


def test_what_was_answered_meanwhile_does_not_count() -> None:
    crowd = Crowd(LIMIT)
    first, second = crowd.comes(), crowd.comes()
    crowd.holds(first, 80 * MIB)
    crowd.sizes[first] = 0
    crowd.holds(second, 80 * MIB)
    assert not crowd.dropped
    assert not crowd.holds(second, 0)


def test_the_less_room_there_is_the_smaller_are_the_answers() -> None:
    crowd = Crowd(LIMIT)
    one = crowd.comes()
    room = crowd.limits.room()
    crowd.holds(one, 50 * MIB)
    assert crowd.limits.room() == room // 2
    crowd.limits.went(one)
    assert crowd.limits.room() == room


def test_the_largest_request_fits_into_what_may_be_held() -> None:
    """As Kafka demands."""
    with pytest.raises(SettingsError, match="the largest request could never be taken"):
        BrokerSettings.of({"queued.max.request.bytes": 1_000})
    assert BrokerSettings.of({}).most_held_bytes == 512 * MIB
    assert BrokerSettings.of({"socket.request.max.bytes": 200 * MIB}).most_held_bytes == 1_000 * MIB


# --- turns ------------------------------------------------------------------------------------------------------------

FETCH, HEARTBEAT = b"\0\1\0\x0c", b"\0\x0c\0\4"


def test_a_request_that_arrives_alone_is_answered_at_once_and_some_of_those_that_arrive_together() -> None:
    turns = Scheduling()
    burst = [HEARTBEAT] * (FRAMES + 1)
    assert turns.at_once([HEARTBEAT] * 3, 1_000) == 3
    assert [turns.at_once(burst, 1_000) for _ in range(3)] == [FRAMES] * 3
    assert turns.at_once(burst, 1_000) == SPARE - 3 - 3 * FRAMES
    assert not turns.at_once(burst, 1_000)
    assert turns.at_once([HEARTBEAT], 1_000) == 1


def test_the_longer_the_queue_the_fewer_requests_have_their_turn() -> None:
    turns = Scheduling()
    assert turns.share == FRAMES
    turns.queue.extend([None] * 100)  # type: ignore[list-item]
    assert turns.share == 1


def test_what_costs_much_waits_when_the_loop_has_been_busy_for_long() -> None:
    turns = Scheduling()
    assert turns.at_once([FETCH], 1_000)
    turns.worked(1_000 + BUSY_MS)
    assert turns.at_once([FETCH], 1_000 + BUSY_MS)
    turns.worked(1_010 + BUSY_MS)
    assert not turns.at_once([FETCH], 1_010 + BUSY_MS)
    assert not turns.at_once([HEARTBEAT + bytes(LARGE)], 1_010 + BUSY_MS)
    assert turns.at_once([HEARTBEAT], 1_010 + BUSY_MS)


def test_after_a_rest_nothing_waits() -> None:
    turns = Scheduling()
    turns.at_once([FETCH], 1_000)
    turns.worked(2_000)
    assert turns.at_once([FETCH], 2_002)
    assert turns.at_once([FETCH], 2_003)


# --- what is told -----------------------------------------------------------------------------------------------------


def test_a_flood_of_drops_is_told_as_some_and_a_sum() -> None:
    quiet = LogRateLimit()
    told = [fact for number in range(1_000) for fact in quiet.hear(drop(5_000 + number // 2))]
    assert told == [drop(5_000 + number // 2) for number in range(MOST)] and quiet.owes
    (total,) = quiet.sums(6_000)
    assert isinstance(total, FactsLeftOut)
    assert (total.kind, total.count, total.last) == ("ConnectionDropped", 1_000 - MOST, "10.0.0.1: nonsense")
    assert not quiet.owes and not quiet.sums(7_000)


def test_a_flood_of_wrong_passwords_is_told_as_some_and_a_sum_with_the_address() -> None:
    quiet = LogRateLimit()
    failed = AuthenticationFailed(5_000, "", "10.0.0.1", "LOGIN", "PLAIN", "wrong")
    assert sum(len(quiet.hear(failed)) for _ in range(1_000)) == MOST
    (total,) = quiet.sums(6_000)
    assert isinstance(total, FactsLeftOut)
    assert (total.kind, total.count, total.last) == (
        "AuthenticationFailed",
        1_000 - MOST,
        "10.0.0.1: LOGIN: PLAIN: wrong",
    )


def test_in_the_next_second_it_is_told_again_after_the_sum() -> None:
    quiet = LogRateLimit()
    for _ in range(MOST + 1):
        quiet.hear(drop(5_000))
    total, next_one = quiet.hear(drop(5_000 + PERIOD_MS))
    assert isinstance(total, FactsLeftOut) and total.count == 1 and isinstance(next_one, ConnectionDropped)


def test_kinds_are_counted_apart_and_groups_are_never_left_out() -> None:
    quiet = LogRateLimit()
    for _ in range(2 * MOST):
        quiet.hear(drop(5_000))
    assert quiet.hear(Trouble(5_000, "", "disk full"))
    assert all(quiet.hear(GroupDied(5_000, "g", "gone")) for _ in range(2 * MOST))


def drop(at_ms: int) -> ConnectionDropped:
    return ConnectionDropped(at_ms, "", "10.0.0.1", "nonsense")


def test_memory_is_returned_once_after_most_of_a_large_amount_was_let_go() -> None:
    crowd = Crowd(LIMIT)
    one, other = crowd.comes(), crowd.comes()
    crowd.holds(one, MUCH - 1)
    crowd.holds(one, 0)
    assert not crowd.limits.has_let_go(), "it was not much"
    crowd.holds(one, MUCH)
    crowd.holds(other, MUCH)
    assert not crowd.limits.has_let_go()
    crowd.holds(one, 0)
    assert not crowd.limits.has_let_go(), "half is still held"
    crowd.limits.went(other)
    assert crowd.limits.has_let_go()
    assert not crowd.limits.has_let_go()
