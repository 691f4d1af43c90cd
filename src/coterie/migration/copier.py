"""Copy records, and set the offsets of groups, until it is told to stop.

Records and progress are written in one transaction. So there are only two ways to go on after an error or a kill: the
transaction is committed, or it is aborted and its records are copied again. A `CopySession` ends with its first error;
`copy_until` opens the next one, which reads the progress again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Self

from coterie.client.admin import ConfigResource, checked
from coterie.client.consumer.fetch_requests import LogTruncationError, OffsetOutOfRangeError
from coterie.client.producer.delivery import Delivery
from coterie.client.types import Record, TopicPartition
from coterie.errors import (
    ApplicationRecoverableError,
    CoterieError,
    ErrorCode,
    KafkaError,
    TransactionAbortableError,
    TransactionAbortedError,
)
from coterie.migration.clusters import (
    POLL_RECORDS,
    POLL_S,
    Selection,
    Side,
    acls,
    check_clusters,
    committed,
    create_progress_topic,
    group_views,
    log_starts,
    source_topics,
    stored_progress,
    target_topics,
)
from coterie.migration.groups import GroupStatus, GroupView
from coterie.migration.migration_plan import MigrationPlan, SourceTopic, TargetTopic, make_plan, timestamps_change
from coterie.migration.progress import (
    CopiedTopic,
    Entry,
    chunk_entry,
    group_entry,
    migration_entry,
    position_entry,
    spark_entry,
    topic_entry,
)
from coterie.migration.translation import Segment, segments_of
from coterie.protocol.acls import AclBinding

TRANSACTION_S = 0.5
TRANSACTION_RECORDS = 20_000
TRANSACTION_BYTES = 16 << 20
"""A transaction is committed when it has lasted so long, or has so much."""
REFRESH_S = 30.0
"""How often new topics, partitions, configs and ACLs of the source are looked for."""
ABORT_S = 10.0
RETRY_S = 1.0
MOST_RETRIES = 10
"""After so many sessions that have copied nothing, the error is raised."""
FENCED = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
PASSING = (
    ApplicationRecoverableError,
    TransactionAbortableError,
    TransactionAbortedError,
    OffsetOutOfRangeError,
)
"""Errors, beside the retriable ones, after which a new session may succeed."""

Note = Callable[[str], None]


def transactional_id(name: str, partition: TopicPartition) -> str:
    """Return the transactional id of the tasks that copy a partition."""
    return f"{name}-{partition.topic}-{partition.partition}"


@dataclass(frozen=True)
class MigrationOptions:
    """What to migrate, and how."""

    source: Side
    target: Side
    selection: Selection = field(default_factory=Selection)
    name: str = "coterie-migrate"
    """The name of the progress topic, and the transactional id."""
    replication_factor: int = -1
    """Of new topics in the target; -1 is the target's default."""
    compression: str = "none"
    with_acls: bool = True
    sync_s: float = 5.0
    """How often the offsets of groups are set."""
    once: bool = False
    """End when everything is copied that there was at the start."""


@dataclass
class CopyStatus:
    """How far the copy is."""

    records: int = 0
    """Records that this process has copied."""
    behind: int | None = None
    """Offsets of the source that were not copied when offsets of groups were last set; None before that."""
    topics: int = 0
    groups: list[GroupStatus] = field(default_factory=list)


def copy_until(
    options: MigrationOptions, stopped: Callable[[], bool], note: Note, show: Callable[[CopyStatus], None]
) -> CopyStatus:
    """Copy until `stopped`, or with `once` until the end. After an error that may pass it tries again."""
    status, retries = CopyStatus(), 0
    while True:
        before = status.records
        try:
            with CopySession(options, status, note) as session:
                session.run(stopped, show)
        except KafkaError as error:
            if error.code in FENCED:
                raise CoterieError(
                    f"{error}\nAnother coterie migrate with --name {options.name} was started, or this one stood still "
                    "for longer than transaction.timeout.ms. Nothing is lost: start it again when no other one runs"
                ) from None
            retries = 1 if status.records > before else retries + 1
            if stopped() or retries > MOST_RETRIES or not _may_pass(error):
                raise
            note(f"{error}; trying again")
            time.sleep(RETRY_S)
        else:
            return status


def _may_pass(error: KafkaError) -> bool:
    """Return whether a new session may succeed."""
    if isinstance(error, LogTruncationError):
        return False
    return error.retriable or isinstance(error, PASSING)


@dataclass
class _Copied:
    """The records of a partition in the open transaction: offsets in the source, and their deliveries."""

    sources: list[int] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)

    def segments(self) -> list[Segment]:
        """Wait until they are delivered. Two answers tell all offsets, unless another producer wrote in between."""
        first, last = self.deliveries[0].result().offset, self.deliveries[-1].result().offset
        if first < 0 or last < 0:
            raise TransactionAbortableError("the target did not say at which offsets the records are")
        if last - first == len(self.deliveries) - 1:
            targets: Sequence[int] = range(first, last + 1)
        else:
            targets = [one.result().offset for one in self.deliveries]
        return segments_of(zip(self.sources, targets, strict=True))


class CopySession:
    """The clients of both sides, from the progress that is stored to the first error."""

    def __init__(self, options: MigrationOptions, status: CopyStatus, note: Note) -> None:
        """Take the options, and the status to keep up to date."""
        self._options = options
        self._status = status
        self._note = note
        self._noted: set[str] = set()
        self._reading: set[TopicPartition] = set()
        self._copied: dict[TopicPartition, _Copied] = {}
        self._records = self._bytes = 0
        self._began: float | None = None
        """When the open transaction began."""

    def __enter__(self) -> Self:
        options = self._options
        with ExitStack() as stack:
            self._source = stack.enter_context(options.source.admin())
            self._target = stack.enter_context(options.target.admin())
            source_id = check_clusters(self._source, self._target)
            create_progress_topic(self._target, options.name, options.replication_factor)
            self._producer = options.target.producer(options.name, options.compression)
            stack.callback(self._close_producer)
            self._producer.init_transactions()
            self._progress = stored_progress(options.target, options.name)
            if self._progress.spark_run is not None:
                self._end_jobs()
            if self._progress.source not in (None, source_id):
                raise CoterieError(
                    f"{options.name} in the target has the progress of a migration from the cluster "
                    f"{self._progress.source}, and this source is {source_id}: give another --name"
                )
            self._consumer = stack.enter_context(options.source.consumer())
            if self._progress.source is None:
                self._write([migration_entry(source_id)])
            self._progress.source = source_id
            self._refresh()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._stack:
            if isinstance(error, KafkaError) and self._began is not None:
                self._abort(error)

    def _abort(self, error: KafkaError) -> None:
        """Abort the open transaction. This tells whether another producer has taken over: then that is the error."""
        try:
            self._producer.abort_transaction(timeout=ABORT_S)
        except KafkaError as failed:
            if failed.code in FENCED:
                raise failed from error

    def _close_producer(self) -> None:
        with suppress(KafkaError):  # the error that ended the session is raised
            self._producer.close(timeout=5)

    # --- jobs of Spark

    def ends(self) -> dict[TopicPartition, int]:
        """Return where the partitions end that are copied."""
        return self._consumer.end_offsets(self._reading)

    def begin_jobs(self, run: str) -> None:
        """Say in the progress that tasks copy."""
        self._write([spark_entry(run)])

    def _end_jobs(self) -> None:
        """Say in the progress that no task copies any more, fence those that do, and read the progress again.

        A task that begins after this finds another token, so that no two copy the same records.
        """
        self._write([spark_entry(None)])
        with self._options.source.admin() as admin:
            topics = source_topics(admin, self._progress.topics.__contains__)
        names = [
            transactional_id(self._options.name, TopicPartition(name, one))
            for name, topic in topics.items()
            for one in range(topic.partitions)
        ]
        checked(self._target.fence_producers(names))
        self._progress = stored_progress(self._options.target, self._options.name)

    # --- the loop

    def run(self, stopped: Callable[[], bool], show: Callable[[CopyStatus], None]) -> None:
        """Copy until `stopped`, or until all is copied that there is now."""
        left = self._consumer.end_offsets(self._reading)
        synced = refreshed = time.monotonic()
        self._sync()
        while not stopped():
            self._step()
            now = time.monotonic()
            if now - synced >= self._options.sync_s:
                self._sync()
                synced = time.monotonic()
            if now - refreshed >= REFRESH_S:
                self._refresh()
                refreshed = time.monotonic()
            show(self._status)
            if self._options.once:
                left = {one: end for one, end in left.items() if self._consumer.position(one) < end}
                if not left:
                    break
        self._sync()

    def _step(self) -> None:
        if not self._reading:
            time.sleep(POLL_S)
            return
        for record in self._consumer.poll(POLL_S, max_records=POLL_RECORDS):
            self._copy(record)
        if self._began is not None and (
            time.monotonic() - self._began >= TRANSACTION_S
            or self._records >= TRANSACTION_RECORDS
            or self._bytes >= TRANSACTION_BYTES
        ):
            self._commit()

    def _copy(self, record: Record) -> None:
        self._begin()
        delivery = self._producer.send(
            record.topic,
            record.value,
            key=record.key,
            headers=record.headers,
            partition=record.partition,
            timestamp=record.timestamp,
        )
        copied = self._copied.setdefault(TopicPartition(record.topic, record.partition), _Copied())
        copied.sources.append(record.offset)
        copied.deliveries.append(delivery)
        self._records += 1
        self._bytes += len(record.key or b"") + len(record.value or b"")

    def _begin(self) -> None:
        if self._began is None:
            self._producer.begin_transaction()
            self._began = time.monotonic()

    def _commit(self) -> None:
        """Commit the records and where they are."""
        if self._began is None:
            return
        entries = [
            chunk_entry(partition, chunk)
            for partition, copied in self._copied.items()
            for chunk in self._progress.table(partition).add(copied.segments())
        ]
        self._write(entries)
        self._status.records += self._records
        self._copied, self._records, self._bytes = {}, 0, 0

    def _write(self, entries: Collection[Entry]) -> None:
        """Write progress, and commit the transaction."""
        self._begin()
        for key, value in entries:
            self._producer.send(self._options.name, value, key=key, partition=0)
        self._producer.commit_transaction()
        self._began = None

    # --- topics and ACLs

    def _refresh(self) -> None:
        """Create what the source has and the target has not, and read new partitions."""
        self._commit()
        topics = source_topics(self._source, self._options.selection.has_topic)
        there = target_topics(self._target, topics.keys())
        plan = make_plan(topics, there, self._progress.topics, self._options.replication_factor)
        for problem in plan.conflicts.values():
            self._note_once(problem)
        self._carry_out(plan, topics, there)
        if self._options.with_acls:
            self._copy_acls()
        self._read({name: one.partitions for name, one in topics.items() if name not in plan.conflicts})

    def _carry_out(
        self, plan: MigrationPlan, topics: Mapping[str, SourceTopic], there: Mapping[str, TargetTopic]
    ) -> None:
        if plan.create:
            checked(self._target.create_topics(plan.create))
            new = {one.name for one in plan.create}
            self._wait_for(new)
            created = target_topics(self._target, new)
            there = {**there, **created}
            for name, topic in created.items():
                if not topic.keeps_timestamps:
                    raise CoterieError(timestamps_change(name))
        if plan.grow:
            checked(self._target.create_partitions(plan.grow))
        if plan.alter:
            changes = {ConfigResource.topic(name): some for name, some in plan.alter.items()}
            checked(self._target.alter_configs(changes))
        changed = [*(one.name for one in plan.create), *plan.use, *plan.alter]
        for name in changed:
            target_id = there[name].id if name in there else ""
            self._progress.topics[name] = CopiedTopic(topics[name].id, topics[name].configs, target_id)
        if changed:
            self._write([topic_entry(name, self._progress.topics[name]) for name in changed])

    def _wait_for(self, names: set[str]) -> None:
        """Wait until the target knows new topics: its brokers hear of them one after the other."""
        until = time.monotonic() + self._target.settings.default_api_timeout_ms / 1000
        while not names <= {one.name for one in self._target.list_topics()} and time.monotonic() < until:
            time.sleep(POLL_S)

    def _copy_acls(self) -> None:
        here, there = acls(self._source), acls(self._target)
        if here is None or there is None:
            if here:
                self._note_once("the target has no authorizer: the ACLs of the source are not copied")
            return
        missing: list[AclBinding] = sorted(here - there)
        if missing:
            checked(self._target.create_acls(missing))
            self._note(f"{len(missing)} ACLs copied")

    def _read(self, partitions: Mapping[str, int]) -> None:
        wanted = {TopicPartition(name, one) for name, count in partitions.items() for one in range(count)}
        self._status.topics = len(partitions)
        if wanted == self._reading:
            return
        new = sorted(wanted - self._reading)
        starts = log_starts(self._source, new)
        self._consumer.assign(sorted(wanted))
        for one in new:
            position = self._progress.position(one)
            if position is not None and position < starts[one]:
                self._note(
                    f"{one}: the source has deleted the offsets {position} to {starts[one] - 1}, which were not copied"
                )
            self._consumer.seek(one, max(position or 0, starts[one]))
        self._reading = wanted

    def _note_once(self, text: str) -> None:
        if text not in self._noted:
            self._noted.add(text)
            self._note(text)

    # --- groups

    def _sync(self) -> None:
        """Set the offsets of groups in the target, where their members have not committed by themselves."""
        self._commit()
        ends = self._consumer.end_offsets(self._reading)
        reached = {one: self._consumer.position(one) for one in self._reading}
        self._status.behind = sum(max(ends[one] - at, 0) for one, at in reached.items())
        entries = []
        for one, at in reached.items():
            if at > (self._progress.position(one) or 0):
                self._progress.positions[one] = at
                entries.append(position_entry(one, at))
        views = group_views(self._source, self._target, self._progress, self._options.selection, reached.get)
        for view in views:
            if view.to_set:
                written = self._progress.groups.setdefault(view.status.group_id, {})
                written |= view.written()
                entries.append(group_entry(view.status.group_id, written))
        if entries:
            self._write(entries)  # before offsets are set, so that a kill in between leaves none that looks foreign
        self._status.groups = [self._set_offsets(view) for view in views]

    def _set_offsets(self, view: GroupView) -> GroupStatus:
        if not view.to_set:
            return view.status
        if committed(self._target, view.status.group_id) != view.there:  # many groups are looked at before this one
            return replace(view.status, not_set=len(view.to_set))
        results = self._target.alter_group_offsets(view.status.group_id, view.to_set)
        failed = [error for error in results.values() if error is not None]
        for error in failed[:1]:
            if error.code is not ErrorCode.UNKNOWN_MEMBER_ID:  # it has members by now
                self._note_once(str(error))
        return replace(view.status, not_set=len(failed))
