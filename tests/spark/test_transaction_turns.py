"""Turns at partitions: the rules, and tasks that ask for them on real sockets."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from coterie.client.types import TopicPartition
from coterie.errors import CoterieError
from coterie.protocol.batch import MAX_SEQUENCE
from coterie.spark.transaction_turns import GivenTurns, TaskAttempt, TaskTurns, TurnsAt, TurnServer

BILLS = [TopicPartition("bills", partition) for partition in range(4)]
ONE, OTHER = TaskAttempt(0, 70), TaskAttempt(1, 71)
AGAIN = TaskAttempt(0, 72)


@pytest.fixture
def given() -> GivenTurns:
    return GivenTurns()


def wrote(given: GivenTurns, who: TaskAttempt, records: int, where: TopicPartition = BILLS[0]) -> None:
    given.give_back(who, {where: given.take(who, [where])[where] + records})


def test_a_task_goes_on_where_the_one_before_has_ended(given: GivenTurns) -> None:
    assert given.take(ONE, BILLS[:1]) == {BILLS[0]: 0}
    assert given.take(OTHER, BILLS[:1]) == {}, "it waits"
    given.give_back(ONE, {BILLS[0]: 5})
    assert given.take(OTHER, BILLS[:1]) == {BILLS[0]: 5}


def test_tasks_share_the_partitions(given: GivenTurns) -> None:
    assert len(given.take(ONE, BILLS)) == 4, "it is alone"
    given.give_back(ONE, dict.fromkeys(BILLS, 0))
    given.connected = 2
    assert [len(given.take(who, BILLS)) for who in (ONE, OTHER)] == [2, 2]
    given.connected = 9
    given.give_back(ONE, dict.fromkeys(BILLS[:2], 0))
    assert len(given.take(ONE, BILLS)) == 1


def test_a_task_that_runs_again_gets_no_turn_if_its_first_attempt_had_one(given: GivenTurns) -> None:
    wrote(given, ONE, 5)
    with pytest.raises(CoterieError, match="task 0 of a transaction was run a second time"):
        given.take(AGAIN, BILLS)


def test_a_task_that_failed_before_it_wrote_can_run_again_and_its_first_attempt_cannot_come_back(
    given: GivenTurns,
) -> None:
    given.leave(ONE)
    wrote(given, AGAIN, 5)
    with pytest.raises(CoterieError, match="a second time"):
        given.take(ONE, BILLS)
    given.end_with({AGAIN.attempt: 5})


def test_a_task_that_ends_with_a_turn_breaks_the_transaction(given: GivenTurns) -> None:
    given.take(ONE, BILLS[:1])
    given.leave(ONE)
    with pytest.raises(CoterieError, match="has ended while it wrote rows"):
        given.take(OTHER, BILLS)
    with pytest.raises(CoterieError, match="has ended while it wrote rows"):
        given.end_with({})


@pytest.mark.parametrize(
    "results",
    [{}, {70: 4}, {70: 5, 71: 1}, {72: 5}],
    ids=["Spark took no result", "fewer records", "a task that never wrote", "another attempt"],
)
def test_what_spark_has_taken_must_be_what_was_written(given: GivenTurns, results: dict[int, int]) -> None:
    wrote(given, ONE, 5)
    with pytest.raises(CoterieError, match="it is aborted"):
        given.end_with(results)


def test_records_are_counted_across_the_last_sequence(given: GivenTurns) -> None:
    wrote(given, ONE, MAX_SEQUENCE)
    given.take(OTHER, BILLS[:1])
    given.give_back(OTHER, {BILLS[0]: 2})
    given.end_with({ONE.attempt: MAX_SEQUENCE, OTHER.attempt: 3})


def test_nobody_gets_a_turn_after_the_end(given: GivenTurns) -> None:
    given.end_with({})
    with pytest.raises(CoterieError, match="the transaction has ended"):
        given.take(ONE, BILLS)


def test_a_turn_is_given_back_by_who_has_it(given: GivenTurns) -> None:
    given.take(ONE, BILLS[:1])
    with pytest.raises(CoterieError, match="does not have it"):
        given.give_back(OTHER, {BILLS[0]: 5})


# --- on sockets -------------------------------------------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[TurnServer]:
    with TurnServer("127.0.0.1", "127.0.0.1") as running:
        yield running


def test_tasks_wait_for_each_other(server: TurnServer) -> None:
    with closing(TaskTurns(server.at, ONE, 30)) as one, closing(TaskTurns(server.at, OTHER, 30)) as other:
        assert one.take(BILLS[:1]) == {BILLS[0]: 0}
        with ThreadPoolExecutor() as threads:
            waiting = threads.submit(other.take, BILLS[:1])
            one.give_back({BILLS[0]: 5})
            assert waiting.result(30) == {BILLS[0]: 5}
        other.give_back({BILLS[0]: 8})
    server.end_with({ONE.attempt: 5, OTHER.attempt: 3})


def test_a_task_that_is_killed_with_a_turn_ends_the_waiting_of_the_others(server: TurnServer) -> None:
    with closing(TaskTurns(server.at, OTHER, 30)) as other, ThreadPoolExecutor() as threads:
        with closing(TaskTurns(server.at, ONE, 30)) as one:
            one.take(BILLS[:1])
            waiting = threads.submit(other.take, BILLS[:1])
        with pytest.raises(CoterieError, match="has ended while it wrote rows"):
            waiting.result(30)


def test_a_task_that_waits_hears_of_the_end(server: TurnServer) -> None:
    with (
        closing(TaskTurns(server.at, ONE, 30)) as one,
        closing(TaskTurns(server.at, OTHER, 30)) as other,
        ThreadPoolExecutor() as threads,
    ):
        one.take(BILLS[:1])
        waiting = threads.submit(other.take, BILLS[:1])
        server.__exit__(None, None, None)
        with pytest.raises(CoterieError, match="ended"):
            waiting.result(30)
    with pytest.raises(CoterieError, match="cannot reach the driver"):
        TaskTurns(server.at, ONE, 30)


def test_who_does_not_know_the_secret_gets_no_answer(server: TurnServer) -> None:
    wrong = TurnsAt(server.at.host, server.at.port, b"guessed")
    with closing(TaskTurns(wrong, ONE, 30)) as task, pytest.raises(CoterieError, match="the driver"):
        task.take(BILLS)
    with socket.create_connection((server.at.host, server.at.port), 30) as asking:
        asking.sendall(b"\xff\xff nothing\n")
        asking.settimeout(30)
        while asking.recv(1000):
            pass
    server.end_with({})
