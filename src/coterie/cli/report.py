"""`coterie report`: write a report of rebalances from a data directory of Coterie or Apache Kafka.

The directory is only read, and the broker may be running. Coterie stores facts in `__coterie_facts`. For Apache Kafka
they are derived from `__consumer_offsets`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from uuid import UUID

import typer

from coterie.diagnosis import Grade
from coterie.errors import CoterieError, MalformedError
from coterie.facts import AssignmentStored, Fact
from coterie.ledger import fold, intervals_of, read_fact
from coterie.ledger.derived import derived_facts
from coterie.ledger.written_facts import FACTS_TOPIC
from coterie.protocol.batch import batches
from coterie.protocol.consumer_group_records import ConsumerGroupRecord, read_consumer_group_record
from coterie.protocol.messages import GroupRecord
from coterie.protocol.offsets_topic import OFFSETS_TOPIC, Skipped, read_key, read_record
from coterie.protocol.records import BatchRecord, records
from coterie.storage.metadata_files import decode_partition_metadata
from coterie.storage.stray_directories import PARTITION_FILE
from coterie.web import picture
from coterie.web.groups import from_facts
from coterie.web.page import file_page
from coterie.web.picture import MemberNames
from coterie.web.report import STYLE, report_body

OBSERVED = "Recorded by the broker as it happened."
DERIVED = (
    "Derived from __consumer_offsets: owners and generations are certain. The log does not record when a rebalance of "
    "a classic group began, how long it took or what it cost, nor whether a member left, crashed or timed out: these "
    "are shown as unknown. Such a rebalance is shown at its end; its cause is inferred from the members that joined "
    "and disappeared. Each step of a consumer group (KIP-848) is a record, so its rebalances have their times."
)


MOST_FOR_TABLES = 20_000
"""Assignments of members in all rebalances; with more, a browser could not open the tables."""
TOO_LARGE = "The history is too long for tables here. Choose a group with --group, or look at the bands above."


NEWER = {"share": "KIP-932", "streams": "KIP-1071"}
"""Types of groups that are not shown yet."""


def report(data: Path, out: Path | None, group: str | None) -> None:
    group_facts, note = _facts(data, group)
    is_picture = out is not None and out.suffix == ".svg"
    grade = Grade.OBSERVED if note.startswith(OBSERVED) else Grade.DERIVED
    title = f"Rebalances in {data.name}"
    page = _picture(group_facts) if is_picture else page_of_facts(title, data.name, group_facts, note, grade)
    if out is None or str(out) == "-":
        typer.echo(page, nl=False)
    else:
        out.write_text(page)
        typer.echo(f"{out}", err=True)


def page_of_facts(
    title: str, source: str, group_facts: Sequence[Fact], note: str, grade: Grade, summary: str = ""
) -> str:
    """Return the page of `coterie web` as one file, with the tables of the report below it; `summary` is HTML."""
    groups = from_facts(group_facts, grade, source, title=title, note=note)
    details = [groups.detail(name, with_stories=True) for name in groups.groups]
    cells = sum(len(fact.assignments) for fact in group_facts if isinstance(fact, AssignmentStored))
    tables = report_body(group_facts, note=note) if cells <= MOST_FOR_TABLES else f"<p>{TOO_LARGE}</p>"
    return file_page(title, groups.list(), [one for one in details if one is not None], tables, STYLE, summary)


def _picture(group_facts: list[Fact]) -> str:
    """Draw the group that had a rebalance first; --group chooses another."""
    rebalances = fold(group_facts)
    group = rebalances[0].group_id if rebalances else ""
    mine = [one for one in rebalances if one.group_id == group]
    return picture([one for one in intervals_of(group_facts) if one.group_id == group], mine, MemberNames(group_facts))


def _facts(data: Path, group: str | None) -> tuple[list[Fact], str]:
    group_facts, note = all_facts(data)
    if group is not None:
        group_facts = [fact for fact in group_facts if fact.group_id == group]
        if not group_facts:
            others = _newer_groups(data, note)
            kind = next((kind for kind, names in others.items() if group in names), None)
            if kind is not None:
                raise CoterieError(f"group {group!r} is a {kind} group ({NEWER[kind]}): this type is not supported yet")
            raise CoterieError(f"{data} has no events of a group {group!r}")
        return group_facts, note
    not_shown = _not_shown(_newer_groups(data, note))
    if not_shown:
        typer.echo(f"coterie: {not_shown}", err=True)
    return group_facts, f"{note} {not_shown}".rstrip()


def _newer_groups(data: Path, note: str) -> dict[str, list[str]]:
    """Return the groups of newer protocols in the log by type. Coterie's broker has none."""
    if note is OBSERVED:
        return {}
    found: dict[str, set[str]] = {}
    for partition in data.glob(f"{OFFSETS_TOPIC}-*"):
        for record in records_of(partition):
            with suppress(MalformedError):
                key = read_key(record.key or b"")
                if isinstance(key, Skipped) and key.group_type:
                    found.setdefault(key.group_type, set()).add(key.group_id)
    return {kind: sorted(found[kind]) for kind in NEWER if kind in found}


def _not_shown(groups: Mapping[str, Sequence[str]]) -> str:
    if not groups:
        return ""
    said = [
        f"{len(names)} {kind} {'group' if len(names) == 1 else 'groups'} of {NEWER[kind]} ({', '.join(names)})"
        for kind, names in groups.items()
    ]
    return f"Not shown yet: {'; '.join(said)}."


def all_facts(data: Path) -> tuple[list[Fact], str]:
    if not data.is_dir():
        raise CoterieError(
            f"{data} is not a directory: give a data directory (coterie serve --data, or Kafka's log.dirs)"
        )
    if (data / f"{FACTS_TOPIC}-0").is_dir():
        read = (read_fact(record.value or b"") for record in records_of(data / f"{FACTS_TOPIC}-0"))
        return [fact for fact in read if fact is not None], OBSERVED
    partitions = sorted(data.glob(f"{OFFSETS_TOPIC}-*"))
    if not partitions:
        raise CoterieError(
            f"{data} is not a Coterie or Kafka data directory, or never had a group (no {OFFSETS_TOPIC} found)"
        )
    names = topic_names(data)
    group_facts = [fact for partition in partitions for fact in derived_facts(_groups(partition), names)]
    return sorted(group_facts, key=lambda fact: fact.at_ms), DERIVED


def _groups(partition: Path) -> Iterator[tuple[int, GroupRecord | ConsumerGroupRecord]]:
    for record in records_of(partition):
        key = record.key or b""
        try:
            found = read_record(key, record.value)
            one = read_consumer_group_record(key, record.value) if isinstance(found, Skipped) else found
        except MalformedError:
            continue
        if isinstance(one, GroupRecord | ConsumerGroupRecord):
            yield record.timestamp, one


def topic_names(data: Path) -> dict[UUID, str]:
    """Return the names of topics by id: each partition's directory has the id of its topic."""
    names = {}
    for file in data.glob(f"*-*/{PARTITION_FILE}"):
        with suppress(MalformedError):
            names[decode_partition_metadata(file.read_bytes())] = file.parent.name.rpartition("-")[0]
    return names


def records_of(partition: Path) -> Iterator[BatchRecord]:
    """Return the records of all segments, without a batch that is being written."""
    for segment in sorted(partition.glob("*.log")):
        data = segment.read_bytes()
        with suppress(MalformedError):
            for at, header in batches(data):
                if not header.is_control:
                    yield from records(data, header, at)
