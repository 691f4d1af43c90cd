"""Transactional producers in other languages, which do what a test tells them line by line, and their situations.

Each situation is one function, for every library and every broker. `tests/clients/go/transactions/main.go` and
`tests/clients/rust/src/main.rs` are the programs.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

from clients.either import EitherBroker
from clients.harness import wait_until
from clients.producing import Topics
from clients.test_transactions import values_in
from coterie import Admin, TopicPartition, checked

__all__ = [
    "QUICK_TIMEOUTS",
    "TransactionalProgram",
    "check_commits_and_aborts",
    "check_crash",
    "check_fencing",
    "check_read_process_write",
    "check_timeout",
]

QUICK_TIMEOUTS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}
"""Settings of a broker: it looks for transactions that took too long more often."""
PATIENT_MS = 60_000
SHORT_MS = 1_000
RECORDS = 6


class TransactionalProgram:
    """A producer that runs. `do` returns the error of a call; empty if there is none."""

    def __init__(
        self, path: Path, broker: EitherBroker, name: str, *, timeout_ms: int = PATIENT_MS, group: str = ""
    ) -> None:
        orders = {
            "bootstrap": broker.bootstrap,
            "transactional_id": name,
            "timeout_ms": timeout_ms,
            "group": group,
            "source": f"{name}-in",
            "target": name,
        }
        self._process = subprocess.Popen(
            [path, json.dumps(orders)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def do(self, what: str, **more: str | int) -> str:
        """Let it do one thing, and return the error."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps({"do": what, **more}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the program ended with {self._process.wait()} while it did {what}"
        error: str = json.loads(line).get("error", "")
        return error

    def does(self, *steps: str) -> None:
        """Let it do things, none of which may fail. `send a` sends the value a, and `process 2` processes two."""
        for step in steps:
            what, _, more = step.partition(" ")
            error = self.do(what, count=int(more)) if what == "process" else self.do(what, value=more)
            assert not error, f"{step}: {error}"

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe
            pipe.close()


def check_commits_and_aborts(path: Path, broker: EitherBroker, name: str) -> None:
    """TE1: readers of committed records see those of committed transactions only."""
    Topics(broker.bootstrap).create(name, 1)
    with TransactionalProgram(path, broker, name) as program:
        program.does("init")
        for value, end in (("a", "commit"), ("b", "abort"), ("c", "commit")):
            program.does("begin", f"send {value}", f"send {value}{value}", end)
    assert values_in(broker, name) == [b"a", b"aa", b"c", b"cc"]
    assert values_in(broker, name, committed=False) == [b"a", b"aa", b"b", b"bb", b"c", b"cc"]


def check_fencing(path: Path, broker: EitherBroker, name: str) -> str:
    """TI4, TI5: a second producer of the same id aborts the open transaction. Return the error of the first one."""
    Topics(broker.bootstrap).create(name, 1)
    with TransactionalProgram(path, broker, name) as old, TransactionalProgram(path, broker, name) as new:
        old.does("init", "begin", "send old")
        new.does("init", "begin", "send new", "commit")
        error = old.do("commit")
        new.does("begin", "send newer", "commit")
    assert values_in(broker, name) == [b"new", b"newer"]
    return error


def check_timeout(path: Path, broker: EitherBroker, name: str, late: str) -> tuple[str, str]:
    """TT1, TT2: the broker aborts a transaction that takes too long. `late` is what the producer does then.

    Return the errors of that, and of another transaction after an abort: empty if that is committed.
    """
    Topics(broker.bootstrap).create(name, 1)
    with (
        TransactionalProgram(path, broker, name, timeout_ms=SHORT_MS) as program,
        Admin(bootstrap_servers=broker.bootstrap) as admin,
    ):

        def is_aborted() -> bool:
            return checked(admin.describe_transactions([name]))[name].state == "CompleteAbort"

        program.does("init", "begin", "send early")
        wait_until(is_aborted, "the broker has aborted the transaction", broker.said)
        error = program.do(late, value="late")
        program.do("abort")
        after = program.do("begin") or program.do("send", value="after") or program.do("commit")
    assert values_in(broker, name) == ([] if after else [b"after"])
    return error, after


def check_read_process_write(path: Path, broker: EitherBroker, name: str) -> None:
    """TO4: offsets and output count together, or neither does."""
    _fill(broker, name)
    with TransactionalProgram(path, broker, name, group=name) as program:
        program.does("init", "begin", "process 4", "abort")
        assert _committed(broker, name) is None
        program.does("begin", "process 4", "commit")
        assert _committed(broker, name) == 4
        program.does("begin", "process 2", "commit")
        assert _committed(broker, name) == RECORDS
    assert values_in(broker, name) == _processed(name)


def check_crash(path: Path, broker: EitherBroker, name: str) -> None:
    """TI5, TO5: who takes the id over of a producer that crashed goes on where the last commit was."""
    _fill(broker, name)
    with TransactionalProgram(path, broker, name, group=name) as first:
        first.does("init", "begin", "process 2", "commit", "begin", "process 3")
    with TransactionalProgram(path, broker, name, group=name) as second:
        second.does("init", "begin", "process 4", "commit")
    assert _committed(broker, name) == RECORDS
    assert values_in(broker, name) == _processed(name)
    assert len(values_in(broker, name, committed=False)) == 9


def _fill(broker: EitherBroker, name: str) -> None:
    """Create the topics, with records to read."""
    topics = Topics(broker.bootstrap)
    topics.create(name, 1)
    topics.fill(topics.create(f"{name}-in", 1), RECORDS)


def _processed(name: str) -> list[bytes]:
    return [f"out-{name}-in/0/{number}".encode() for number in range(RECORDS)]


def _committed(broker: EitherBroker, name: str) -> int | None:
    place = TopicPartition(f"{name}-in", 0)
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        found = checked(admin.list_group_offsets(name, require_stable=True)).get(place)
    return None if found is None else found.offset
