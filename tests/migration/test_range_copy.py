"""The tasks of `coterie migrate --spark`, without Spark: run again, killed, superseded. `make migrate-soak` has it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

import pyarrow as pa

from coterie import Admin, Broker, NewTopic, OffsetAndMetadata, Producer, TopicPartition, checked
from coterie.client.producer.arrow_columns import WrittenRows
from coterie.errors import CoterieError, KafkaError
from coterie.migration import spark_jobs
from coterie.migration.clusters import Selection, Side
from coterie.migration.compare import Compared, merged
from coterie.migration.copier import CopySession, CopyStatus, MigrationOptions, copy_until
from coterie.migration.inspection import partitions_to_verify, verified
from coterie.migration.range_copy import CopyJob, copy_range, segments_of_rows
from coterie.migration.spark_jobs import _compared, _copy_ranges, _cut, _ranges
from coterie.migration.translation import Segment
from coterie.protocol.arrow import ArrowReader
from coterie.spark.task_jobs import reason_of
from soak.migrate import contents, offset_differences, record_differences

TEAS, BILLS = NewTopic("teas", 2), NewTopic("bills", 1)
PLACES = [TopicPartition("teas", 0), TopicPartition("teas", 1), TopicPartition("bills", 0)]


@pytest.fixture
def options() -> Iterator[MigrationOptions]:
    """Two brokers. The source has headers, tombstones, times, and gaps of transactions, some aborted."""
    with Broker() as source, Broker() as target, ExitStack() as stack:
        here = source.bootstrap_servers
        admin = stack.enter_context(Admin(bootstrap_servers=here))
        checked(admin.create_topics([TEAS, BILLS]))
        with Producer(bootstrap_servers=here) as producer:
            for one in range(300):
                more = [("from", "Assam"), ("none", None)] if one % 5 == 0 else ()
                value = None if one % 7 == 0 else f"tea {one}"
                producer.send("teas", value, key=str(one), headers=more, timestamp=1_700_000_000_000 + one)
        with Producer(bootstrap_servers=here, transactional_id="bills") as producer:
            producer.init_transactions()
            for turn in range(6):
                producer.begin_transaction()
                for one in range(5):
                    producer.send("bills", f"{turn}.{one}")
                producer.flush()
                (producer.commit_transaction if turn % 2 else producer.abort_transaction)()
        ends = {one: at.offset for one, at in checked(admin.list_offsets(dict.fromkeys(PLACES, -1))).items()}
        for group, part in (("half", 0.5), ("all", 1.0)):
            offsets = {one: OffsetAndMetadata(int(end * part), group) for one, end in ends.items()}
            checked(admin.alter_group_offsets(group, offsets))
        yield MigrationOptions(Side(here), Side(target.bootstrap_servers), once=True, with_acls=False)


def begun(options: MigrationOptions, run: str) -> tuple[CopyJob, dict[TopicPartition, int]]:
    with CopySession(options, CopyStatus(), print) as session:
        ends = session.ends()
        session.begin_jobs(run)
    return CopyJob(options.source, options.target, options.name, options.compression, run), ends


def finish(options: MigrationOptions) -> int:
    """Run the ordinary copy, as the command does after the jobs."""
    return copy_until(options, lambda: False, print, lambda _: None).records


def assert_equal(options: MigrationOptions) -> None:
    here, there = options.source.bootstrap, options.target.bootstrap
    ours, copies = contents(here, [TEAS, BILLS]), contents(there, [TEAS, BILLS])
    assert sum(map(len, ours.values())) == 315
    assert not record_differences(ours, copies)
    assert offset_differences(here, there, ["half", "all"], ours, copies) == (6, [])


def test_ranges_are_copied_once_although_tasks_run_again(
    options: MigrationOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that Spark runs again, with what it was given at first, copies nothing; then the ordinary copy goes on."""
    monkeypatch.setattr(spark_jobs, "RANGE_OFFSETS", 100)
    job, ends = begun(options, "run")
    copied = 0
    while ranges := _ranges(options, ends, print, set()):
        copied += sum(copy_range(job, one).records for one in ranges)
        assert [copy_range(job, one).records for one in ranges] == [0] * len(ranges)
    assert copied == 315 and finish(options) == 0
    assert_equal(options)
    what = options.source, options.target, Selection(), options.name
    whole = list(verified(*what))
    assert [found.compared for _, found in whole] == [15, *(found.compared for _, found in whole[1:])]
    assert all(found.is_equal for _, found in whole)
    pieces = [(one.partition, list(_cut(one))) for one in partitions_to_verify(*what)]
    assert sum(len(some) for _, some in pieces) > len(pieces)
    found = [(one, merged([_compared(*what[:2], piece) for piece in some])) for one, some in pieces]
    assert [(one, each.compared, each.is_equal) for one, each in found] == [
        (one, each.compared, each.is_equal) for one, each in whole
    ]


def test_a_task_that_is_killed_is_aborted_and_another_goes_on(
    options: MigrationOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has committed a part of its range, and has written more."""
    monkeypatch.setattr("coterie.migration.range_copy.TRANSACTION_BYTES", 1)  # a transaction for each read
    take = ArrowReader.take
    monkeypatch.setattr(ArrowReader, "take", lambda reader, fetched: take(reader, fetched, 1))
    job, ends = begun(options, "run")
    ranges = _ranges(options, ends, print, set())
    (bills,) = [one for one in ranges if one.partition.topic == "bills"]
    commits = 0

    def fails_later(producer: Producer, timeout: float | None = None) -> None:
        nonlocal commits
        commits += 1
        if commits > 1:
            producer._unusable = "killed"
            raise KafkaError("killed")
        real(producer, timeout)

    real = Producer.commit_transaction
    monkeypatch.setattr(Producer, "commit_transaction", fails_later)
    with pytest.raises(KafkaError, match="killed"):
        copy_range(job, bills)
    monkeypatch.undo()
    left = copy_range(job, bills).records
    assert 0 < left < 15, "the first transaction was committed, the second one aborted"
    assert finish(options) == 300
    assert_equal(options)


def test_a_task_of_an_earlier_run_writes_nothing(options: MigrationOptions) -> None:
    """A driver was killed, and the ordinary copy has gone on; or another driver has begun."""
    job, ends = begun(options, "first")
    ranges = _ranges(options, ends, print, set())
    assert finish(options) == 315
    assert all(copy_range(job, one) == (0, True) for one in ranges)
    begun(options, "second")
    assert all(copy_range(job, one) == (0, True) for one in ranges)
    assert_equal(options)


class Inline:
    """Runs tasks in this process, as a session of Spark with one job at a time."""

    def __init__(self, *_: object) -> None:
        pass

    def run(self, function: Any, items: Any, _stopped: object = None) -> list[Any]:
        return [function(one) for one in items]


def test_a_driver_ends_that_another_migration_has_taken_over_from(options: MigrationOptions) -> None:
    """The ordinary copy was started while this one was starting Spark, or between two of its jobs."""
    job, ends = begun(options, "run")
    late = Producer(bootstrap_servers=options.source.bootstrap)
    with CopySession(options, CopyStatus(), print) as other, late:
        late.send("teas", "late", key="late").result()  # so that there is something for both
        with pytest.raises(CoterieError, match="another coterie migrate with --name coterie-migrate was started"):
            _copy_ranges(Inline(), job, options, ends, lambda: False, print)  # type: ignore[arg-type]
        other.run(lambda: False, lambda _: None)
    ours, copies = (contents(one.bootstrap, [TEAS, BILLS]) for one in (options.source, options.target))
    assert sum(map(len, copies.values())) == 316 and not record_differences(ours, copies)


def test_segments_of_columns_end_at_gaps_of_either_side() -> None:
    sources = [pa.array([0, 1, 2, 5]), pa.array([6, 7])]
    written = [WrittenRows(0, 10, 2), WrittenRows(0, 12, 3), WrittenRows(0, 20, 1)]
    expected = [Segment.exact(0, 10, 3), Segment.exact(5, 13, 2), Segment.exact(7, 20, 1)]
    assert segments_of_rows(sources, written) == expected
    with pytest.raises(KafkaError, match="did not say at which offsets"):
        segments_of_rows([pa.array([0])], [WrittenRows(0, -1, 1)])


def test_results_of_pieces_are_merged() -> None:
    one = Compared(2, 1, 0, 0, 1, "aa", "bb", ("offset 1: not in the target",))
    both = merged([Compared(3, source_checksum="cc", target_checksum="cc"), one])
    assert both[:5] == (5, 1, 0, 0, 1) and not both.is_equal and both.problems == one.problems
    assert merged([]).is_equal and merged([one]) == one


def test_the_reason_of_a_failed_job_is_the_error_of_its_task() -> None:
    text = """An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 1 times
Traceback (most recent call last):
  File "task.py", line 1, in <module>
coterie.errors.KafkaError: teas-0 is gone

\tat org.apache.spark.api.python.BasePythonRunner
"""
    assert reason_of(text) == "coterie.errors.KafkaError: teas-0 is gone"
    assert reason_of("") == "Spark said nothing"
