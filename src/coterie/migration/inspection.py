"""Look at a migration without changing it: what is left to do, and whether the copies are equal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from coterie.client.admin import LATEST, Admin, checked
from coterie.client.types import TopicPartition
from coterie.migration.clusters import (
    Selection,
    Side,
    check_clusters,
    group_views,
    log_starts,
    records_since,
    source_topics,
    stored_progress,
    target_topics,
)
from coterie.migration.compare import Compared, Comparison, compare
from coterie.migration.groups import GroupStatus
from coterie.migration.migration_plan import MigrationPlan, SourceTopic, configs_for_later, make_plan
from coterie.migration.progress import Progress
from coterie.migration.translation import Segment


@dataclass(frozen=True)
class TopicStatus:
    """How far the copy of a topic is."""

    name: str
    partitions: int
    copied: int
    """Records in the target that are copies."""
    behind: int
    """Offsets of the source that are not copied; markers of transactions count as well."""
    later: dict[str, str]
    """Configs to set when the copy has ended."""


def planned(source: Side, target: Side, selection: Selection, name: str, replication_factor: int) -> MigrationPlan:
    """Return what a migration would do at its start."""
    with source.admin() as here, target.admin() as there:
        check_clusters(here, there)
        topics = source_topics(here, selection.has_topic)
        has_begun = name in {one.name for one in there.list_topics()}
        known = stored_progress(target, name).topics if has_begun else {}
        return make_plan(topics, target_topics(there, topics.keys()), known, replication_factor)


def status(source: Side, target: Side, selection: Selection, name: str) -> tuple[list[TopicStatus], list[GroupStatus]]:
    """Return how far the copy is, and which groups can move."""
    progress = stored_progress(target, name)
    with source.admin() as here, target.admin() as there:
        topics = _copied_topics(here, progress, selection)
        behind = _behind(here, progress, topics)
        copied: dict[str, int] = dict.fromkeys(topics, 0)
        for one, table in progress.tables.items():
            if one.topic in copied:
                copied[one.topic] += table.records
        found = [
            TopicStatus(one, topic.partitions, copied[one], behind[one], configs_for_later(topic.configs))
            for one, topic in sorted(topics.items())
        ]
        groups = [one.status for one in group_views(here, there, progress, selection, progress.position)]
    return found, groups


def _copied_topics(admin: Admin, progress: Progress, selection: Selection) -> dict[str, SourceTopic]:
    return source_topics(admin, lambda name: name in progress.topics and selection.has_topic(name))


def _partitions(topics: dict[str, SourceTopic]) -> list[TopicPartition]:
    return [TopicPartition(name, one) for name, topic in sorted(topics.items()) for one in range(topic.partitions)]


def _behind(admin: Admin, progress: Progress, topics: dict[str, SourceTopic]) -> dict[str, int]:
    places = _partitions(topics)
    starts = log_starts(admin, places)
    ends = checked(admin.list_offsets(dict.fromkeys(places, LATEST), read_committed=True)) if places else {}
    behind = dict.fromkeys(topics, 0)
    for one in places:
        position = max(progress.position(one) or 0, starts[one])
        behind[one.topic] += max(ends[one].offset - position, 0)
    return behind


class VerifiedPartition(NamedTuple):
    """The copies in a partition that both sides still have."""

    partition: TopicPartition
    segments: tuple[Segment, ...]
    is_compacted: bool


def partitions_to_verify(source: Side, target: Side, selection: Selection, name: str) -> Iterator[VerifiedPartition]:
    """Return what is to be compared, partition by partition."""
    progress = stored_progress(target, name)
    with source.admin() as here, target.admin() as there:
        topics = _copied_topics(here, progress, selection)
        for one in _partitions(topics):
            starts = log_starts(here, [one])[one], log_starts(there, [one])[one]
            segments = progress.table(one).since(*starts)
            yield VerifiedPartition(one, tuple(segments), topics[one.topic].is_compacted)


def verified(source: Side, target: Side, selection: Selection, name: str) -> Iterator[tuple[TopicPartition, Compared]]:
    """Read all copied records on both sides and compare them, partition by partition."""
    with source.consumer() as ours, target.consumer() as copies:
        for one, segments, is_compacted in partitions_to_verify(source, target, selection, name):
            if not segments:
                yield one, Comparison().result()
                continue
            records = records_since(ours, one, segments[0].source), records_since(copies, one, segments[0].target)
            yield one, compare(*records, segments, is_compacted=is_compacted).result()
