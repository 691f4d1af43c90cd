"""Turns at partitions, for the tasks that write a transaction: the driver gives them, on a socket.

A partition takes the batches of a producer id in the order of their sequences, so one task at a time writes to it
(`client/producer/transaction_worker.py`). The driver knows the next sequence of each partition, and therefore how many
records each task has in the transaction:

- Of the attempts of a task, the first that gets a turn is the only one that ever gets one.
- A task that ends while it has a turn breaks the transaction, since nobody knows what it has written: no task gets a
  turn after that.
- At the end, the tasks whose results Spark has taken must be those that had turns, with as many records (`end_with`).

So whatever Spark runs twice, the transaction has each row once, or is aborted. A task shows that it knows the secret of
its transaction, which Spark has given it with its code, before it is answered.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import secrets
import socket
from collections import Counter
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import NamedTuple, Self

from coterie.client.network.runtime import background
from coterie.client.types import TopicPartition
from coterie.errors import CoterieError
from coterie.protocol.batch import MAX_SEQUENCE

__all__ = ["GivenTurns", "TaskAttempt", "TaskTurns", "TurnServer", "TurnsAt"]

MOST_WANTED = 1000
"""The number of partitions that a task asks for at a time."""
LONGEST_LINE = MOST_WANTED * 512


class TaskAttempt(NamedTuple):
    task: int
    """The number of its partition of rows."""
    attempt: int
    """A number that no other attempt has, of whatever task."""


class TurnsAt(NamedTuple):
    """Where tasks ask for turns, and what they show that they know."""

    host: str
    port: int
    secret: bytes


class GivenTurns:
    """The rules: who has a turn at which partition, and who has had one."""

    def __init__(self) -> None:
        self.connected = 0
        """The number of tasks that may ask."""
        self.records: Counter[int] = Counter()
        """The records in the transaction, by the attempt that wrote them."""
        self._next: dict[TopicPartition, int] = {}
        self._had_by: dict[TopicPartition, TaskAttempt] = {}
        self._writers: dict[int, int] = {}
        self._problem = ""

    def take(self, who: TaskAttempt, wanted: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Give turns at partitions that are free, and return their sequences; none: it has to wait.

        With more tasks each gets fewer, so that all can write.

        Raises:
            CoterieError: The transaction can only be aborted.
        """
        if self._problem:
            raise CoterieError(self._problem)
        if self._writers.get(who.task, who.attempt) != who.attempt:
            raise CoterieError(
                f"task {who.task} of a transaction was run a second time, and had written rows: the whole batch is "
                "written again, in the next transaction"
            )
        free = [where for where in wanted if where not in self._had_by]
        mine = free[: max(1, len(wanted) // max(1, self.connected))]
        if mine:
            self._writers[who.task] = who.attempt
            self._had_by.update(dict.fromkeys(mine, who))
        return {where: self._next.get(where, 0) for where in mine}

    def give_back(self, who: TaskAttempt, sequences: Mapping[TopicPartition, int]) -> None:
        for where, sequence in sequences.items():
            if self._had_by.get(where) != who:
                raise CoterieError(f"task {who.task} gives back a turn at {where}, and does not have it")
            self.records[who.attempt] += (sequence - self._next.get(where, 0)) & MAX_SEQUENCE
            self._next[where] = sequence
            del self._had_by[where]

    def leave(self, who: TaskAttempt) -> None:
        """Note that a task has ended, or cannot be heard any more."""
        if who in self._had_by.values():
            self._problem = (
                f"task {who.task} of the transaction has ended while it wrote rows: the transaction is aborted"
            )

    def end(self) -> None:
        """Give no more turns."""
        self._problem = self._problem or "the transaction has ended"

    def end_with(self, results: Mapping[int, int]) -> None:
        """End, and raise unless the attempts with these results, and no others, have written, and as many records."""
        if self._problem:
            raise CoterieError(self._problem)
        self.end()
        if self._had_by or self.records != Counter(results):
            raise CoterieError(
                f"tasks say that they have written {sum(results.values())} rows, and {self.records.total()} are in the "
                "transaction: it is aborted"
            )


class TurnServer:
    """Gives the tasks of one transaction their turns, while it is open."""

    def __init__(self, bind: str, host: str, port: int = 0) -> None:
        """Listen on the address `bind`; tasks reach it as `host`. The port 0 is any that is free."""
        self._given = GivenTurns()
        self._secret = secrets.token_bytes(32)
        self._changed = asyncio.Condition()
        self._writers: set[asyncio.StreamWriter] = set()
        self._server = background().run(asyncio.start_server(self._serve, bind, port, limit=LONGEST_LINE))
        self.at = TurnsAt(host, self._server.sockets[0].getsockname()[1], self._secret)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        background().run(self._close())

    def end_with(self, results: Mapping[int, int]) -> None:
        """Give no more turns, and check that tasks with these results have written what is in the transaction.

        Raises:
            CoterieError: It is not so. The transaction can only be aborted.
        """
        background().run(self._end_with(results))

    async def _end_with(self, results: Mapping[int, int]) -> None:
        self._given.end_with(results)

    async def _close(self) -> None:
        self._server.close()
        self._given.end()
        await self._notify()
        for writer in self._writers:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            who = await self._introduced(reader, writer)
            if who is not None:
                await self._answer(who, reader, writer)
        except (ConnectionError, ValueError):
            pass  # the client is gone, or sent something else
        finally:
            self._writers.remove(writer)
            writer.close()

    async def _introduced(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> TaskAttempt | None:
        """Return who is there, if it knows the secret."""
        challenge = secrets.token_hex(32)
        writer.write(f"{challenge}\n".encode())
        name, _, proof = (await reader.readline()).decode().strip().rpartition(" ")
        if not hmac.compare_digest(proof.encode(), _proof(self._secret, challenge, name).encode()):
            return None
        return TaskAttempt(*map(int, name.split()))

    async def _answer(self, who: TaskAttempt, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._given.connected += 1
        try:
            while line := await reader.readline():
                message = json.loads(line)
                try:
                    self._given.give_back(who, _from_rows(message["gives"]))
                    answer: dict[str, object] = {"turns": _in_rows(await self._when_free(who, message["wants"]))}
                except CoterieError as error:
                    answer = {"refused": str(error)}
                writer.write(json.dumps(answer).encode() + b"\n")
        finally:
            self._given.connected -= 1
            self._given.leave(who)
            await self._notify()

    async def _when_free(self, who: TaskAttempt, wants: Sequence[Sequence[object]]) -> dict[TopicPartition, int]:
        await self._notify()
        wanted = [TopicPartition(str(topic), int(str(partition))) for topic, partition in wants]
        async with self._changed:
            while wanted and not (mine := self._given.take(who, wanted)):
                await self._changed.wait()
        return mine if wanted else {}

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()


class TaskTurns:
    """The turns of one task; `Turns` of a `TransactionWorker`."""

    def __init__(self, at: TurnsAt, who: TaskAttempt, timeout_s: float) -> None:
        """Connect to the driver. Nothing is waited for longer than the timeout."""
        name = f"{who.task} {who.attempt}"
        try:
            self._socket = socket.create_connection((at.host, at.port), timeout_s)
            self._lines = self._socket.makefile("rb")
            challenge = self._lines.readline().decode().strip()
            self._socket.sendall(f"{name} {_proof(at.secret, challenge, name)}\n".encode())
        except OSError as error:
            raise CoterieError(
                f"a task cannot reach the driver at {at.host}:{at.port}, which gives turns at partitions: {error}. The "
                "driver's address is spark.driver.host; TransactionalSink has an argument for the port"
            ) from error

    def take(self, wanted: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return self._exchange({}, wanted[:MOST_WANTED])

    def give_back(self, sequences: Mapping[TopicPartition, int]) -> None:
        self._exchange(sequences, ())

    def close(self) -> None:
        self._lines.close()
        self._socket.close()

    def _exchange(
        self, gives: Mapping[TopicPartition, int], wants: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int]:
        try:
            self._socket.sendall(json.dumps({"gives": _in_rows(gives), "wants": wants}).encode() + b"\n")
            line = self._lines.readline()
        except OSError as error:
            raise CoterieError(f"the driver does not answer a task that wants to write: {error}") from error
        if not line:
            raise CoterieError("the driver has ended the transaction while a task wrote")
        answer = json.loads(line)
        if "refused" in answer:
            raise CoterieError(answer["refused"])
        return _from_rows(answer["turns"])


def _proof(secret: bytes, challenge: str, name: str) -> str:
    return hmac.new(secret, f"{challenge} {name}".encode(), "sha256").hexdigest()


def _in_rows(sequences: Mapping[TopicPartition, int]) -> list[tuple[str, int, int]]:
    return [(*where, sequence) for where, sequence in sequences.items()]


def _from_rows(rows: Sequence[tuple[str, int, int]]) -> dict[TopicPartition, int]:
    return {TopicPartition(topic, partition): sequence for topic, partition, sequence in rows}
