"""A query in its group: rebalances, stops in order, crashes. Real sockets, Spark's part played by `standin.py`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Event
from time import monotonic  # noqa: TID251  a stop takes real time
from typing import Any

import pytest
from pyarrow.fs import LocalFileSystem

from coterie.client.consumer.consumer import Consumer
from coterie.client.types import OffsetAndMetadata
from coterie.errors import KafkaError
from coterie.spark import queries
from coterie.spark.checkpoint import CommitNote, SparkCheckpoint
from coterie.spark.membership import FencedQueryError
from spark.standin import Query, sinks
from spark.topics import Plain, Topic, until

pytestmark = pytest.mark.real_time


class BrokenOffError(Exception):
    """What query.stop() does to a batch."""


def break_off() -> None:
    raise BrokenOffError


def run_into_the_batch(query: Query) -> None:
    """Up to the moment where a batch has read and nothing of it is durable; then it is broken off."""
    query.in_batch = break_off
    with pytest.raises(BrokenOffError):
        query.run()


def start_into_the_batch(query: Query) -> Event:
    """Up to the same moment; it goes on when the event is set."""
    is_there, go_on = Event(), Event()

    def in_batch() -> None:
        is_there.set()
        go_on.wait(30)

    query.in_batch = in_batch
    query.start()
    until(is_there.is_set)
    return go_on


def test_what_is_durable_is_committed_with_the_querys_name_beside_it(topic: Topic, tmp_path: Path) -> None:
    topic.write(100)
    query = Query(topic, tmp_path, "g")
    query.run()
    assert topic.committed("g") == 100
    for offset in topic.admin.list_group_offsets("g").values():
        assert offset is not None and not isinstance(offset, KafkaError)
        note = CommitNote.parse(offset.metadata)
        assert note is not None and note.plan >= 1 and not note.is_released
    assert topic.members("g") == 1
    query.stop()
    assert topic.members("g") == 0
    assert sorted(query.seen()) == list(range(100))


def test_a_query_goes_on_from_its_checkpoint(topic: Topic, tmp_path: Path) -> None:
    topic.write(100)
    first = Query(topic, tmp_path, "g")
    first.run()
    first.stop()
    topic.write(50)
    second = Query(topic, tmp_path, "g")
    second.run()
    second.stop()
    assert sorted(second.seen()) == list(range(150))


def test_a_new_query_of_the_group_begins_where_the_group_is(topic: Topic, tmp_path: Path) -> None:
    topic.write(100)
    first = Query(topic, tmp_path / "a", "g")
    first.run()
    first.stop()
    topic.write(50)
    second = Query(topic, tmp_path / "b", "g", startingOffsets="")
    second.run()
    second.stop()
    assert sorted(second.seen()) == list(range(100, 150))


def test_startingoffsets_are_for_partitions_the_group_has_no_offset_for(topic: Topic, tmp_path: Path) -> None:
    topic.write(100)
    query = Query(topic, tmp_path, "g", startingOffsets="latest")
    query.run()
    topic.write(20)
    query.run()
    query.stop()
    assert sorted(query.seen()) == list(range(100, 120))


def test_members_come_and_go_and_nothing_is_missing_or_twice(topic: Topic, tmp_path: Path) -> None:
    """One owner each: two queries and a consumer in one group."""
    one, two = Query(topic, tmp_path / "one", "g").start(), Query(topic, tmp_path / "two", "g")
    topic.write(400)
    until(lambda: topic.committed("g") == 400)
    two.start()
    until(lambda: one.owned == two.owned == 2, what="two queries share")
    topic.write(400)
    plain = Plain(topic, "g")
    until(lambda: plain.owned >= 1 and one.owned + two.owned + plain.owned == 4, what="all three share")
    topic.write(400)
    until(lambda: topic.committed("g") == 1_200)
    two.stop()
    topic.write(400)
    until(lambda: topic.committed("g") == 1_600)
    plain.stop()
    topic.write(400)
    until(lambda: topic.committed("g") == 2_000)
    one.stop()
    assert (one.error, two.error) == (None, None)
    seen = [*one.seen(), *two.seen(), *plain.seen]
    assert topic.missing(seen) == []
    assert topic.twice(seen) == []


@pytest.mark.parametrize("assignor", ["cooperative-sticky", "range"])
def test_a_rebalance_waits_for_the_batch_under_way(topic: Topic, tmp_path: Path, assignor: str) -> None:
    """A batch longer than several heartbeats; the newcomer gets its partitions when the batch is in the checkpoint."""
    query = Query(topic, tmp_path, "g", kafka__partition__assignment__strategy=assignor)
    topic.write(400)
    go_on = start_into_the_batch(query)
    plain = Plain(topic, "g", partition_assignment_strategy=assignor)
    until(lambda: topic.members("g") == 2)
    for _ in range(10):
        assert (plain.owned, plain.seen) == (0, [])
        Event().wait(0.1)
    assert topic.committed("g") == 0
    go_on.set()
    until(lambda: plain.owned == 2, what="the newcomer has its half")
    topic.write(400)
    until(lambda: topic.committed("g") == 800)
    query.stop()
    plain.stop()
    assert query.error is None
    seen = [*query.seen(), *plain.seen]
    assert topic.missing(seen) == []
    assert topic.twice(seen) == []
    assert plain.seen


class SlowFiles:
    """A store that answers late, as S3 or HDFS may. It counts the questions that it was asked."""

    def __init__(self, answers_after: Callable[[], object]) -> None:
        self.questions = 0
        self._answers_after = answers_after
        self._files = LocalFileSystem()

    def get_file_info(self, asked: Any) -> Any:
        self.questions += 1
        self._answers_after()
        return self._files.get_file_info(asked)

    def open_input_stream(self, path: str) -> Any:
        return self._files.open_input_stream(path)

    def replace(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def open_(checkpoint: SparkCheckpoint) -> None:
            checkpoint._files, checkpoint._root = self, checkpoint._location

        monkeypatch.setattr(SparkCheckpoint, "_open", open_)


def test_heartbeats_go_on_while_the_checkpoint_is_slow(
    topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each answer of the store takes longer than the session timeout, which is 2 s."""
    files = SlowFiles(lambda: Event().wait(3))
    files.replace(monkeypatch)
    query = Query(topic, tmp_path, "g")
    topic.write(400)
    go_on = start_into_the_batch(query)
    plain = Plain(topic, "g")
    until(lambda: files.questions >= 2, what="the first question is answered")
    assert topic.members("g") == 2
    go_on.set()
    until(lambda: plain.owned == 2, what="the newcomer has its half")
    topic.write(400)
    until(lambda: topic.committed("g") == 800)
    query.stop()
    plain.stop()
    assert query.error is None
    seen = [*query.seen(), *plain.seen]
    assert topic.missing(seen) == topic.twice(seen) == []


def test_a_checkpoint_that_does_not_answer_holds_up_neither_a_rebalance_nor_a_stop(
    topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "LEAVE_MS", 1_000)
    answers = Event()
    files = SlowFiles(lambda: answers.wait(60))
    files.replace(monkeypatch)
    query = Query(topic, tmp_path, "g")
    topic.write(400)
    go_on = start_into_the_batch(query)
    plain = Plain(topic, "g")
    until(lambda: files.questions == 1)
    go_on.set()
    until(lambda: plain.owned == 2, what="Spark reports the batch with its next trigger")
    began = monotonic()
    query.stop()
    assert monotonic() - began < 15
    until(lambda: topic.members("g") == 1)
    answers.set()
    plain.stop()
    assert query.error is None


def test_without_checkpointlocation_the_next_trigger_lets_go(topic: Topic, tmp_path: Path) -> None:
    query = Query(topic, tmp_path, "g", checkpointLocation="").start()
    topic.write(200)
    plain = Plain(topic, "g")
    until(lambda: plain.owned == query.owned == 2)
    topic.write(200)
    until(lambda: topic.committed("g") == 400)
    query.stop()
    plain.stop()
    seen = [*query.seen(), *plain.seen]
    assert topic.missing(seen) == topic.twice(seen) == []


def test_a_crash_in_a_batch_costs_that_batch_twice_and_nothing_else(topic: Topic, tmp_path: Path) -> None:
    """And the query that comes back to its checkpoint repeats it, though the partitions are somebody else's."""
    first = Query(topic, tmp_path, "g")
    topic.write(200)
    first.run()
    topic.write(100)
    run_into_the_batch(first)
    first.kill()
    plain = Plain(topic, "g")
    until(lambda: plain.owned == 4)
    until(lambda: topic.committed("g") == 300)
    assert sorted(plain.seen) == list(range(200, 300))
    second = Query(topic, tmp_path, "g").start()
    until(lambda: second.owned == 2)
    topic.write(100)
    until(lambda: topic.committed("g") == 400)
    second.stop()
    plain.stop()
    seen = [*second.seen(), *plain.seen]
    assert topic.missing(seen) == []
    assert set(topic.twice(seen)) <= set(range(200, 300))


def test_a_query_alone_repeats_the_batch_it_crashed_in_exactly(topic: Topic, tmp_path: Path) -> None:
    first = Query(topic, tmp_path, "g")
    topic.write(200)
    first.run()
    topic.write(100)
    run_into_the_batch(first)
    first.kill()
    topic.write(77)
    second = Query(topic, tmp_path, "g")
    second.trigger()
    (repeated,) = (path for path in (tmp_path / "sink").iterdir() if path.name == "1")
    assert len(repeated.read_text().split(",")) == 100
    until(lambda: second.trigger() and len(second.seen()) == 377, what="the dead one's session is over")
    second.stop()
    assert sorted(second.seen()) == list(range(377))


def test_an_orderly_stop_in_a_batch_leaves_it_to_the_others(topic: Topic, tmp_path: Path) -> None:
    """The query that comes back does not read again what they have."""
    plain = Plain(topic, "g")
    query = Query(topic, tmp_path, "g").start()
    until(lambda: plain.owned == query.owned == 2)
    query._is_ending = True
    until(lambda: query._thread is not None and not query._thread.is_alive())
    topic.write(200)
    run_into_the_batch(query)
    query.stop()
    until(lambda: topic.committed("g") == 200)
    assert sorted(plain.seen) == list(range(200))
    again = Query(topic, tmp_path, "g").start()
    until(lambda: again.owned == 2)
    topic.write(100)
    until(lambda: topic.committed("g") == 300)
    again.stop()
    plain.stop()
    seen = [*again.seen(), *plain.seen]
    assert topic.missing(seen) == topic.twice(seen) == []


def test_an_orderly_stop_commits_a_batch_that_is_done_and_not_yet_committed(topic: Topic, tmp_path: Path) -> None:
    """With checkpointLocation it is found in Spark's log of what is done."""
    topic.write(200)
    query = Query(topic, tmp_path, "g")
    assert query.trigger()
    assert topic.committed("g") == 0
    query.stop()
    assert topic.committed("g") == 200


def test_an_orderly_stop_alone_keeps_the_batch_for_itself(topic: Topic, tmp_path: Path) -> None:
    """Spark's own promise: a batch that was begun is repeated as it was."""
    topic.write(100)
    first = Query(topic, tmp_path, "g")
    run_into_the_batch(first)
    first.stop()
    topic.write(50)
    second = Query(topic, tmp_path, "g")
    second.trigger()
    assert sorted(second.seen()) == list(range(100))
    second.run()
    second.stop()
    assert sorted(second.seen()) == list(range(150))


def test_a_query_that_is_put_out_in_a_batch_fails_and_says_what_to_do(topic: Topic, tmp_path: Path) -> None:
    """A rebalance waits for a batch as long as max.poll.interval.ms, and no longer."""
    query = Query(topic, tmp_path, "g", kafka__max__poll__interval__ms="1500")
    topic.write(200)
    go_on = start_into_the_batch(query)
    plain = Plain(topic, "g")
    until(lambda: topic.committed("g") == 200 and len(plain.seen) >= 100, what="the others go on without it")
    go_on.set()
    until(lambda: query.error is not None)
    assert isinstance(query.error, FencedQueryError)
    assert "start the query again from its checkpoint" in str(query.error)
    assert "maxOffsetsPerTrigger" in str(query.error)
    query.stop()
    again = Query(topic, tmp_path, "g").start()
    until(lambda: again.owned == 2)
    topic.write(100)
    until(lambda: topic.committed("g") == 300)
    again.stop()
    plain.stop()
    seen = [*again.seen(), *plain.seen]
    assert topic.missing(seen) == []
    assert set(topic.twice(seen)) <= set(range(200))


def test_offsets_that_were_reset_while_the_query_was_away_count(topic: Topic, tmp_path: Path) -> None:
    """The note is gone then: the group is right."""
    topic.write(100)
    first = Query(topic, tmp_path, "g")
    first.run()
    first.stop()
    topic.admin.alter_group_offsets("g", dict.fromkeys(topic.admin.list_group_offsets("g"), OffsetAndMetadata(0)))
    second = Query(topic, tmp_path, "g")
    second.run()
    second.stop()
    assert len(second.seen()) == 200


def test_a_partition_that_appears_is_read_from_its_beginning(topic: Topic, tmp_path: Path) -> None:
    query = Query(topic, tmp_path, "g", startingOffsets="latest", kafka__metadata__max__age__ms="200").start()
    until(lambda: query.owned == 4)
    until(lambda: topic.committed("g") == 0)
    topic.admin.create_partitions({topic.name: 6})
    topic.partitions = 6
    until(lambda: topic.admin.describe_topics([topic.name]) is not None)
    topic.write(600)
    until(lambda: query.owned == 6)
    until(lambda: topic.committed("g") == 600)
    query.stop()
    assert sorted(query.seen()) == list(range(600))


def test_a_refused_member_is_a_failed_query(topic: Topic, tmp_path: Path) -> None:
    """A range consumer and a cooperative one have no assignor in common."""
    plain = Plain(topic, "g", partition_assignment_strategy="range")
    until(lambda: plain.owned == 4)
    query = Query(topic, tmp_path, "g")
    with pytest.raises(KafkaError, match="all members must share an assignor"):
        query.run()
    query.stop()
    plain.stop()


def test_availablenow_reads_what_is_there_and_not_what_comes(topic: Topic, tmp_path: Path) -> None:
    topic.write(100)
    query = Query(topic, tmp_path, "g")
    query.reader.prepareForTriggerAvailableNow()
    topic.write(100)
    query.run()
    query.stop()
    assert sorted(query.seen()) == list(range(100))
    assert topic.committed("g") == 100
    assert sinks(tmp_path) == query.seen()


def test_what_is_kept_is_read_on_while_a_rebalance_waits_for_somebody_else(topic: Topic, tmp_path: Path) -> None:
    """KIP-429: our join is parked, a slow member keeps everybody waiting, and we read and commit meanwhile."""
    query = Query(topic, tmp_path, "g").start()
    until(lambda: query.owned == 4)
    slow = Consumer(
        bootstrap_servers=topic.address,
        group_id="g",
        partition_assignment_strategy="cooperative-sticky",
        auto_offset_reset="earliest",
        max_poll_interval_ms=60_000,
        heartbeat_interval_ms=100,
    )
    slow.subscribe([topic.name])

    def polled() -> int:
        slow.poll(0.05)
        return len(slow.assignment())

    until(lambda: polled() == query.owned == 2)
    newcomer = Plain(topic, "g")
    until(lambda: _state(topic) == "PreparingRebalance")  # slow does not poll, so that it does not join
    before = topic.committed("g")
    topic.write(400)
    until(lambda: len(query.seen()) == 200, what="the query reads what it keeps")
    until(lambda: topic.committed("g") == before + 200, what="and commits it")
    assert _state(topic) == "PreparingRebalance"
    assert newcomer.seen == []
    slow.close()
    until(lambda: topic.committed("g") == before + 400)
    query.stop()
    newcomer.stop()
    assert query.error is None
    seen = [*query.seen(), *newcomer.seen]
    assert topic.missing(seen) == topic.twice(seen) == []


def _state(topic: Topic) -> str:
    (found,) = topic.admin.describe_groups(["g"]).values()
    return "" if isinstance(found, KafkaError) else found.state


def test_a_stop_without_a_broker_ends_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is told to go goes, with a commit that nobody answers: it had the time of a request, and of another."""
    monkeypatch.setattr(queries, "LEAVE_MS", 200)
    with Topic.on_a_broker() as topic:
        topic.write(40)
        query = Query(topic, tmp_path, "g")
        until(query.trigger)
        assert topic.committed("g") == 0  # the batch is durable, and the next trigger would commit it
    began = monotonic()
    query.stop()
    assert monotonic() - began < 15
