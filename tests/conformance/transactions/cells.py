"""Each request of a transactional producer in each state of its transaction: a cell is one answer and what follows.

The cells of a broker are asked one after the other, each with a transactional id of its own. Producer ids are written
as `same` or `new`, epochs as differences from the one before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from broker.transactional import TransactionalSpeaker
from coterie.errors import ErrorCode
from coterie.protocol.batch import batches
from coterie.protocol.records import marker_of

__all__ = ["Broker", "all_cells", "ask"]

T0, T1 = ("t", 0), ("t", 1)
GROUP = "g"
BUSY = (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
Client = TransactionalSpeaker


class Broker(Protocol):
    """A broker that is asked: Apache Kafka on a socket, or ours without one."""

    def connect(self, transactional_id: str) -> Client: ...

    def wait(self, ms: int) -> None:
        """Let time pass."""


def patiently(broker: Broker, call: Callable[[], Any], error_of: Callable[[Any], ErrorCode]) -> Any:
    """Ask again while the end of the transaction before is under way."""
    for _ in range(500):
        answer = call()
        if error_of(answer) not in BUSY:
            return answer
        broker.wait(20)
    raise AssertionError(f"still busy: {answer}")


def settled(broker: Broker, client: Client) -> str:
    for _ in range(500):
        state = client.state
        if not state.startswith("Prepare"):
            return state
        broker.wait(20)
    raise AssertionError(f"still {state}")


# --- states -----------------------------------------------------------------------------------------------------------


def _init(broker: Broker, client: Client, timeout_ms: int = 60_000) -> None:
    answer = patiently(broker, lambda: client.init(timeout_ms=timeout_ms), lambda answer: answer.error)
    assert not answer.error, answer


def absent(_broker: Broker, client: Client) -> None:
    client.ids = 4_000_000, 0


def empty(broker: Broker, client: Client) -> None:
    for _ in range(3):
        _init(broker, client)


def ongoing_old(broker: Broker, client: Client) -> None:
    empty(broker, client)
    added = patiently(broker, lambda: client.add(T0), lambda answer: answer[T0])
    assert not added[T0], added
    assert not client.write(b"old", version=11).error


def ongoing_new(broker: Broker, client: Client) -> None:
    empty(broker, client)
    answer = patiently(broker, lambda: client.write(b"new"), lambda answer: answer.error)
    assert not answer.error, answer


def _ended(begin: Callable[[Broker, Client], None], *, commit: bool, version: int) -> Callable[[Broker, Client], None]:
    def end(broker: Broker, client: Client) -> None:
        begin(broker, client)
        answer = client.end(commit=commit, version=version)
        assert not answer.error, answer
        settled(broker, client)

    return end


def fenced(broker: Broker, client: Client) -> None:
    ongoing_new(broker, client)
    other = broker.connect(client.tx)
    patiently(broker, other.init, lambda answer: answer.error)


def timed_out(broker: Broker, client: Client) -> None:
    _init(broker, client)
    _init(broker, client, timeout_ms=1_000)
    answer = patiently(broker, lambda: client.write(b"late"), lambda answer: answer.error)
    assert not answer.error, answer
    for _ in range(100):
        if settled(broker, client) == "CompleteAbort":
            return
        broker.wait(300)
    raise AssertionError("it does not time out")


STATES: Mapping[str, Callable[[Broker, Client], None]] = {
    "absent": absent,
    "Empty": empty,
    "Ongoing, older requests": ongoing_old,
    "Ongoing, newer requests": ongoing_new,
    "CompleteCommit, older": _ended(ongoing_old, commit=True, version=4),
    "CompleteCommit, newer": _ended(ongoing_new, commit=True, version=5),
    "CompleteAbort, older": _ended(ongoing_old, commit=False, version=4),
    "CompleteAbort, newer": _ended(ongoing_new, commit=False, version=5),
    "aborted while nothing was there": _ended(empty, commit=False, version=5),
    "fenced": fenced,
    "timed out": timed_out,
}


# --- requests ---------------------------------------------------------------------------------------------------------


def _at(client: Client, epochs: int = 0, producer_ids: int = 0) -> tuple[int, int]:
    return client.ids[0] + producer_ids, client.ids[1] + epochs


def _produce(version: int, partition: int = 0, **at: int) -> Callable[[Client], Any]:
    def ask(client: Client) -> Any:
        sequence = client.sequences.get(("t", partition), 0)
        return client.write(b"x", partition=partition, version=version, ids=_at(client, **at), sequence=sequence).error

    return ask


def _offsets(version: int, **at: int) -> Callable[[Client], Any]:
    return lambda client: client.commit_offsets({T0: 5}, GROUP, version=version, ids=_at(client, **at))[0]


def _end(*, commit: bool, version: int, **at: int) -> Callable[[Client], Any]:
    return lambda client: client.end(commit=commit, version=version, ids=_at(client, **at))


REQUESTS: Mapping[str, Callable[[Client], Any]] = {
    "InitProducerId": lambda client: client.init(),
    "InitProducerId, given": lambda client: client.init(_at(client)),
    "InitProducerId, given the epoch before": lambda client: client.init(_at(client, -1)),
    "InitProducerId, given a later epoch": lambda client: client.init(_at(client, 1)),
    "InitProducerId, given another producer id": lambda client: client.init(_at(client, 0, 1)),
    "InitProducerId, no timeout": lambda client: client.init(timeout_ms=0),
    "AddPartitionsToTxn 3": lambda client: client.add(T1)[T1],
    "AddPartitionsToTxn 3, what is there": lambda client: client.add(T0)[T0],
    "AddPartitionsToTxn 3, the epoch before": lambda client: client.add(T1, ids=_at(client, -1))[T1],
    "AddPartitionsToTxn 3, a later epoch": lambda client: client.add(T1, ids=_at(client, 1))[T1],
    "AddPartitionsToTxn 3, another producer id": lambda client: client.add(T1, ids=_at(client, 0, 1))[T1],
    "AddPartitionsToTxn 3, an unknown partition": lambda client: client.add(T1, ("t", 99))[T1],
    "AddPartitionsToTxn 5": lambda client: client.add(T1, version=5)[T1],
    "AddPartitionsToTxn 5, verified, there": lambda client: client.add(T0, version=5, verify_only=True)[T0],
    "AddPartitionsToTxn 5, verified, not there": lambda client: client.add(T1, version=5, verify_only=True)[T1],
    "AddOffsetsToTxn": lambda client: client.add_offsets(GROUP),
    "AddOffsetsToTxn, the epoch before": lambda client: client.add_offsets(GROUP, ids=_at(client, -1)),
    **{
        f"EndTxn {version}, {'commit' if commit else 'abort'}{words}": _end(commit=commit, version=version, **at)
        for version in (1, 4, 5)
        for commit in (True, False)
        for words, at in (
            ("", {}),
            (", the epoch before", {"epochs": -1}),
            (", a later epoch", {"epochs": 1}),
            (", another producer id", {"producer_ids": 1}),
        )
    },
    **{
        f"Produce {version}, partition {partition}{words}": _produce(version, partition, **at)
        for version in (10, 11, 12)
        for partition in (0, 1)
        for words, at in (
            ("", {}),
            (", the epoch before", {"epochs": -1}),
            (", a later epoch", {"epochs": 1}),
        )
    },
    **{
        f"TxnOffsetCommit {version}{words}": _offsets(version, **at)
        for version in (3, 4, 5)
        for words, at in (
            ("", {}),
            (", the epoch before", {"epochs": -1}),
            (", a later epoch", {"epochs": 1}),
            (", another producer id", {"producer_ids": 1}),
        )
    },
}


# --- asking -----------------------------------------------------------------------------------------------------------


def all_cells() -> Iterator[tuple[str, str]]:
    return ((state, request) for state in STATES for request in REQUESTS)


def ask(broker: Broker, number: int, state: str, request: str) -> str:
    """Return the answer of a cell, the state after it, and the markers that it led to."""
    client = broker.connect(f"tx-{number}")
    STATES[state](broker, client)
    before, ends = client.ids, [client.read_log(committed=False, partition=each).high_watermark for each in (0, 1)]
    answer = REQUESTS[request](client)
    after = settled(broker, client)
    (described,) = client.describe()
    said = _written(answer, before)
    if described.error:
        return f"{said}; {described.error.name}"
    ids = _ids(described.producer_id, described.producer_epoch, before)
    partitions = " ".join(sorted(f"{name}-{number}" for name, number in client.partitions))
    markers = " ".join(_markers(client, before, ends))
    return f"{said}; {after} {ids} [{partitions}] {markers}".rstrip()


def _written(answer: Any, before: tuple[int, int]) -> str:
    if isinstance(answer, ErrorCode):
        return answer.name
    if answer.error or answer.producer_id < 0:
        assert (answer.producer_id, answer.producer_epoch) == (-1, -1), answer
        return str(answer.error.name)
    return f"{answer.error.name} {_ids(answer.producer_id, answer.producer_epoch, before)}"


def _ids(producer_id: int, epoch: int, before: tuple[int, int]) -> str:
    return f"same {epoch - before[1]:+d}" if producer_id == before[0] else f"new {epoch}"


def _markers(client: Client, before: tuple[int, int], ends: list[int]) -> Iterator[str]:
    for partition, end in enumerate(ends):
        data = bytes(client.read_log(end, committed=False, partition=partition).records or b"")
        for at, header in batches(data):
            if header.is_control and header.producer_id == before[0] and header.base_offset >= end:
                marker = marker_of(data, header, at)
                assert marker is not None
                kind = "commit" if marker.committed else "abort"
                yield f"{kind} t-{partition} {header.producer_epoch - before[1]:+d}"
