"""A broker of ours with a topic, whose records are their own numbers, and what became of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from time import monotonic, sleep  # noqa: TID251  real sockets live by the wall clock
from typing import Any

from coterie import Broker
from coterie.client.admin import LATEST
from coterie.client.admin.admin import Admin
from coterie.client.admin.admin_types import NewTopic
from coterie.client.admin.results import checked
from coterie.client.consumer.consumer import Consumer
from coterie.client.producer.producer import Producer
from coterie.client.types import TopicPartition

__all__ = ["Plain", "Topic", "until"]

QUICK = {"group.initial.rebalance.delay.ms": 0, "group.min.session.timeout.ms": 100}


def until(happens: Callable[[], Any], within_s: float = 30, what: str = "") -> None:
    """Looks again and again; the machine may be busy, so that nothing here is a matter of a second."""
    ends_at = monotonic() + within_s
    while not happens():
        assert monotonic() < ends_at, f"not within {within_s} s: {what or happens}"
        sleep(0.02)


class Topic:
    def __init__(self, address: str, name: str = "orders", partitions: int = 4) -> None:
        self.address = address
        self.name = name
        self.partitions = partitions
        self.written = 0
        self.broker: Broker | None = None
        """If it is our own."""
        self.admin = Admin(bootstrap_servers=address)
        self.admin.create_topics([NewTopic(name, partitions)])
        self._producer = Producer(bootstrap_servers=address)

    def write(self, count: int, **how: Any) -> None:
        for number in range(self.written, self.written + count):
            self._producer.send(self.name, b"%d" % number, partition=number % self.partitions, **how)
        self.written += count
        self._producer.flush()

    def records(self) -> int:
        """In all partitions together, whoever wrote them."""
        partitions = [TopicPartition(self.name, number) for number in range(self.partitions)]
        found = checked(self.admin.list_offsets(dict.fromkeys(partitions, LATEST)))
        return sum(each.offset for each in found.values())

    def committed(self, group_id: str) -> int:
        """By all partitions together."""
        found = self.admin.list_group_offsets(group_id)
        return sum(
            offset.offset for offset in found.values() if offset is not None and not isinstance(offset, Exception)
        )

    def members(self, group_id: str) -> int:
        (found,) = self.admin.describe_groups([group_id]).values()
        return 0 if isinstance(found, Exception) else len(found.members)

    def shares(self, group_id: str) -> list[int]:
        """How many partitions each member has."""
        (found,) = self.admin.describe_groups([group_id]).values()
        return [] if isinstance(found, Exception) else sorted(len(each.assignment) for each in found.members)

    def missing(self, seen: Iterable[int]) -> list[int]:
        return sorted(set(range(self.written)) - set(seen))

    def twice(self, seen: Iterable[int]) -> list[int]:
        return sorted(number for number, count in Counter(seen).items() if count > 1)

    def close(self) -> None:
        self._producer.close()
        self.admin.close()

    @classmethod
    @contextmanager
    def on_a_broker(cls, data: Path | None = None, **how: Any) -> Iterator[Topic]:
        with Broker(data, QUICK) as broker:
            topic = cls(broker.bootstrap_servers, **how)
            topic.broker = broker
            try:
                yield topic
            finally:
                topic.close()


class Plain:
    """An ordinary consumer in a thread; what it has seen is committed soon, and before it gives a partition up."""

    def __init__(self, topic: Topic, group_id: str, **settings: Any) -> None:
        how: dict[str, Any] = {
            "partition_assignment_strategy": "cooperative-sticky",
            "auto_offset_reset": "earliest",
            "auto_commit_interval_ms": 100,
            "heartbeat_interval_ms": 200,
        }
        self.consumer = Consumer(bootstrap_servers=topic.address, group_id=group_id, **(how | settings))
        self.seen: list[int] = []
        self._stop = Event()
        self._error: BaseException | None = None
        self.consumer.subscribe([topic.name])
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self.seen += [int(record.value or b"-1") for record in self.consumer.poll(0.1)]
            self.consumer.close()
        except BaseException as error:  # noqa: BLE001  told to whoever joins the thread
            self._error = error

    @property
    def owned(self) -> int:
        return len(self.consumer.assignment())

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(30)
        assert self._error is None, self._error
