"""Large topics are copied, and compared, by jobs of Spark: a task for each range of offsets.

The order of a partition stays, so its ranges are copied one after the other, and different partitions at once. The
ordinary copy goes on where the last job ended. Before that it says in the progress that the jobs are over, and fences
the transactional ids of all tasks: one that still runs somewhere can write no more, and one that begins sees it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from secrets import token_hex

from coterie.client.types import TopicPartition
from coterie.errors import CoterieError
from coterie.migration.clusters import Selection, Side, log_starts, progress_and_end, records_since
from coterie.migration.compare import Compared, compare, merged
from coterie.migration.copier import MOST_RETRIES, CopySession, CopyStatus, MigrationOptions, Note
from coterie.migration.inspection import VerifiedPartition, partitions_to_verify
from coterie.migration.progress import segments_each
from coterie.migration.range_copy import CopiedRange, CopyJob, CopyRange, copy_range
from coterie.migration.translation import Segment
from coterie.spark.task_jobs import TaskJobError, TaskJobs

RANGE_OFFSETS = 2_000_000
"""The most offsets that one task copies, or compares."""

# --- copy -------------------------------------------------------------------------------------------------------------


def copy_with_spark(
    options: MigrationOptions,
    master: str | None,
    least: int,
    stopped: Callable[[], bool],
    note: Note,
) -> int:
    """Copy the partitions in which at least so many offsets wait, up to where they end now. Return the records."""
    status, run = CopyStatus(), token_hex(8)
    with CopySession(options, status, note) as copying:
        ends = copying.ends()
        large = {one for one, left in _left(options, ends).items() if left >= least}
        if not large:
            note(f"no partition is {least:,} offsets or more behind: Spark has nothing to do")
            return 0
        copying.begin_jobs(run)
    job = CopyJob(options.source, options.target, options.name, options.compression, run)
    note(f"Spark copies {len(large)} partitions of {len({one.topic for one in large})} topics")
    note("starting Spark")
    with TaskJobs("coterie migrate", master) as spark:
        return _copy_ranges(spark, job, options, {one: ends[one] for one in large}, stopped, note)


def _left(options: MigrationOptions, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return how many offsets wait in each partition."""
    ranges = _ranges(options, ends, lambda _: None, set())
    return {one.partition: ends[one.partition] - one.from_offset for one in ranges}


def _copy_ranges(
    spark: TaskJobs,
    job: CopyJob,
    options: MigrationOptions,
    ends: Mapping[TopicPartition, int],
    stopped: Callable[[], bool],
    note: Note,
) -> int:
    copied = retries = 0
    noted: set[TopicPartition] = set()
    while not stopped() and (ranges := _ranges(options, ends, note, noted, job.run)):
        try:
            done: Sequence[CopiedRange] = spark.run(partial(copy_range, job), ranges, stopped)
        except TaskJobError as error:
            if stopped():
                break
            is_further = _offsets(_ranges(options, ends, note, noted, job.run), ends) < _offsets(ranges, ends)
            retries = 1 if is_further else retries + 1
            if retries > MOST_RETRIES:
                raise
            note(f"{error}; trying again")
            continue
        if any(one.is_superseded for one in done):
            raise _superseded(options)
        copied += sum(one.records for one in done)
        left = sum(end - one.until_offset for one, end in ((one, ends[one.partition]) for one in ranges))
        note(f"{copied:,} records copied by Spark, {left:,} offsets behind")
    return copied


def _superseded(options: MigrationOptions) -> CoterieError:
    return CoterieError(
        f"another coterie migrate with --name {options.name} was started. Nothing is lost: start this one "
        "again when no other one runs"
    )


def _offsets(ranges: Sequence[CopyRange], ends: Mapping[TopicPartition, int]) -> int:
    return sum(ends[one.partition] - one.from_offset for one in ranges)


def _ranges(
    options: MigrationOptions,
    ends: Mapping[TopicPartition, int],
    note: Note,
    noted: set[TopicPartition],
    run: str | None = None,
) -> list[CopyRange]:
    """Return the next range of each partition that is not copied to its end.

    With `run`, raise if another migration has taken over: what it has stored before now, no task would see.
    """
    progress, since = progress_and_end(options.target, options.name)
    if run is not None and progress.spark_run != run:
        raise _superseded(options)
    with options.source.admin() as admin:
        starts = log_starts(admin, ends)
    found = []
    for one, end in sorted(ends.items()):
        position = progress.position(one)
        if position is not None and position < starts[one] and one not in noted:
            noted.add(one)
            note(f"{one}: the source has deleted the offsets {position} to {starts[one] - 1}, which were not copied")
        begin = max(position or 0, starts[one])
        if begin < end:
            chunks = progress.table(one).chunks
            found.append(
                CopyRange(one, begin, min(begin + RANGE_OFFSETS, end), chunks, segments_each(len(ends)), since)
            )
    return found


# --- verify -----------------------------------------------------------------------------------------------------------


def verified_with_spark(
    source: Side, target: Side, selection: Selection, name: str, master: str | None, note: Note
) -> Iterator[tuple[TopicPartition, Compared]]:
    """Compare all copied records, as `inspection.verified` does. Its tasks read both sides."""
    whole = list(partitions_to_verify(source, target, selection, name))
    pieces = [piece for one in whole for piece in _cut(one)]
    found: dict[TopicPartition, list[Compared]] = {one.partition: [] for one in whole}
    if pieces:
        note("starting Spark")
        with TaskJobs("coterie migrate verify", master) as spark:
            results = spark.run(partial(_compared, source, target), pieces)
        for piece, result in zip(pieces, results, strict=True):
            found[piece.partition].append(result)
    yield from ((one, merged(some)) for one, some in found.items())


def _cut(whole: VerifiedPartition) -> Iterator[VerifiedPartition]:
    """Cut a partition at segments. In a compacted topic, later records may stand for earlier ones: it is not cut."""
    at, some = 0, list[Segment]()
    for one in whole.segments:
        if some and not whole.is_compacted and one.source_end - at > RANGE_OFFSETS:
            yield whole._replace(segments=tuple(some))
            some = []
        at = some[0].source if some else one.source
        some.append(one)
    if some:
        yield whole._replace(segments=tuple(some))


def _compared(source: Side, target: Side, piece: VerifiedPartition) -> Compared:
    """Compare one piece: this is all that a task does."""
    first, last = piece.segments[0], piece.segments[-1]
    with source.consumer() as ours, target.consumer() as copies:
        return compare(
            records_since(ours, piece.partition, first.source, last.source_end),
            records_since(copies, piece.partition, first.target, last.target_end),
            piece.segments,
            is_compacted=piece.is_compacted,
        ).result()
