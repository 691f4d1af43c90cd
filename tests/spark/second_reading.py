"""The same log read a second time, in the plainest way: every moment of a group is a whole picture of it.

It shares no line with `coterie.spark.pipeline.group_state`: no memory between records but the list of pictures; an
interval is found by walking over all pictures for each partition, a rebalance by comparing two of them. It is slow, and
meant to be.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from coterie.protocol.consumer_group_records import read_consumer_group_record
from coterie.protocol.messages import GroupRecord, OffsetRecord
from coterie.protocol.offsets_topic import Skipped, read_record
from coterie.protocol.subscription import read_assignment

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


class Second(NamedTuple):
    generations: list[tuple[Any, ...]]
    """Group, generation, offset in the log, members, and who was assigned what."""
    rebalances: list[tuple[Any, ...]]
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
            second.rebalances.append(
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


@dataclass(frozen=True)
class Moment(Picture):
    """After a record; `generation` is the epoch, 0 if none is known."""

    is_new_epoch: bool = False
    is_settled: bool = False
    """Every member has reached the epoch, with all it was assigned."""


def _add_modern(
    second: Second, group: str, records: Sequence[tuple[int, str, Any, LogRecord]], names: Mapping[str, str]
) -> None:
    """The group after each record, from all records up to it. A rebalance lasts until calm or until the next epoch."""
    moments = [_moment(records[: at + 1], names) for at in range(len(records))]
    second.intervals.extend(_intervals(group, moments))
    steps = [at for at, one in enumerate(moments) if one.is_new_epoch or one.is_gone]
    for number, at in enumerate(steps):
        now = moments[at]
        if now.is_gone:
            second.generations.append((group, None, now.offset, [], []))
            continue
        before = moments[steps[number - 1]] if number and not moments[steps[number - 1]].is_gone else None
        if before is None and now.generation > 2:
            continue  # what was before is not in the log
        following = steps[number + 1] if number + 1 < len(steps) else len(moments)
        ends = [end for end in range(at, following) if moments[end].is_settled]
        ends += [following] if following < len(moments) else []
        if not ends:
            continue  # it still goes on
        end = moments[ends[0]]
        members = before.members if before is not None else frozenset()
        last, after = _last_owners(moments[: at + 1]), _last_owners(moments[: ends[0] + 1], since=at)
        second.rebalances.append(
            (
                group,
                before.generation if before is not None else now.generation - 1,
                now.generation,
                end.offset,
                sorted(now.members - members),
                sorted(members - now.members),
                [
                    (*place, last.get(place, ""), owner)
                    for place, owner in sorted(after.items())
                    if last.get(place) != owner
                ],
            )
        )
        owners = sorted(end.owners.items())
        second.generations.append((group, now.generation, end.offset, sorted(end.members), owners))


def _moment(records: Sequence[tuple[int, str, Any, LogRecord]], names: Mapping[str, str]) -> Moment:
    latest = {(kind, about): value for kind, about, value, _ in records}
    kind, _, value, one = records[-1]
    members = frozenset(name for (key, name), known in latest.items() if key == 5 and known is not None)
    owners = {}
    for (key, name), known in latest.items():
        if key == 8 and known is not None:
            for each in [*known.assigned, *known.pending_revocation]:
                topic_id = _text(each.topic_id) or ""
                owners.update({(names.get(topic_id, topic_id), partition): name for partition in each.partitions})
    epoch = latest.get((3, ""))
    number = epoch.epoch if epoch is not None else 0
    earlier = [known for key, _, known, _ in records[:-1] if key == 3]
    is_new = kind == 3 and value is not None and (not earlier or earlier[-1] is None or earlier[-1].epoch != number)
    reached = [latest.get((8, name)) for name in members]
    is_settled = all(known is not None and known.member_epoch == number and known.state == 0 for known in reached)
    is_settled &= value is not None and kind == (8 if members else 3)  # nobody settles anything by being erased
    is_gone = kind == 3 and value is None
    return Moment(one.ms, one.offset, number, members, owners, is_gone, is_new, is_settled)


def _last_owners(moments: Sequence[Moment], since: int = 0) -> dict[tuple[str, int], str]:
    """Of every partition that anybody had; of an empty group all is forgotten."""
    last: dict[tuple[str, int], str] = {}
    for at, one in enumerate(moments):
        if one.is_gone or (one.is_new_epoch and not one.members):
            last.clear()
        elif at >= since:
            last |= one.owners
    return last


# --- logs -------------------------------------------------------------------------------------------------------------


def log_of_broker(bootstrap: str, topic: str = "__consumer_offsets") -> list[LogRecord]:
    """Everything in the topic, by an ordinary consumer."""
    from coterie.client.admin.admin import Admin
    from coterie.client.admin.admin_types import TopicDescription
    from coterie.client.consumer.consumer import Consumer
    from coterie.client.types import TopicPartition

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
