"""The same log read a second time, in the plainest way: every moment of a group is a whole picture of it.

It shares no line with `coterie.spark.history`: no memory between records but the list of pictures; an interval is found
by walking over all pictures for each partition, a round by comparing two of them. Slow, and meant to be.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple
from uuid import UUID

from coterie.messages import GroupRecord, OffsetRecord
from coterie.wire.consumer_group_records import read_consumer_group_record
from coterie.wire.offsets_topic import Skipped, read_record
from coterie.wire.subscription import read_assignment

__all__ = ["LogRecord", "Picture", "Second", "commits_of", "log_of_broker", "read_again"]


class LogRecord(NamedTuple):
    partition: int
    offset: int
    ms: int
    key: bytes
    value: bytes | None


@dataclass(frozen=True)
class Picture:
    ms: int
    offset: int
    generation: int
    members: frozenset[str] = frozenset()
    owners: Mapping[tuple[str, int], str] = field(default_factory=dict)
    is_gone: bool = False
    begins_anew: bool = False


class Second(NamedTuple):
    generations: list[tuple[Any, ...]]
    """Group, generation, offset in the log, members, and who was assigned what."""
    rounds: list[tuple[Any, ...]]
    """Group, from, to, offset in the log, came, left, partitions with a new owner."""
    intervals: list[tuple[Any, ...]]
    """Group, topic, partition, member, began, ended (None while it lasts)."""


def commits_of(log: Iterable[LogRecord]) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    for one in log:
        found = read_record(one.key, one.value)
        if isinstance(found, OffsetRecord):
            value = found.value
            said = (None,) * 5 if value is None else (
                value.offset, value.leader_epoch, value.metadata, value.commit_timestamp_ms, _text(value.topic_id)
            )  # fmt: skip
            rows.append(
                (found.group_id, found.topic, found.partition, *said, value is None, one.partition, one.offset, one.ms)
            )
    return rows


def _text(topic_id: UUID | None) -> str | None:
    return None if topic_id is None else urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")


def read_again(log: Iterable[LogRecord], names: Mapping[str, str] | None = None) -> Second:
    classic: dict[str, list[Picture]] = {}
    modern: dict[str, list[tuple[int, str, Any, LogRecord]]] = {}
    for one in log:
        found = read_record(one.key, one.value)
        if isinstance(found, GroupRecord):
            classic.setdefault(found.group_id, []).append(_picture(found, one))
        elif isinstance(found, Skipped):
            record = read_consumer_group_record(one.key, one.value)
            if record is not None:
                modern.setdefault(record.group_id, []).append((record.type, record.about, record.value, one))
    second = Second([], [], [])
    for group, pictures in classic.items():
        _add_classic(second, group, pictures)
    for group, records in modern.items():
        _add_modern(second, group, records, names or {})
    return second


# --- classic groups ---------------------------------------------------------------------------------------------------


def _picture(record: GroupRecord, one: LogRecord) -> Picture:
    value = record.value
    if value is None:
        return Picture(one.ms, one.offset, -1, is_gone=True)
    owners = {}
    for member in sorted(value.members, key=lambda each: each.member_id):
        if member.assignment and value.protocol_type == "consumer":
            for topic, numbers in read_assignment(member.assignment).partitions.items():
                owners.update({(topic, number): member.member_id for number in numbers})
    return Picture(one.ms, one.offset, value.generation_id, frozenset(m.member_id for m in value.members), owners)


def _add_classic(second: Second, group: str, pictures: Sequence[Picture]) -> None:
    for one in pictures:
        generation = None if one.is_gone else one.generation
        second.generations.append((group, generation, one.offset, sorted(one.members), sorted(one.owners.items())))
    for at, now in enumerate(pictures):
        before = pictures[at - 1] if at else None
        if now.is_gone:
            continue
        if before is None or before.is_gone:
            if now.generation != 1:
                continue
            before = Picture(0, 0, 0)
        if now.generation > before.generation:
            moved = _moved(pictures[: at + 1])
            second.rounds.append(
                (
                    group,
                    before.generation,
                    now.generation,
                    now.offset,
                    sorted(now.members - before.members),
                    sorted(before.members - now.members),
                    moved,
                )
            )
    second.intervals.extend(_intervals(group, pictures))


def _moved(pictures: Sequence[Picture]) -> list[tuple[str, int, str, str]]:
    """Against the last owner a partition had since the group was last empty, however long ago."""
    now, moved = pictures[-1], []
    for place, owner in sorted(now.owners.items()):
        last = ""
        for earlier in pictures[:-1]:
            if earlier.is_gone or not earlier.members:
                last = ""
            last = earlier.owners.get(place, last)
        if last != owner:
            moved.append((*place, last, owner))
    return moved


def _intervals(group: str, pictures: Sequence[Picture]) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    for place in sorted({place for one in pictures for place in one.owners}):
        owner, since = None, 0
        for one in pictures:
            now = one.owners.get(place)
            if now != owner:
                if owner is not None:
                    rows.append((group, *place, owner, since, one.ms))
                owner, since = now, one.ms
        if owner is not None:
            rows.append((group, *place, owner, since, None))
    return rows


# --- groups of the new protocol ---------------------------------------------------------------------------------------


def _add_modern(
    second: Second, group: str, records: Sequence[tuple[int, str, Any, LogRecord]], names: Mapping[str, str]
) -> None:
    """The picture after each record, made from all records up to it."""
    latest: dict[tuple[int, str], Any] = {}
    pictures: list[Picture] = []
    epochs: list[tuple[int, int, LogRecord]] = []
    settled: dict[int, LogRecord] = {}
    members_at: dict[int, frozenset[str]] = {0: frozenset()}
    for kind, about, value, one in records:
        latest[kind, about] = value
        epoch = latest.get((3, ""))
        members = frozenset(name for (key, name), known in latest.items() if key == 5 and known is not None)
        owners = {}
        for (key, name), known in latest.items():
            if key == 8 and known is not None:
                for each in [*known.assigned, *known.pending_revocation]:
                    topic_id = _text(each.topic_id) or ""
                    owners.update({(names.get(topic_id, topic_id), p): name for p in each.partitions})
        number = epoch.epoch if epoch else 0
        pictures.append(Picture(one.ms, one.offset, number, members, owners))
        if kind == 3 and value is not None and (not epochs or epochs[-1][1] != number):
            epochs.append((epochs[-1][1] if epochs else 0, number, one))
            members_at[number] = members
        reached = [latest.get((8, name)) for name in members]
        is_settled = all(known is not None and known.member_epoch == number and known.state == 0 for known in reached)
        if epochs and is_settled and number not in settled and epoch is not None:
            settled[number] = one
    ends = {number: settled[number] for _, number, _ in epochs if number in settled}
    for (_, number, _), (_, _, following) in pairwise(epochs):
        ends.setdefault(number, following)
    for before, number, _ in epochs:
        if number in ends and (before or number == 1):
            came, left = members_at[number] - members_at[before], members_at[before] - members_at[number]
            second.rounds.append((group, before, number, ends[number].offset, sorted(came), sorted(left), None))
    second.intervals.extend(_intervals(group, _calm(pictures)))


def _calm(pictures: Sequence[Picture]) -> list[Picture]:
    return [replace(one, is_gone=False) for one in pictures]


# --- logs -------------------------------------------------------------------------------------------------------------


def log_of_broker(bootstrap: str, topic: str = "__consumer_offsets") -> list[LogRecord]:
    """Everything in the topic, by an ordinary consumer."""
    from coterie.client.admin.admin import Admin
    from coterie.client.admin.words import TopicDescription
    from coterie.client.consumer import Consumer
    from coterie.client.words import TopicPartition

    with Admin(bootstrap_servers=bootstrap) as admin:
        (found,) = admin.describe_topics([topic]).values()
        assert isinstance(found, TopicDescription)
        places = [TopicPartition(topic, each.partition) for each in found.partitions]
        ends = {place: one.offset for place, one in admin.list_offsets(dict.fromkeys(places, -1)).items()}  # type: ignore[union-attr]
    log: list[LogRecord] = []
    consumer = Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    consumer.assign(places)
    missing = {place for place, end in ends.items() if end > 0}
    while missing:
        log += [
            LogRecord(record.partition, record.offset, record.timestamp, record.key or b"", record.value)
            for record in consumer.poll(0.5)
        ]
        missing = {place for place in missing if consumer.position(place) < ends[place]}
    consumer.close()
    return sorted(log)
