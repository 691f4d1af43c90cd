"""`coterie transactions`: each command returns rows. The columns are those of kafka-transactions.sh 4.x."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from coterie.cli.options import CommandError
from coterie.cli.output import Cell, Rows
from coterie.client.admin import Admin, ProducerState, checked
from coterie.client.types import TopicPartition
from coterie.errors import ErrorCode, KafkaError

LISTED = ("TRANSACTIONAL-ID", "COORDINATOR", "PRODUCER-ID", "STATE")
DESCRIBED = (
    *("COORDINATOR", "TRANSACTIONAL-ID", "PRODUCER-ID", "PRODUCER-EPOCH", "STATE"),
    *("TIMEOUT-MS", "START-TIME-MS", "DURATION-MS", "PARTITIONS"),
)
HANGING = (
    *("TOPIC", "PARTITION", "PRODUCER-ID", "PRODUCER-EPOCH", "COORDINATOR-EPOCH"),
    *("START-OFFSET", "LAST-TIMESTAMP", "DURATION-MIN"),
)
OPEN = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort"})
"""The states in which a transaction has partitions."""
_MINUTE_MS = 60_000

K = TypeVar("K")
T = TypeVar("T")


def list_all(admin: Admin, *, states: Sequence[str], longer_than_ms: int | None, pattern: str | None) -> Rows:
    wanted = [state for word in states for state in word.split(",") if state]
    found = admin.list_transactions(
        states=wanted, running_longer_than_ms=longer_than_ms, transactional_id_pattern=pattern
    )
    rows = [(one.transactional_id, one.coordinator.id, one.producer_id, one.state) for one in found]
    is_filtered = wanted or longer_than_ms is not None or pattern is not None
    notes = [] if rows else ["no transactional id matches" if is_filtered else "there are no transactional ids"]
    return Rows(LISTED, rows, notes)


def describe(admin: Admin, ids: Sequence[str], now_ms: int) -> Rows:
    names = ids or [one.transactional_id for one in admin.list_transactions()]
    found = admin.describe_transactions(names)
    rows: list[Sequence[Cell]] = []
    for one in _values(found):
        lasts_ms = now_ms - one.started_ms if one.started_ms is not None and one.state in OPEN else None
        rows.append(
            (
                one.coordinator.id,
                one.transactional_id,
                one.producer_id,
                one.producer_epoch,
                one.state,
                one.timeout_ms,
                one.started_ms,
                lasts_ms,
                ",".join(map(str, sorted(one.partitions))),
            )
        )
    return Rows(DESCRIBED, rows, [] if names else ["there are no transactional ids"], _errors(found))


def abort(admin: Admin, ids: Sequence[str]) -> Rows:
    """Fence the producers of ids that exist; another one would be created by that."""
    before = admin.describe_transactions(ids)
    known = [one.transactional_id for one in _values(before)]
    fenced = admin.fence_producers(known)
    rows: list[Sequence[Cell]] = []
    for one in _values(before):
        if fenced[one.transactional_id] is None:
            done = "aborted" if one.state == "Ongoing" else "had no open transaction"
            rows.append((one.transactional_id, one.producer_id, one.producer_epoch, done))
    columns = ("TRANSACTIONAL-ID", "PRODUCER-ID", "PRODUCER-EPOCH", "RESULT")
    return Rows(columns, rows, errors=_errors(before) + _errors(fenced))


def abort_hanging(admin: Admin, where: str, start_offset: int) -> Rows:
    topic, _, number = where.rpartition(":")
    if not topic or not number.isdecimal():
        raise CommandError(f"--topic is {where!r}: give a topic and a partition, as in orders:0")
    partition = TopicPartition(topic, int(number))
    producers = checked(admin.describe_producers([partition]))[partition]
    for one in producers:
        if one.transaction_start_offset == start_offset:
            epoch = one.coordinator_epoch or 0  # a producer without a marker has none, and any counts
            admin.abort_transaction(
                partition,
                producer_id=one.producer_id,
                producer_epoch=one.producer_epoch,
                coordinator_epoch=epoch,
            )
            row = (*partition, one.producer_id, one.producer_epoch, start_offset)
            return Rows(("TOPIC", "PARTITION", "PRODUCER-ID", "PRODUCER-EPOCH", "START-OFFSET"), [row])
    begun = sorted(one.transaction_start_offset for one in producers if one.transaction_start_offset is not None)
    there = f"open ones begin at {', '.join(map(str, begun))}" if begun else "none is open there"
    raise CommandError(f"no transaction in {partition} begins at offset {start_offset}: {there}")


def find_hanging(admin: Admin, topics: Sequence[str], older_than_minutes: int, now_ms: int) -> Rows:
    """Find old transactions in partitions that no coordinator has, or has without the partition."""
    names = topics or [one.name for one in admin.list_topics(include_internal=True)]
    described = admin.describe_topics(names)
    partitions = [TopicPartition(one.name, p.partition) for one in _values(described) for p in one.partitions]
    producers = admin.describe_producers(partitions)
    oldest_ms = now_ms - older_than_minutes * _MINUTE_MS
    old = [
        (where, one)
        for where, states in producers.items()
        if not isinstance(states, KafkaError)
        for one in states
        if one.transaction_start_offset is not None and (one.last_timestamp or 0) <= oldest_ms
    ]
    known = _known_partitions(admin, {one.producer_id for _, one in old})
    rows = [_hanging(where, one, now_ms) for where, one in old if (one.producer_id, where) not in known]
    errors = _errors(described) + _errors(producers)
    return Rows(HANGING, rows, [] if rows else ["no transaction hangs"], errors)


def _known_partitions(admin: Admin, producer_ids: Iterable[int]) -> set[tuple[int, TopicPartition]]:
    """Return the partitions that coordinators have in the transactions of these producers."""
    wanted = sorted(producer_ids)
    if not wanted:
        return set()
    listed = admin.list_transactions(producer_ids=wanted)
    found = admin.describe_transactions([one.transactional_id for one in listed])
    gone = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    remaining = {name: one for name, one in found.items() if not (isinstance(one, KafkaError) and one.code is gone)}
    return {(one.producer_id, where) for one in checked(remaining).values() for where in one.partitions}


def _hanging(where: TopicPartition, one: ProducerState, now_ms: int) -> Sequence[Cell]:
    lasts_ms = None if one.last_timestamp is None else now_ms - one.last_timestamp
    return (
        *where,
        one.producer_id,
        one.producer_epoch,
        one.coordinator_epoch,
        one.transaction_start_offset,
        one.last_timestamp,
        None if lasts_ms is None else lasts_ms // _MINUTE_MS,
    )


def _values(found: Mapping[K, T | KafkaError]) -> list[T]:
    return [one for one in found.values() if not isinstance(one, KafkaError)]


def _errors(found: Mapping[K, object]) -> list[str]:
    return [str(one) for one in found.values() if isinstance(one, KafkaError)]
