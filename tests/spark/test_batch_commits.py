"""The offsets of a source in the transactions of the sink. Real sockets, Spark's part played by `standin.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from threading import Event

import pytest

import coterie
from apache_kafka import ApacheKafka, needs_apache_kafka
from client.transacting import seen
from coterie.client.admin.admin import Admin
from coterie.client.admin.admin_types import NewTopic
from coterie.client.admin.results import checked
from coterie.client.producer.producer import Producer
from coterie.client.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from coterie.errors import ErrorCode, KafkaError
from coterie.spark.batch_commits import BatchCommits, RefusedCommitsError, ask_for_commits
from coterie.spark.checkpoint import CommitNote
from spark.conftest import in_the_soak
from spark.standin import Query
from spark.topics import Plain, Topic, until

pytestmark = pytest.mark.real_time


QUICK = {
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.min.session.timeout.ms": 100,
    "group.consumer.session.timeout.ms": 2_000,
    "group.consumer.min.heartbeat.interval.ms": 50,
    "group.consumer.heartbeat.interval.ms": 100,
}


BROKERS_SAY = ("partition_assignment_strategy", "heartbeat_interval_ms", "session_timeout_ms")
PROTOCOLS: dict[str, dict[str, str | None]] = {
    "cooperative": {},
    "range": {"partition_assignment_strategy": "range"},
    "roundrobin": {"partition_assignment_strategy": "roundrobin"},
    "consumer": {"group_protocol": "consumer", **dict.fromkeys(BROKERS_SAY)},
}


def options_of(protocol: str) -> dict[str, str]:
    """The options of a query; one without a text is not set."""
    return {f"kafka__{name.replace('_', '__')}": text or "" for name, text in PROTOCOLS[protocol].items()}


class DiedError(Exception):
    """The driver dies here."""


def die() -> None:
    raise DiedError


class Sink:
    """What TransactionalSink does, without Spark: rows, batch number and offsets in one transaction."""

    def __init__(self, topic: Topic, folder: Path, name: str = "sink") -> None:
        self.address, self.name = topic.address, name
        self.socket = str(folder / name)
        self.group = GroupMetadata(f"coterie-sink-{name}", -1, "", None)
        self.producer = Producer(bootstrap_servers=topic.address, transactional_id=name)
        self.producer.init_transactions()
        self.before_commit: Callable[[], None] = lambda: None
        self.after_commit: Callable[[], None] = lambda: None

    def next_batch(self) -> int:
        where = TopicPartition("copies", 0)
        with Admin(bootstrap_servers=self.address) as admin:
            found = checked(admin.list_group_offsets(self.group.group_id, [where], require_stable=True))[where]
        return found.offset if found else 0

    def __call__(self, batch: int, rows: list[int]) -> None:
        if batch < self.next_batch():
            return
        while True:
            try:
                self._write(batch, rows)
            except KafkaError as error:
                if error.code is not ErrorCode.ILLEGAL_GENERATION:
                    raise
                # A rebalance ended between the source's answer and the commit: again, in its generation.
            else:
                break
        self.after_commit()

    def _write(self, batch: int, rows: list[int]) -> None:
        with self.producer.transaction():
            for row in rows:
                self.producer.send("copies", str(row), partition=row % 2)
            self.producer.send_offsets({TopicPartition("copies", 0): OffsetAndMetadata(batch + 1)}, self.group)
            commits = ask_for_commits(self.socket)
            if commits.offsets:
                self.producer.send_offsets(commits.offsets, commits.group)
            self.before_commit()


@pytest.fixture(params=["coterie", pytest.param("apache kafka", marks=[needs_apache_kafka, in_the_soak])])
def copies(request: pytest.FixtureRequest) -> Iterator[Topic]:
    with ExitStack() as stack:
        if request.param == "coterie":
            broker = stack.enter_context(coterie.Broker(settings={"group.min.session.timeout.ms": 100, **QUICK}))
            address = broker.bootstrap_servers
        else:
            address = stack.enter_context(ApacheKafka({name: str(text) for name, text in QUICK.items()})).bootstrap
        topic = stack.enter_context(closing(Topic(address)))
        topic.admin.create_topics([NewTopic("copies", 2)])
        yield topic


def started(topic: Topic, folder: Path, **options: str) -> tuple[Query, Sink]:
    sink = Sink(topic, folder)
    query = Query(topic, folder / "checkpoint", "g", transactionalSink=sink.socket, **options)
    query.write = sink
    return query, sink


def recorded(sink: Sink) -> tuple[Callable[[int, list[int]], None], list[list[int]]]:
    """The sink, and the rows that each batch has brought."""
    batches: list[list[int]] = []

    def write(batch: int, rows: list[int]) -> None:
        batches.append(rows)
        sink(batch, rows)

    return write, batches


def start_into_the_batch(query: Query) -> Event:
    """Start the query, up to a batch that has read; it goes on when the event is set."""
    is_there, go_on = Event(), Event()

    def in_batch() -> None:
        is_there.set()
        go_on.wait(30)

    query.in_batch = in_batch
    query.start()
    until(is_there.is_set)
    return go_on


def copied(topic: Topic) -> list[int]:
    return sorted(map(int, seen(topic.address, "copies")))


def notes(topic: Topic) -> set[CommitNote | None]:
    found = checked(topic.admin.list_group_offsets("g"))
    return {CommitNote.parse(offset.metadata) for offset in found.values() if offset is not None}


def test_offsets_are_committed_with_the_rows_and_by_nobody_else(copies: Topic, tmp_path: Path) -> None:
    query, _ = started(copies, tmp_path)
    copies.write(100)
    until(query.trigger, what="the first batch")
    assert copies.committed("g") == 100, "before Spark has asked for the next batch"
    assert {(note.plan, note.in_transaction) for note in notes(copies) if note} == {(1, True)}
    owned = query.reader.query._owned  # type: ignore[union-attr]
    query.trigger()
    assert not owned.commits_due()
    query.stop()
    assert copied(copies) == list(range(100))


def test_a_batch_that_dies_between_its_transaction_and_sparks_log_is_read_again_and_not_written(
    copies: Topic, tmp_path: Path
) -> None:
    query, sink = started(copies, tmp_path)
    copies.write(100)
    sink.after_commit = die
    with pytest.raises(DiedError):
        query.run()
    query.kill()
    again, sink = started(copies, tmp_path)
    again.write, read = recorded(sink)
    copies.write(50)
    again.trigger()
    assert sorted(read[0]) == list(range(100)), "Spark needs the same rows for its state"
    until(lambda: again.trigger() and copies.committed("g") == 150)
    again.stop()
    assert copied(copies) == list(range(150))


def test_a_batch_that_dies_in_its_transaction_is_read_by_whoever_owns_it_next(copies: Topic, tmp_path: Path) -> None:
    """The offsets are pending when the driver dies. The next driver aborts them, and begins where the group is."""
    query, sink = started(copies, tmp_path)
    copies.write(100)

    def killed() -> None:
        query.kill()
        die()

    sink.before_commit = killed
    with pytest.raises(DiedError):
        query.run()
    again, sink = started(copies, tmp_path)
    again.write, read = recorded(sink)
    again.trigger()
    assert read == [[]], "the batch that was aborted is empty"
    assert copies.committed("g") == 0
    until(lambda: again.trigger() and copies.committed("g") == 100)
    again.stop()
    assert copied(copies) == list(range(100))


def test_a_batch_that_was_aborted_is_not_lost_with_the_offsets_of_its_group(copies: Topic, tmp_path: Path) -> None:
    query, sink = started(copies, tmp_path)
    copies.write(100)
    until(query.trigger, what="the first batch")
    copies.write(100)
    sink.before_commit = die
    with pytest.raises(DiedError):
        query.run()
    query.stop()
    checked(copies.admin.delete_groups(["g"]))
    again, _ = started(copies, tmp_path)
    again.run()
    again.stop()
    assert copied(copies) == list(range(200))
    assert copies.committed("g") == 200


def test_a_rebalance_that_leaves_the_batch_its_partitions_does_not_fence_it(copies: Topic, tmp_path: Path) -> None:
    """The generation is another one when the batch is committed. The source knows it, and the plan did not."""
    query, _ = started(copies, tmp_path)
    copies.write(100)
    go_on = start_into_the_batch(query)
    plain = Plain(copies, "g")
    until(lambda: copies.members("g") == 2)
    go_on.set()
    until(lambda: plain.owned == 2, what="the newcomer has its half")
    until(lambda: copies.committed("g") == 100)
    plain.stop()
    query.stop()
    assert query.error is None
    assert copied(copies) == list(range(100))
    assert plain.seen == []


def test_a_stop_between_the_offsets_and_the_commit_does_not_set_the_group_back(copies: Topic, tmp_path: Path) -> None:
    """Without transactions, a query that is stopped in a batch commits its beginning, and leaves it to the others."""
    plain = Plain(copies, "g")
    query, sink = started(copies, tmp_path)
    query.start()
    until(lambda: plain.owned == query.owned == 2)
    stopped = Event()

    def stop() -> None:
        query.reader.stop()
        query._is_ending = True
        stopped.set()

    sink.before_commit = stop
    copies.write(100)
    until(stopped.is_set)
    query.stop()
    until(lambda: copies.committed("g") == 100 and plain.owned == 4)
    plain.stop()
    assert len(copied(copies)) == 50
    assert sorted([*copied(copies), *plain.seen]) == list(range(100))


@pytest.mark.parametrize("protocol", ["cooperative", "consumer"])
def test_a_query_that_was_removed_from_its_group_cannot_commit(copies: Topic, tmp_path: Path, protocol: str) -> None:
    """The transaction is aborted, and the others have its records."""
    query, _ = started(copies, tmp_path, kafka__max__poll__interval__ms="1500", **options_of(protocol))
    copies.write(100)
    go_on = start_into_the_batch(query)
    plain = Plain(copies, "g", **PROTOCOLS[protocol])
    until(lambda: copies.committed("g") == 100, what="the others go on without it")
    go_on.set()
    until(lambda: query.error is not None)
    assert isinstance(query.error, RefusedCommitsError)
    assert "start the query again from its checkpoint" in str(query.error)
    query.stop()
    plain.stop()
    assert copied(copies) == []
    assert sorted(plain.seen) == list(range(100))


def test_the_group_refuses_the_identity_of_a_member_that_left(copies: Topic, tmp_path: Path) -> None:
    """The source answered before the rebalance; what it said is of no use after it."""
    query, sink = started(copies, tmp_path)
    copies.write(100)
    stale: list[BatchCommits] = []

    def ask_and_die() -> None:
        stale.append(ask_for_commits(sink.socket))
        die()

    sink.before_commit = ask_and_die
    with pytest.raises(DiedError):
        query.run()
    query.stop()
    (commits,) = stale
    with pytest.raises(KafkaError) as refused, sink.producer.transaction():
        sink.producer.send_offsets(commits.offsets, commits.group)
    assert refused.value.code in {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION}
    assert copies.committed("g") == 0
    with pytest.raises(RefusedCommitsError, match="does not answer"):
        ask_for_commits(sink.socket)


def test_commits_are_read_as_they_were_written() -> None:
    commits = BatchCommits(
        GroupMetadata("g", 7, "m-1", None), {TopicPartition("t", 3): OffsetAndMetadata(9, metadata="spark")}
    )
    assert BatchCommits.from_json(commits.to_json()) == commits
    with pytest.raises(RefusedCommitsError, match="because"):
        BatchCommits.from_json('{"refused": "because"}')


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_two_applications_share_a_group(copies: Topic, tmp_path: Path, protocol: str) -> None:
    """Partitions move while batches run: the second joins, is killed in its transaction, and comes back."""

    def application(name: str) -> tuple[Query, Sink]:
        sink = Sink(copies, tmp_path, name)
        how = {"transactionalSink": sink.socket, **options_of(protocol)}
        query = Query(copies, tmp_path / f"{name}-checkpoint", "g", **how)
        query.write = sink
        return query.start(), sink

    def share(first: Query, second: Query) -> bool:
        copies.write(20)
        return first.owned == second.owned == 2

    one, _ = application("one")
    copies.write(100)
    until(lambda: copies.committed("g") == 100)
    two, sink_of_two = application("two")
    until(lambda: share(one, two))

    def killed() -> None:
        two.kill()
        die()

    sink_of_two.before_commit = killed
    copies.write(100)
    until(lambda: two.reader._query is None, what="the second is killed")
    again, _ = application("two")
    until(lambda: share(one, again))
    one.stop()
    copies.write(100)
    until(lambda: copies.committed("g") == copies.written)
    again.stop()
    assert one.error is again.error is None
    assert copied(copies) == list(range(copies.written))
