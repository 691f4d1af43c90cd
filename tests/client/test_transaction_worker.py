"""A transaction that several workers write to, each to any partition, in turns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Condition

import pyarrow as pa
import pytest

import coterie
from client.transacting import seen
from coterie import Admin, NewTopic, Producer, TopicPartition
from coterie.client.producer import transaction_worker
from coterie.client.producer.transaction_worker import TransactionWorker
from coterie.errors import KafkaError
from coterie.settings.producer_settings import ProducerSettings

pytestmark = pytest.mark.real_time

PARTITIONS = 2


@pytest.fixture(scope="module")
def broker() -> Iterator[coterie.Broker]:
    with coterie.Broker() as running:
        yield running


def settings(broker: coterie.Broker, name: str, **more: object) -> ProducerSettings:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(name, PARTITIONS)])
    base = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": name}
    return ProducerSettings.of_arguments({**base, **more}, {})


class OneAtATime:
    """Turns for workers in threads: one partition at a time, so that a worker needs many."""

    def __init__(self) -> None:
        self.next: Counter[TopicPartition] = Counter()
        self.taken: set[TopicPartition] = set()
        self.given = 0
        self.changed = Condition()

    def take(self, wanted: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        def free() -> list[TopicPartition]:
            return [where for where in wanted if where not in self.taken]

        with self.changed:
            assert self.changed.wait_for(free, 30)
            mine = free()[0]
            self.taken.add(mine)
            self.given += 1
            return {mine: self.next[mine]}

    def give_back(self, sequences: Mapping[TopicPartition, int]) -> None:
        with self.changed:
            self.next.update({where: sequence - self.next[where] for where, sequence in sequences.items()})
            self.taken -= sequences.keys()
            self.changed.notify_all()


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_workers_write_to_the_same_partitions_in_turns(
    broker: coterie.Broker, codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker refuses a sequence that is out of order, so each worker goes on where the one before has ended."""
    monkeypatch.setattr(transaction_worker, "AT_ONCE", 20_000)
    name = f"shared-{codec}"
    how = settings(broker, name, **{"compression.type": codec, "batch.size": 1_000})
    rows = [[f"{worker}-{number:06d}" for number in range(5_000)] for worker in range(3)]

    def write(mine: list[str]) -> None:
        with TransactionWorker(how, identity, turns) as worker:
            for at in range(0, len(mine), 1_000):
                some = pa.array(mine[at : at + 1_000])
                worker.send_columns(name, some, keys=some)
            worker.deliver()

    with Producer(how) as driver, ThreadPoolExecutor() as threads:
        driver.init_transactions()
        for is_committed in (False, True):
            driver.begin_transaction()
            identity, turns = driver.share_transaction(), OneAtATime()
            list(threads.map(write, rows))
            assert turns.next.total() == sum(map(len, rows)) and not turns.taken
            assert turns.given > len(rows) * PARTITIONS, "workers have come back to a partition"
            if is_committed:
                driver.commit_transaction()
            else:
                driver.abort_transaction()
    found = seen(broker.bootstrap_servers, name)
    assert sorted(found) == sorted(row for mine in rows for row in mine)


def test_a_worker_whose_sequence_is_wrong_is_refused(broker: coterie.Broker) -> None:
    """So a driver that gave turns wrongly would lose a transaction, and no row."""
    how = settings(broker, "wrong")
    turns = OneAtATime()
    turns.next.update({TopicPartition("wrong", partition): 7 for partition in range(PARTITIONS)})
    with Producer(how) as driver:
        driver.init_transactions()
        driver.begin_transaction()
        identity = driver.share_transaction()
        with TransactionWorker(how, identity, OneAtATime()) as worker:
            worker.send_columns("wrong", pa.array(["x"]), partitions=pa.array([0], pa.int32()))
            worker.deliver()
        with TransactionWorker(how, identity, turns) as worker:
            worker.send_columns("wrong", pa.array(["y"]), partitions=pa.array([0], pa.int32()))
            with pytest.raises(KafkaError):
                worker.deliver()
        assert turns.taken, "what it has written is not known"
        driver.abort_transaction()
    assert seen(broker.bootstrap_servers, "wrong") == []
