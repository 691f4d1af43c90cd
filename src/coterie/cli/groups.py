"""`coterie groups`: each command returns rows. The columns are those of kafka-consumer-groups.sh 4.x."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path

from coterie.cli.options import CommandError
from coterie.cli.output import Cell, Rows
from coterie.client.admin import (
    EARLIEST,
    LATEST,
    Admin,
    GroupDescription,
    GroupListing,
    ListedOffset,
    MemberDescription,
    MemberToRemove,
    checked,
)
from coterie.client.admin.admin_types import CLASSIC, CONSUMER_TYPE
from coterie.client.types import OffsetAndMetadata, TopicPartition
from coterie.errors import ErrorCode, KafkaError
from coterie.settings.consumer_settings import duration_ms

OFFSETS = ("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID")
MEMBERS = ("GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS")
MORE_MEMBER_COLUMNS = ("CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT")
STATE = ("GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS")
CONSUMER_TYPES = ("consumer", "")
"""Protocol types; "" is a group that has had offsets committed and never a member."""

Committed = dict[TopicPartition, OffsetAndMetadata | KafkaError | None]


def list_all(
    admin: Admin, *, states: Sequence[str], types: Sequence[str], everything: bool, verbose: bool = False
) -> Rows:
    found = admin.list_groups(states=_split(states), types=_split(types))
    shown = [group for group in found if everything or types or group.protocol_type in CONSUMER_TYPES]
    rows: list[Sequence[Cell]] = [
        (group.group_id, group.type.capitalize(), *([group.protocol_type or None] if verbose else []), group.state)
        for group in shown
    ]
    notes = [] if rows else ["no group matches" if states or types else "there are no consumer groups"]
    others = Counter(_kind(group) for group in found if group not in shown)
    if others:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(others.items()))
        notes.append(f"not listed: {kinds}; --all lists them too")
    return Rows(("GROUP", "TYPE", *(["PROTOCOL"] if verbose else []), "STATE"), rows, notes)


def _kind(group: GroupListing) -> str:
    """Return the type of a group of another kind; for a classic group its protocol type, for example connect."""
    return group.protocol_type if group.type.lower() in {"", "classic"} else group.type.lower()


def describe(admin: Admin, group_ids: Sequence[str], *, verbose: bool) -> Rows:
    found = _described(admin, group_ids)
    rows: list[Sequence[Cell]] = []
    for group in _groups(found):
        committed = admin.list_group_offsets(group.group_id)
        owners = {tp: member for member in group.members for tp in member.assignment}
        ends = admin.list_offsets(dict.fromkeys(owners.keys() | committed.keys(), LATEST))
        owned = [(tp, member) for member in _busiest_first(group) for tp in member.assignment]
        unassigned: list[tuple[TopicPartition, MemberDescription | None]] = [
            (tp, None) for tp in sorted(committed) if tp not in owners
        ]
        rows += [_offsets(group, tp, member, committed, ends, verbose) for tp, member in [*owned, *unassigned]]
    columns = (*OFFSETS[:3], "LEADER-EPOCH", *OFFSETS[3:]) if verbose else OFFSETS
    return Rows(columns, rows, _notes(found), _errors(found.values()))


def _offsets(
    group: GroupDescription,
    tp: TopicPartition,
    member: MemberDescription | None,
    committed: Committed,
    ends: dict[TopicPartition, ListedOffset | KafkaError],
    verbose: bool,
) -> Sequence[Cell]:
    found, last = committed.get(tp), ends[tp]
    current = found if isinstance(found, OffsetAndMetadata) else None
    offset = current.offset if current else None
    end = None if isinstance(last, KafkaError) else last.offset
    epoch = current.leader_epoch if current and current.leader_epoch >= 0 else None
    lag = None if offset is None or end is None else end - offset
    who = (member.member_id, member.host, member.client_id) if member else (None, None, None)
    return (group.group_id, *tp, *((epoch,) if verbose else ()), offset, end, lag, *who)


def members(admin: Admin, group_ids: Sequence[str], *, verbose: bool) -> Rows:
    found = _described(admin, group_ids)
    has_instances = any(member.instance_id for group in _groups(found) for member in group.members)
    shows_upgraded = verbose and any(
        {member.type for member in group.members} >= {CLASSIC, CONSUMER_TYPE} for group in _groups(found)
    )
    rows: list[Sequence[Cell]] = []
    for group in _groups(found):
        for member in _busiest_first(group):
            instance = (member.instance_id,) if has_instances else ()
            target = (group.assignment_epoch, _partitions(member.target_assignment))
            more = (member.epoch, _partitions(member.assignment), *target) if verbose else ()
            upgraded = (_is_upgraded(group, member),) if shows_upgraded else ()
            begin = (group.group_id, member.member_id, *instance, member.host, member.client_id)
            rows.append((*begin, len(member.assignment), *more, *upgraded))
    columns = (*MEMBERS[:2], "GROUP-INSTANCE-ID", *MEMBERS[2:]) if has_instances else MEMBERS
    more_columns = (*(MORE_MEMBER_COLUMNS if verbose else ()), *(("UPGRADED",) if shows_upgraded else ()))
    return Rows((*columns, *more_columns), rows, _notes(found), _errors(found.values()))


def _is_upgraded(group: GroupDescription, member: MemberDescription) -> str | None:
    """Return whether a member of a consumer group uses the protocol of the group; None if it is not known."""
    if group.type != CONSUMER_TYPE or not member.type:
        return None
    return "true" if member.type == CONSUMER_TYPE else "false"


def state(admin: Admin, group_ids: Sequence[str], *, verbose: bool) -> Rows:
    found = _described(admin, group_ids)
    rows: list[Sequence[Cell]] = []
    for group in _groups(found):
        where = f"{group.coordinator}  ({group.coordinator.id})"
        epochs = (group.group_epoch, group.assignment_epoch) if verbose else ()
        size = len(group.members) if group.shows_members else None
        rows.append((group.group_id, where, group.assignor or None, group.state, *epochs, size))
    columns = (*STATE[:4], "GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH", STATE[4]) if verbose else STATE
    return Rows(columns, rows, _other_types(found), _errors(found.values()))


def delete(admin: Admin, group_ids: Sequence[str]) -> Rows:
    found = admin.delete_groups(group_ids)
    gone = [(group_id, "deleted") for group_id, error in found.items() if error is None]
    return Rows(("GROUP", "STATUS"), gone, errors=_errors(found.values()))


def delete_offsets(admin: Admin, group_id: str, topics: Sequence[str]) -> Rows:
    """Delete offsets. As with Kafka's tool, a partition without one counts as deleted."""
    if not topics:
        raise CommandError("give the topics: --topic orders, or --topic orders:0,1")
    partitions, unknown = _parse_partitions(admin, topics)
    found = admin.delete_group_offsets(group_id, partitions) if partitions else {}
    rows = [(group_id, *tp, "deleted") for tp, error in sorted(found.items()) if error is None]
    errors = dict.fromkeys(
        _errors([*unknown, *found.values()])
    )  # an error of the whole group comes once for each partition
    return Rows(("GROUP", "TOPIC", "PARTITION", "STATUS"), rows, errors=list(errors))


def _parse_partitions(admin: Admin, topics: Sequence[str]) -> tuple[list[TopicPartition], list[KafkaError]]:
    """Return the partitions of TOPIC or TOPIC:0,1, and the errors of topics that cannot be described."""
    wanted = [named_partitions(text) for text in topics]
    described = admin.describe_topics([topic for topic, numbers in wanted if numbers is None])
    partitions = [TopicPartition(topic, number) for topic, numbers in wanted for number in numbers or ()]
    unknown: list[KafkaError] = []
    for topic, found in described.items():
        if isinstance(found, KafkaError):
            unknown.append(found)
        else:
            partitions += [TopicPartition(topic, one.partition) for one in found.partitions]
    return partitions, unknown


def remove_members(
    admin: Admin,
    group_id: str,
    member_ids: Sequence[str],
    *,
    instance_ids: Sequence[str],
    all_members: bool,
    reason: str | None,
) -> Rows:
    named = [
        *(MemberToRemove(each) for each in member_ids),
        *(MemberToRemove("", each) for each in instance_ids),
    ]
    if bool(named) == all_members:
        raise CommandError(
            "give the members, by id or with --instance, or --all; list them with: coterie groups members GROUP"
        )
    why = {} if reason is None else {"reason": reason}
    found = admin.remove_members(group_id, None if all_members else named, **why)
    gone = [(group_id, who.instance_id or who.member_id, "removed") for who, error in found.items() if error is None]
    notes = () if found else (f'group "{group_id}" has no members',)
    return Rows(("GROUP", "CONSUMER-ID", "STATUS"), gone, notes, _errors(found.values()))


def _described(admin: Admin, group_ids: Sequence[str]) -> dict[str, GroupDescription | KafkaError]:
    """Describe these groups, or all consumer groups."""
    if not group_ids:
        group_ids = [one.group_id for one in admin.list_groups() if one.protocol_type in CONSUMER_TYPES]
    return admin.describe_groups(group_ids)


def _groups(found: dict[str, GroupDescription | KafkaError]) -> list[GroupDescription]:
    return [group for group in found.values() if isinstance(group, GroupDescription)]


def _notes(found: dict[str, GroupDescription | KafkaError]) -> list[str]:
    notes = _other_types(found)
    for group in _groups(found):
        if not group.shows_members:
            continue
        if group.state == "Empty":
            notes.append(f'group "{group.group_id}" has no members')
        elif group.state != "Stable":
            notes.append(f'group "{group.group_id}" is rebalancing ({group.state}): {_what_is_next(group)}')
    return notes


def _what_is_next(group: GroupDescription) -> str:
    """Say what a group that rebalances waits for, as far as its description shows."""
    if group.state == "Assigning":
        return "its target assignment is computed at a next heartbeat"
    must_revoke = {
        member.instance_id or member.member_id: _partitions(sorted({*member.assignment} - {*member.target_assignment}))
        for member in group.members
        if group.type == CONSUMER_TYPE
    }
    waits = [f"{who} has to give up {partitions}" for who, partitions in must_revoke.items() if partitions]
    return ", ".join(waits) or "this may change in a moment"


def _other_types(found: dict[str, GroupDescription | KafkaError]) -> list[str]:
    return [
        f'group "{group.group_id}" is a {group.type} group ({group.state}): this command does not show its members'
        + (" and offsets" if group.type == "share" else "")
        for group in _groups(found)
        if not group.shows_members
    ]


def _errors(found: Iterable[object]) -> list[str]:
    return [str(one) for one in found if isinstance(one, KafkaError)]


def _busiest_first(group: GroupDescription) -> list[MemberDescription]:
    return sorted(group.members, key=lambda member: (-len(member.assignment), member.member_id))


def _partitions(partitions: Sequence[TopicPartition]) -> str | None:
    """Return partitions in the form of Kafka's tool: topic:0,1;other:2."""
    topics = [
        f"{topic}:{','.join(str(tp.partition) for tp in its)}"
        for topic, its in groupby(partitions, key=lambda tp: tp.topic)
    ]
    return ";".join(sorted(topics)) or None


def _split(texts: Sequence[str]) -> list[str]:
    return [word.strip() for text in texts for word in text.split(",") if word.strip()]


# --- reset ------------------------------------------------------------------------------------------------------------

RESET_COLUMNS = ("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET")
Offsets = dict[TopicPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetTarget:
    """The options that say where to reset to; exactly one is given."""

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
    target: ResetTarget,
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
        plan = _planned(
            admin, group_id, target, _partitions_to_reset(admin, group_id, topics, all_topics=all_topics), now_ms, notes
        )
    if execute:
        checked(admin.alter_group_offsets(group_id, {tp: OffsetAndMetadata(at) for tp, at in plan.items()}))
    else:
        notes.append(f"dry run ({chosen}): nothing was changed; add --execute to set these offsets")
    return Rows(RESET_COLUMNS, [(group_id, *tp, at) for tp, at in sorted(plan.items())], notes)


def _refuse_unless_empty(admin: Admin, group_id: str) -> None:
    """Raise if the group has members. A group that does not exist counts as empty."""
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


def _partitions_to_reset(
    admin: Admin, group_id: str, topics: Sequence[str], *, all_topics: bool
) -> list[TopicPartition]:
    if all_topics:
        committed = admin.list_group_offsets(group_id)
        if not committed:
            raise CommandError(
                f'group "{group_id}" has no committed offsets, so --all-topics selects nothing: give --topic'
            )
        return sorted(committed)
    partitions: dict[TopicPartition, None] = {}
    named = [(text, *named_partitions(text)) for text in topics]
    described = checked(admin.describe_topics([name for _, name, _ in named]))
    for text, name, numbers in named:
        has = [part.partition for part in described[name].partitions]
        wanted = has if numbers is None else numbers
        missing = sorted(set(wanted) - set(has))
        if missing:
            raise CommandError(f"--topic {text}: the topic has no partition {missing[0]}; it has {has[0]} to {has[-1]}")
        partitions |= dict.fromkeys(TopicPartition(name, number) for number in wanted)
    return list(partitions)


def named_partitions(text: str, option: str = "--topic ") -> tuple[str, list[int] | None]:
    """Parse `orders` (all partitions) or `orders:0,1` (these partitions)."""
    name, colon, numbers = text.rpartition(":")
    if not colon:
        return text, None
    parts = [part.strip() for part in numbers.split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        raise CommandError(f"{option}{text}: after the colon give partitions, as in orders:0,1")
    return name, [int(part) for part in parts]


def _planned(
    admin: Admin,
    group_id: str,
    target: ResetTarget,
    partitions: Sequence[TopicPartition],
    now_ms: int,
    notes: list[str],
) -> Offsets:
    if target.to_earliest:
        return _ends(admin, partitions, EARLIEST)
    if target.to_latest:
        return _ends(admin, partitions, LATEST)
    if target.to_offset is not None:
        return _within_range(admin, dict.fromkeys(partitions, target.to_offset), notes)
    if target.to_current:
        committed = _committed(admin, group_id, partitions)
        missing = [tp for tp in partitions if tp not in committed]
        return _within_range(admin, committed, notes) | _ends(admin, missing, LATEST)
    if target.shift_by is not None:
        committed = _committed(admin, group_id, partitions)
        missing = [tp for tp in partitions if tp not in committed]
        if missing:
            raise CommandError(f'--shift-by: group "{group_id}" has no committed offset for {missing[0]} to shift')
        return _within_range(admin, {tp: at + target.shift_by for tp, at in committed.items()}, notes)
    return _by_time(admin, partitions, _time_ms(target, now_ms), notes)


def _time_ms(target: ResetTarget, now_ms: int) -> int:
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


def _by_time(admin: Admin, partitions: Sequence[TopicPartition], at_ms: int, notes: list[str]) -> Offsets:
    """Return the offset of the first record since a time, or the end of the partition if there is none."""
    found = checked(admin.list_offsets(dict.fromkeys(partitions, max(at_ms, 0))))
    offsets = {tp: listed.offset for tp, listed in found.items() if listed.offset >= 0}
    rest = [tp for tp in partitions if tp not in offsets]
    notes += [f"{tp} has no record since then: using its end" for tp in rest]
    return offsets | _ends(admin, rest, LATEST)


def _ends(admin: Admin, partitions: Collection[TopicPartition], which: int) -> Offsets:
    return {tp: found.offset for tp, found in checked(admin.list_offsets(dict.fromkeys(partitions, which))).items()}


def _committed(admin: Admin, group_id: str, partitions: Sequence[TopicPartition]) -> Offsets:
    found = checked(admin.list_group_offsets(group_id, partitions))
    return {tp: one.offset for tp, one in found.items() if one is not None}


def _within_range(admin: Admin, wanted: Mapping[TopicPartition, int], notes: list[str]) -> Offsets:
    """Move each offset into the range of its partition, as Kafka's tool does, and add a note."""
    first, last = _ends(admin, wanted, EARLIEST), _ends(admin, wanted, LATEST)
    plan = {}
    for tp, at in wanted.items():
        plan[tp] = min(max(at, first[tp]), last[tp])
        if plan[tp] != at:
            notes.append(f"{tp} has offsets {first[tp]} to {last[tp]}: using {plan[tp]} instead of {at}")
    return plan


def _read_plan(file: Path, group_id: str) -> Offsets:
    """Read lines of [group,]topic,partition,offset, which is what -o csv prints."""
    plan: Offsets = {}
    try:
        with file.open(encoding="utf-8", newline="") as lines:
            for number, row in enumerate(csv.reader(lines), 1):
                if not row or tuple(row) == RESET_COLUMNS:
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
