"""`coterie groups`: what each command finds. The columns are those of kafka-consumer-groups.sh 4.x."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby

from coterie.cli.connected import CommandError
from coterie.cli.reset import named_partitions
from coterie.cli.rows import Cell, Rows
from coterie.client.admin import (
    LATEST,
    Admin,
    GroupDescription,
    GroupListing,
    ListedOffset,
    MemberDescription,
    MemberToRemove,
)
from coterie.client.types import OffsetAndMetadata, TopicPartition
from coterie.errors import KafkaError

__all__ = ["delete", "delete_offsets", "describe", "list_all", "members", "remove_members", "state"]

OFFSETS = ("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID")
MEMBERS = ("GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS")
MORE_OF_MEMBERS = ("CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT")
STATE = ("GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS")
OF_CONSUMERS = ("consumer", "")
"""Protocol types; "" is a group that has had offsets committed and never a member."""

Committed = dict[TopicPartition, OffsetAndMetadata | KafkaError | None]


def list_all(admin: Admin, *, states: Sequence[str], types: Sequence[str], everything: bool) -> Rows:
    found = admin.list_groups(states=_split(states), types=_split(types))
    shown = [group for group in found if everything or types or group.protocol_type in OF_CONSUMERS]
    rows: list[Sequence[Cell]] = [(group.group_id, group.type.capitalize(), group.state) for group in shown]
    notes = [] if rows else ["no group matches" if states or types else "there are no consumer groups"]
    others = Counter(_kind(group) for group in found if group not in shown)
    if others:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(others.items()))
        notes.append(f"not listed: {kinds}; --all lists them too")
    return Rows(("GROUP", "TYPE", "STATE"), rows, notes)


def _kind(group: GroupListing) -> str:
    """The type of a group that is not one of consumers; of a classic group its protocol type, for example connect."""
    return group.protocol_type if group.type.lower() in {"", "classic"} else group.type.lower()


def describe(admin: Admin, group_ids: Sequence[str], *, verbose: bool) -> Rows:
    found = _described(admin, group_ids)
    rows: list[Sequence[Cell]] = []
    for group in _groups(found):
        committed = admin.list_group_offsets(group.group_id)
        owners = {place: member for member in group.members for place in member.assignment}
        ends = admin.list_offsets(dict.fromkeys(owners.keys() | committed.keys(), LATEST))
        owned = [(place, member) for member in _busiest_first(group) for place in member.assignment]
        unassigned: list[tuple[TopicPartition, MemberDescription | None]] = [
            (place, None) for place in sorted(committed) if place not in owners
        ]
        rows += [_offsets(group, place, member, committed, ends, verbose) for place, member in [*owned, *unassigned]]
    columns = (*OFFSETS[:3], "LEADER-EPOCH", *OFFSETS[3:]) if verbose else OFFSETS
    return Rows(columns, rows, _notes(found), _errors(found.values()))


def _offsets(
    group: GroupDescription,
    place: TopicPartition,
    member: MemberDescription | None,
    committed: Committed,
    ends: dict[TopicPartition, ListedOffset | KafkaError],
    verbose: bool,
) -> Sequence[Cell]:
    found, last = committed.get(place), ends[place]
    current = found if isinstance(found, OffsetAndMetadata) else None
    offset = current.offset if current else None
    end = None if isinstance(last, KafkaError) else last.offset
    epoch = current.leader_epoch if current and current.leader_epoch >= 0 else None
    lag = None if offset is None or end is None else end - offset
    who = (member.member_id, member.host, member.client_id) if member else (None, None, None)
    return (group.group_id, *place, *((epoch,) if verbose else ()), offset, end, lag, *who)


def members(admin: Admin, group_ids: Sequence[str], *, verbose: bool) -> Rows:
    found = _described(admin, group_ids)
    has_instances = any(member.instance_id for group in _groups(found) for member in group.members)
    rows: list[Sequence[Cell]] = []
    for group in _groups(found):
        for member in _busiest_first(group):
            instance = (member.instance_id,) if has_instances else ()
            target = (group.assignment_epoch, _partitions(member.target_assignment))
            more = (member.epoch, _partitions(member.assignment), *target) if verbose else ()
            begin = (group.group_id, member.member_id, *instance, member.host, member.client_id)
            rows.append((*begin, len(member.assignment), *more))
    columns = (*MEMBERS[:2], "GROUP-INSTANCE-ID", *MEMBERS[2:]) if has_instances else MEMBERS
    return Rows((*columns, *MORE_OF_MEMBERS) if verbose else columns, rows, _notes(found), _errors(found.values()))


def state(admin: Admin, group_ids: Sequence[str], *, verbose: bool) -> Rows:
    found = _described(admin, group_ids)
    rows: list[Sequence[Cell]] = []
    for group in _groups(found):
        where = f"{group.coordinator}  ({group.coordinator.id})"
        epochs = (group.group_epoch, group.assignment_epoch) if verbose else ()
        size = len(group.members) if group.shows_members else None
        rows.append((group.group_id, where, group.assignor or None, group.state, *epochs, size))
    columns = (*STATE[:4], "GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH", STATE[4]) if verbose else STATE
    return Rows(columns, rows, _of_other_types(found), _errors(found.values()))


def delete(admin: Admin, group_ids: Sequence[str]) -> Rows:
    found = admin.delete_groups(group_ids)
    gone = [(group_id, "deleted") for group_id, error in found.items() if error is None]
    return Rows(("GROUP", "STATUS"), gone, errors=_errors(found.values()))


def delete_offsets(admin: Admin, group_id: str, topics: Sequence[str]) -> Rows:
    """As with Kafka's tool, an offset that was never there is deleted as well."""
    if not topics:
        raise CommandError("give the topics: --topic orders, or --topic orders:0,1")
    places, unknown = _places(admin, topics)
    found = admin.delete_group_offsets(group_id, places) if places else {}
    rows = [(group_id, *place, "deleted") for place, error in sorted(found.items()) if error is None]
    errors = dict.fromkeys(_errors([*unknown, *found.values()]))  # an error of the group is that of every partition
    return Rows(("GROUP", "TOPIC", "PARTITION", "STATUS"), rows, errors=list(errors))


def _places(admin: Admin, topics: Sequence[str]) -> tuple[list[TopicPartition], list[KafkaError]]:
    """Partitions of TOPIC or TOPIC:0,1, and the errors of topics that cannot be described."""
    wanted = [named_partitions(text) for text in topics]
    described = admin.describe_topics([topic for topic, numbers in wanted if numbers is None])
    places = [TopicPartition(topic, number) for topic, numbers in wanted for number in numbers or ()]
    unknown: list[KafkaError] = []
    for topic, found in described.items():
        if isinstance(found, KafkaError):
            unknown.append(found)
        else:
            places += [TopicPartition(topic, one.partition) for one in found.partitions]
    return places, unknown


def remove_members(
    admin: Admin,
    group_id: str,
    member_ids: Sequence[str],
    *,
    instance_ids: Sequence[str],
    everybody: bool,
    reason: str | None,
) -> Rows:
    named = [
        *(MemberToRemove(each) for each in member_ids),
        *(MemberToRemove("", each) for each in instance_ids),
    ]
    if bool(named) == everybody:
        raise CommandError(
            "give the members, by id or with --instance, or --all; list them with: coterie groups members GROUP"
        )
    why = {} if reason is None else {"reason": reason}
    found = admin.remove_members(group_id, None if everybody else named, **why)
    gone = [(group_id, who.instance_id or who.member_id, "removed") for who, error in found.items() if error is None]
    notes = () if found else (f'group "{group_id}" has no members',)
    return Rows(("GROUP", "CONSUMER-ID", "STATUS"), gone, notes, _errors(found.values()))


def _described(admin: Admin, group_ids: Sequence[str]) -> dict[str, GroupDescription | KafkaError]:
    """These, or all that are of consumers."""
    if not group_ids:
        group_ids = [one.group_id for one in admin.list_groups() if one.protocol_type in OF_CONSUMERS]
    return admin.describe_groups(group_ids)


def _groups(found: dict[str, GroupDescription | KafkaError]) -> list[GroupDescription]:
    return [group for group in found.values() if isinstance(group, GroupDescription)]


def _notes(found: dict[str, GroupDescription | KafkaError]) -> list[str]:
    notes = _of_other_types(found)
    for group in _groups(found):
        if not group.shows_members:
            continue
        if group.state == "Empty":
            notes.append(f'group "{group.group_id}" has no members')
        elif group.state != "Stable":
            notes.append(f'group "{group.group_id}" is rebalancing ({group.state}): this may change in a moment')
    return notes


def _of_other_types(found: dict[str, GroupDescription | KafkaError]) -> list[str]:
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


def _partitions(places: Sequence[TopicPartition]) -> str | None:
    """As Kafka's tool writes it: topic:0,1;other:2."""
    topics = [
        f"{topic}:{','.join(str(place.partition) for place in its)}"
        for topic, its in groupby(places, key=lambda place: place.topic)
    ]
    return ";".join(topics) or None


def _split(texts: Sequence[str]) -> list[str]:
    return [word.strip() for text in texts for word in text.split(",") if word.strip()]
