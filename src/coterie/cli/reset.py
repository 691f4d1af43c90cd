"""`coterie groups reset`: which offsets a group should have, and setting them. A dry run unless told otherwise."""

from __future__ import annotations

import csv
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path

from coterie.cli.connected import CommandError
from coterie.cli.rows import Rows
from coterie.client.admin import EARLIEST, LATEST, Admin, checked
from coterie.client.types import OffsetAndMetadata, TopicPartition
from coterie.errors import ErrorCode, KafkaError
from coterie.settings.client_settings import duration_ms

__all__ = ["Target", "named_partitions", "reset"]

COLUMNS = ("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET")
Offsets = dict[TopicPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where to; exactly one of them is given."""

    to_earliest: bool = False
    to_latest: bool = False
    to_current: bool = False
    to_offset: int | None = None
    shift_by: int | None = None
    to_datetime: str | None = None
    by_duration: str | None = None
    from_file: Path | None = None

    def chosen(self) -> str:
        options = {f"--{each.name.replace('_', '-')}": getattr(self, each.name) for each in fields(self)}
        given = [option for option, value in options.items() if value is not None and value is not False]
        if len(given) != 1:
            said = f"not {' and '.join(given)}" if given else "none was given"
            raise CommandError(f"give exactly one of {', '.join(options)}; {said}")
        return given[0]


def reset(
    admin: Admin,
    group_id: str,
    target: Target,
    *,
    topics: Sequence[str],
    all_topics: bool,
    execute: bool,
    now_ms: int,
) -> Rows:
    chosen = target.chosen()
    if bool(topics) + all_topics + (target.from_file is not None) != 1:
        raise CommandError("give the topics to reset: --topic NAME or NAME:0,1 (repeatable), or --all-topics")
    _refuse_unless_empty(admin, group_id)
    notes: list[str] = []
    if target.from_file is not None:
        plan = _within_range(admin, _read_plan(target.from_file, group_id), notes)
    else:
        plan = _planned(admin, group_id, target, _places(admin, group_id, topics, all_topics=all_topics), now_ms, notes)
    if execute:
        checked(admin.alter_group_offsets(group_id, {place: OffsetAndMetadata(at) for place, at in plan.items()}))
    else:
        notes.append(f"dry run ({chosen}): nothing was changed; add --execute to set these offsets")
    return Rows(COLUMNS, [(group_id, *place, at) for place, at in sorted(plan.items())], notes)


def _refuse_unless_empty(admin: Admin, group_id: str) -> None:
    """A group that is not there is as good as an empty one: its first offsets are these."""
    found = admin.describe_groups([group_id])[group_id]
    if isinstance(found, KafkaError):
        if found.code is ErrorCode.GROUP_ID_NOT_FOUND:
            return
        raise found
    if found.state != "Empty":
        members = "1 member" if len(found.members) == 1 else f"{len(found.members)} members"
        who = f"with {members}" if found.shows_members else f"and a {found.type} group"
        raise CommandError(
            f'group "{group_id}" is {found.state} {who}; offsets can be set only while it is Empty.\n'
            f"Stop its consumers, or: coterie groups remove-members {group_id} --all"
        )


# --- which partitions -------------------------------------------------------------------------------------------------


def _places(admin: Admin, group_id: str, topics: Sequence[str], *, all_topics: bool) -> list[TopicPartition]:
    if all_topics:
        committed = admin.list_group_offsets(group_id)
        if not committed:
            raise CommandError(
                f'group "{group_id}" has no committed offsets, so --all-topics selects nothing: give --topic'
            )
        return sorted(committed)
    places: dict[TopicPartition, None] = {}
    named = [(text, *named_partitions(text)) for text in topics]
    described = checked(admin.describe_topics([name for _, name, _ in named]))
    for text, name, numbers in named:
        has = [part.partition for part in described[name].partitions]
        wanted = has if numbers is None else numbers
        strange = sorted(set(wanted) - set(has))
        if strange:
            raise CommandError(f"--topic {text}: the topic has no partition {strange[0]}; it has {has[0]} to {has[-1]}")
        places |= dict.fromkeys(TopicPartition(name, number) for number in wanted)
    return list(places)


def named_partitions(text: str) -> tuple[str, list[int] | None]:
    """Parse `orders` (all partitions) or `orders:0,1` (these partitions)."""
    name, colon, numbers = text.rpartition(":")
    if not colon:
        return text, None
    parts = [part.strip() for part in numbers.split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        raise CommandError(f"--topic {text}: after the colon give partitions, as in orders:0,1")
    return name, [int(part) for part in parts]


# --- which offsets ----------------------------------------------------------------------------------------------------


def _planned(
    admin: Admin, group_id: str, target: Target, places: Sequence[TopicPartition], now_ms: int, notes: list[str]
) -> Offsets:
    if target.to_earliest:
        return _ends(admin, places, EARLIEST)
    if target.to_latest:
        return _ends(admin, places, LATEST)
    if target.to_offset is not None:
        return _within_range(admin, dict.fromkeys(places, target.to_offset), notes)
    if target.to_current:
        committed = _committed(admin, group_id, places)
        missing = [place for place in places if place not in committed]
        return _within_range(admin, committed, notes) | _ends(admin, missing, LATEST)
    if target.shift_by is not None:
        committed = _committed(admin, group_id, places)
        missing = [place for place in places if place not in committed]
        if missing:
            raise CommandError(f'--shift-by: group "{group_id}" has no committed offset for {missing[0]} to shift')
        return _within_range(admin, {place: at + target.shift_by for place, at in committed.items()}, notes)
    return _by_time(admin, places, _time_ms(target, now_ms), notes)


def _time_ms(target: Target, now_ms: int) -> int:
    if target.by_duration is not None:
        try:
            return max(now_ms - duration_ms(target.by_duration), 0)
        except ValueError as error:
            raise CommandError(f"--by-duration: {error}") from None
    text = target.to_datetime or ""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise CommandError(
            f"--to-datetime {text!r} is not a date and time: give 2025-01-31T13:00:00.000, followed by a zone "
            "such as +02:00 unless it is UTC"
        ) from None
    return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


def _by_time(admin: Admin, places: Sequence[TopicPartition], at_ms: int, notes: list[str]) -> Offsets:
    """Where there is no record so late, behind the last one."""
    found = checked(admin.list_offsets(dict.fromkeys(places, max(at_ms, 0))))
    offsets = {place: listed.offset for place, listed in found.items() if listed.offset >= 0}
    rest = [place for place in places if place not in offsets]
    notes += [f"{place} has no record since then: using its end" for place in rest]
    return offsets | _ends(admin, rest, LATEST)


def _ends(admin: Admin, places: Collection[TopicPartition], which: int) -> Offsets:
    return {place: found.offset for place, found in checked(admin.list_offsets(dict.fromkeys(places, which))).items()}


def _committed(admin: Admin, group_id: str, places: Sequence[TopicPartition]) -> Offsets:
    found = checked(admin.list_group_offsets(group_id, places))
    return {place: one.offset for place, one in found.items() if one is not None}


def _within_range(admin: Admin, wanted: Mapping[TopicPartition, int], notes: list[str]) -> Offsets:
    """As Kafka's tool: an offset that is not there becomes the nearest that is, and it is said."""
    first, last = _ends(admin, wanted, EARLIEST), _ends(admin, wanted, LATEST)
    plan = {}
    for place, at in wanted.items():
        plan[place] = min(max(at, first[place]), last[place])
        if plan[place] != at:
            notes.append(f"{place} has offsets {first[place]} to {last[place]}: using {plan[place]} instead of {at}")
    return plan


def _read_plan(file: Path, group_id: str) -> Offsets:
    """topic,partition,offset or group,topic,partition,offset a line; also what a dry run with -o csv printed."""
    plan: Offsets = {}
    try:
        with file.open(encoding="utf-8", newline="") as lines:
            for number, row in enumerate(csv.reader(lines), 1):
                if not row or tuple(row) == COLUMNS:
                    continue
                *group, topic, partition, offset = row if len(row) in {3, 4} else [""] * 3
                if not topic or not partition.strip().isdigit() or not offset.strip().isdigit():
                    raise CommandError(f"{file}, line {number}: a line must be [group,]topic,partition,offset")
                if not group or group[0] == group_id:
                    plan[TopicPartition(topic, int(partition))] = int(offset)
    except (UnicodeDecodeError, csv.Error) as error:
        raise CommandError(f"{file} is not a CSV file: {error}") from None
    if not plan:
        raise CommandError(f'{file} has no offset for group "{group_id}"')
    return plan
