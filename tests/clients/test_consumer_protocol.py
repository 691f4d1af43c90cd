"""Members of KIP-848 groups (`group.protocol=consumer`) in life: ours alone, and among Java's and librdkafka's.

Most members live in a thread of the test, and one test has each in a process of its own. Judged is what the members
tell and what the group has committed, by the laws of `laws.py`. The broker is a parameter.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest
from typer.testing import CliRunner

from apache_kafka import needs_apache_kafka
from clients.either import EitherBroker, apache_kafka, coterie
from clients.harness import Crew, Place, wait_until
from clients.laws import (
    Witness,
    commits_only_go_forward,
    every_record_is_processed,
    nothing_is_committed_unprocessed,
    one_holder_at_a_time,
    witness_of,
)
from clients.producing import Topics
from coterie import Admin, Consumer, Producer, SubscriptionPattern, checked
from coterie.cli.app import app
from coterie.client.types import TopicPartition
from coterie.errors import CommitFailedError, ErrorCode, KafkaError
from spark.standin import Query

pytestmark = pytest.mark.real_time

QUICK_GROUPS = {
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "50",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "6000",
}


@pytest.fixture(scope="module", params=["coterie", pytest.param("kafka", marks=needs_apache_kafka)])
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EitherBroker]:
    """One for all tests of the module."""
    starts = {"coterie": coterie, "kafka": apache_kafka}
    with starts[request.param](tmp_path_factory.mktemp(request.param), QUICK_GROUPS) as running:
        yield running


@pytest.fixture(scope="module")
def topics(broker: EitherBroker) -> Topics:
    return Topics(broker.bootstrap)


class Reader:
    """One of our consumers, which a thread polls until it is told to leave or to fall silent."""

    def __init__(self, broker: EitherBroker, group: str, topics: Any, **settings: object) -> None:
        self.events: list[dict[str, Any]] = []
        self.owned: set[Place] = set()
        self.error: Exception | None = None
        self.ended_ms: int | None = None
        self.asked: list[Callable[[Consumer], None]] = []
        self._over, self._silent = threading.Event(), threading.Event()
        self._leave: bool | None = None
        self.name = f"{group}-{settings.get('client.id', id(self))}"
        self.consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": group,
                "group.protocol": "consumer",
                "client.id": self.name,
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 100,
                "metadata.max.age.ms": 500,
                "retry.backoff.ms": 20,
                **{name: value for name, value in settings.items() if name != "client.id"},
            }
        )
        self._topics = topics
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _tell(self, event: str, **details: Any) -> None:
        self.events.append({"event": event, "at_ms": time.time_ns() // 1_000_000, **details})

    def _hear(self, event: str) -> Callable[[list[TopicPartition]], None]:
        def hear(partitions: list[TopicPartition]) -> None:
            self._tell(event, partitions=[(one.topic, one.partition) for one in partitions])
            self.owned = self.owned | set(partitions) if event == "assigned" else self.owned - set(partitions)

        return hear

    def _run(self) -> None:
        consumer = self.consumer
        try:
            consumer.subscribe(
                self._topics,
                on_assigned=self._hear("assigned"),
                on_revoked=self._hear("revoked"),
                on_lost=self._hear("lost"),
            )
            while not self._over.is_set():
                if self._silent.is_set():
                    self._over.wait(0.02)
                    continue
                records = consumer.poll(0.05)
                if records:
                    told = [(one.topic, one.partition, one.offset, (one.value or b"").decode()) for one in records]
                    self._tell("consumed", records=told)
                while self.asked:
                    self.asked.pop(0)(consumer)
        except KafkaError as error:
            self.error = error
        finally:
            consumer.close(leave=self._leave)
            self.ended_ms = time.time_ns() // 1_000_000

    def heard(self) -> list[tuple[str, list[Place]]]:
        """What the listener was told."""
        return [(one["event"], one["partitions"]) for one in self.events if "partitions" in one]

    def is_silent(self, silent: bool) -> None:
        """Polls no more, until it is told to."""
        (self._silent.set if silent else self._silent.clear)()

    def does(self, act: Callable[[Consumer], None]) -> None:
        """Between two polls, in the thread of the consumer; what it raises is kept."""
        done = threading.Event()
        raised: list[Exception] = []

        def run(consumer: Consumer) -> None:
            try:
                act(consumer)
            except KafkaError as error:
                raised.append(error)
            finally:
                done.set()

        self.asked.append(run)
        wait_until(done.is_set, "the consumer has done it", self.said)
        if raised:
            raise raised[0]

    def leaves(self, leave: bool | None = None) -> None:
        self._leave = leave
        self._over.set()
        self._thread.join()

    def said(self) -> str:
        return f"--- {self.name}\n{self.consumer.explain()}\n{self.events[-12:]}\n{self.error!r}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.leaves()


class Trial:
    """The members of one group, and the topic they read."""

    def __init__(self, broker: EitherBroker, topics: Topics, name: str) -> None:
        self.broker, self.topics, self.name = broker, topics, name
        self.readers: list[Reader] = []
        self.places: set[Place] = set()

    def has_topic(self, partitions: int, records: int = 3) -> set[Place]:
        self.places |= self.topics.create(self.name, partitions)
        self.topics.fill(self.places, records)
        return self.places

    def reader(self, topics: Any = None, **settings: object) -> Reader:
        name = {"client.id": f"r{len(self.readers)}"}
        reader = Reader(self.broker, self.name, topics or [self.name], **name, **settings)
        self.readers.append(reader)
        return reader

    @property
    def present(self) -> list[Reader]:
        return [one for one in self.readers if one.ended_ms is None]

    def wait(self, holds: Callable[[], bool], what: str) -> None:
        wait_until(holds, what, lambda: "\n".join(one.said() for one in self.readers))

    def wait_until_shared(self, *counts: int) -> None:
        """The readers that are there own everything, and so many each."""

        def shared() -> bool:
            owned = [one.owned for one in self.present]
            return sorted(map(len, owned)) == sorted(counts) and set().union(*owned) == self.places

        self.wait(shared, f"{counts} partitions each, of {len(self.places)}")

    def wait_until_read(self) -> None:
        """All that was produced was read by somebody, and is committed."""
        ends = self.topics.ends(self.places)
        self.wait(lambda: self.broker.facts.committed(self.name) == ends, f"everything is committed: {ends}")

    def judge(self) -> None:
        witnesses = [Witness(one.name, one.events, one.ended_ms) for one in self.readers]
        judge(self.broker, self.name, witnesses, self.topics.of(self.places))


def judge(broker: EitherBroker, group: str, witnesses: list[Witness], produced: dict[Place, list[str]]) -> None:
    """The laws that do not speak of generations."""
    every_record_is_processed(witnesses, produced)
    one_holder_at_a_time(broker.facts, group, witnesses)
    commits_only_go_forward(broker.facts, group)
    nothing_is_committed_unprocessed(broker.facts, group, witnesses)


@pytest.fixture
def trial(broker: EitherBroker, topics: Topics, name: str) -> Iterator[Trial]:
    trial = Trial(broker, topics, name)
    yield trial
    for reader in trial.present:
        reader.leaves()


@contextmanager
def admin_of(trial: Trial) -> Iterator[Admin]:
    with Admin(bootstrap_servers=trial.broker.bootstrap) as admin:
        yield admin


def test_members_come_and_go_and_share(trial: Trial) -> None:
    """Alone, two, three, two, one: revoked by one before it is assigned to the next, and read on all the while."""
    trial.has_topic(6)
    first = trial.reader()
    trial.wait_until_shared(6)
    trial.wait_until_read()
    assert first.heard() == [("assigned", sorted(trial.places))]
    second = trial.reader()
    trial.wait_until_shared(3, 3)
    trial.topics.fill(trial.places, 2)
    third = trial.reader(**{"group.remote.assignor": "uniform"})
    trial.wait_until_shared(2, 2, 2)
    trial.topics.fill(trial.places, 2)
    trial.wait_until_read()
    kept = [one for one in first.heard() if one[0] == "lost"]
    assert not kept, "nobody was fenced"
    second.leaves()
    trial.wait_until_shared(3, 3)
    third.leaves()
    trial.wait_until_shared(6)
    trial.topics.fill(trial.places, 2)
    trial.wait_until_read()
    trial.judge()
    first.leaves()
    assert first.heard()[-1][0] == "revoked" and not first.owned


def test_new_partitions_arrive(trial: Trial) -> None:
    trial.has_topic(2)
    trial.reader()
    trial.reader()
    trial.wait_until_shared(1, 1)
    trial.places |= trial.topics.grow(trial.name, 4)
    trial.topics.fill(trial.places, 2)
    trial.wait_until_shared(2, 2)
    trial.wait_until_read()
    trial.judge()


def test_a_static_member_that_restarts_keeps_its_partitions(trial: Trial) -> None:
    """It says that it will be back (-2), and the others hear nothing of it."""
    trial.has_topic(4)
    other = trial.reader()
    static = trial.reader(**{"group.instance.id": "i"})
    trial.wait_until_shared(2, 2)
    owned, heard = static.owned, other.heard()
    static.leaves()
    again = trial.reader(**{"group.instance.id": "i"})
    trial.wait(lambda: again.owned == owned, "the same partitions as before")
    assert other.heard() == heard
    trial.topics.fill(trial.places, 1)
    trial.wait_until_read()
    trial.judge()
    again.leaves(leave=True)
    trial.wait_until_shared(4)


def test_an_instance_id_is_for_one_consumer(trial: Trial) -> None:
    trial.has_topic(1)
    holder = trial.reader(**{"group.instance.id": "i"})
    trial.wait_until_shared(1)
    second = trial.reader(**{"group.instance.id": "i"})
    trial.wait(lambda: second.error is not None, "the second is refused")
    assert isinstance(second.error, KafkaError) and second.error.code is ErrorCode.UNRELEASED_INSTANCE_ID
    assert holder.error is None and holder.owned == trial.places


def test_a_pattern_of_the_client_and_one_of_the_broker(trial: Trial) -> None:
    trial.has_topic(2)
    ours = trial.reader(re.compile(re.escape(trial.name) + "(-more)?"))
    trial.wait_until_shared(2)
    more = trial.topics.create(f"{trial.name}-more", 2)
    trial.places |= more
    trial.wait_until_shared(4)
    brokers = trial.reader(SubscriptionPattern(f"{re.escape(trial.name)}.*"))
    trial.wait_until_shared(2, 2)
    trial.topics.fill(trial.places, 1)
    trial.wait_until_read()
    trial.judge()
    assert ours.error is None and brokers.error is None


def test_what_the_broker_cannot_do_is_an_error(trial: Trial) -> None:
    trial.has_topic(1)
    bad_assignor = trial.reader(**{"group.remote.assignor": "nosuch"})
    bad_pattern = trial.reader(SubscriptionPattern("(?=t)"))
    trial.wait(lambda: bad_assignor.error is not None and bad_pattern.error is not None, "both are refused")
    for reader, code, said in (
        (bad_assignor, ErrorCode.UNSUPPORTED_ASSIGNOR, "group.remote.assignor"),
        (bad_pattern, ErrorCode.INVALID_REGULAR_EXPRESSION, "RE2"),
    ):
        assert isinstance(reader.error, KafkaError) and reader.error.code is code and said in str(reader.error)


def test_a_member_that_is_removed_loses_its_partitions_and_comes_back(trial: Trial) -> None:
    trial.has_topic(2)
    reader = trial.reader()
    trial.wait_until_shared(2)
    member_id = reader.consumer.group_metadata().member_id
    with admin_of(trial) as admin:
        removed = admin.remove_members(trial.name, [member_id])
    assert list(removed.values()) == [None]
    trial.wait(lambda: len(reader.heard()) == 3, "it is fenced and joins again")
    assert [one for one, _ in reader.heard()] == ["assigned", "lost", "assigned"]
    assert reader.consumer.group_metadata().member_id == member_id
    trial.topics.fill(trial.places, 1)
    trial.wait_until_read()


def test_a_member_that_does_not_poll_leaves_and_comes_back(trial: Trial) -> None:
    """After max.poll.interval.ms its partitions are read by the other, and its commit is refused."""
    trial.has_topic(2)
    late = trial.reader(**{"max.poll.interval.ms": 3_000, "enable.auto.commit": False})
    trial.wait_until_shared(2)
    other = trial.reader()
    trial.wait_until_shared(1, 1)
    late.is_silent(True)
    trial.wait(lambda: other.owned == trial.places, "the other has both")
    late.is_silent(False)
    trial.wait_until_shared(1, 1)
    assert "lost" in [one for one, _ in late.heard()]


def test_commits_carry_the_epoch(trial: Trial) -> None:
    """A member may commit what it owns, and what it does not own, as Kafka allows; a consumer outside may not."""
    trial.has_topic(2)
    reader = trial.reader(**{"enable.auto.commit": False})
    trial.wait_until_shared(2)
    place = TopicPartition(trial.name, 0)
    reader.does(lambda consumer: consumer.commit({place: 2}))
    committed: list[Any] = []
    reader.does(lambda consumer: committed.append(consumer.committed(place)[place]))
    assert committed[0].offset == 2
    where = {"bootstrap.servers": trial.broker.bootstrap, "group.id": trial.name, "group.protocol": "consumer"}
    with Consumer(where, enable_auto_commit=False) as outsider:
        outsider.assign([place])
        with pytest.raises(CommitFailedError):
            outsider.commit({place: 1})


def test_the_command_consume_is_a_member(trial: Trial) -> None:
    (place,) = trial.has_topic(1)
    words = ["consume", trial.name, "--group", trial.name, "--count", "3", "--set", "group.protocol=consumer"]
    done = CliRunner().invoke(app, [*words, "-b", trial.broker.bootstrap])
    assert done.exit_code == 0 and done.stdout.splitlines() == trial.topics.produced[place], done.stderr
    trial.wait_until_read()


def test_a_spark_query_is_a_member(trial: Trial, tmp_path: Path) -> None:
    """It falls out of the engine: Spark's part is played by `standin.py`, without a JVM."""
    trial.has_topic(2, records=0)
    with Producer(bootstrap_servers=trial.broker.bootstrap) as producer:
        for number in range(10):
            producer.send(trial.name, str(number), partition=number % 2)
    of_the_broker = {"kafka__heartbeat__interval__ms": "", "kafka__session__timeout__ms": ""}
    where: Any = SimpleNamespace(address=trial.broker.bootstrap, name=trial.name)
    query = Query(where, tmp_path, trial.name, kafka__group__protocol="consumer", **of_the_broker)
    query.run()
    ends = dict.fromkeys(trial.places, 5)
    trial.wait(lambda: trial.broker.facts.committed(trial.name) == ends, f"everything is committed: {ends}")
    assert sorted(query.seen()) == list(range(10))
    with admin_of(trial) as admin:
        (member,) = checked(admin.describe_groups([trial.name]))[trial.name].members
        assert {(one.topic, one.partition) for one in member.assignment} == trial.places
        query.stop()
        assert not checked(admin.describe_groups([trial.name]))[trial.name].members


def test_among_javas_and_librdkafkas_members_one_is_killed(broker: EitherBroker, tmp_path: Path, name: str) -> None:
    """Each in a process of its own; the session of the killed one has to run out."""
    topics = Topics(broker.bootstrap)
    places = topics.create(name, 4)
    topics.fill(places, 3)
    with Crew(broker, tmp_path, name) as crew:
        told = {"topics": [name], "assignor": "", "protocol": "consumer"}
        crew.start("coterie", **told)
        victim = crew.start("coterie", **told)
        crew.start("java", **told)
        crew.start("confluent", **told)

        def shared() -> bool:
            owned = [member.read().owned for member in crew.present]
            return all(owned) and sum(map(len, owned)) == 4 and set().union(*owned) == places

        crew.wait_until(shared, "one partition each")
        topics.fill(places, 3)
        victim.kill()
        crew.wait_until(shared, "the others have what the killed one had")
        topics.fill(places, 3)
        ends = topics.ends(places)
        crew.wait_until(lambda: broker.facts.committed(name) == ends, "everything is committed")
        judge(broker, name, [witness_of(member) for member in crew.members], topics.of(places))
        crew.members[0].leave()
