"""A topic that is compacted, in which a few keys are written again and again."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from broker.driver import Client, World
from coterie.broker.broker_effects import TimersDue
from coterie.protocol.records import BatchRecord, build_batch
from coterie.storage import Files, LogConfig, PartitionLog

__all__ = ["EAGER", "QUICK", "KeyedTopic"]

QUICK = {"log.cleaner.backoff.ms": 1_000, "coterie.offsets.roll.bytes": 2_000}
EAGER = LogConfig(segment_bytes=500, index_interval_bytes=100, compacts=True, deletes=False)


class KeyedTopic:
    """`t`, in a world of its own."""

    def __init__(self, files: Files | None = None, settings: Mapping[str, Any] = MappingProxyType({})) -> None:
        self.world = World(files, {**QUICK, **settings})
        self.client = self.world.client()
        self.client.create("t")
        self.log.config = EAGER
        self.number = 0

    @property
    def log(self) -> PartitionLog:
        log = self.world.node.replicas.log("t", 0)
        assert log is not None
        return log

    def write(self, count: int, client: Client | None = None) -> None:
        for _ in range(count):
            self.number += 1
            record = BatchRecord(b"k%d" % (self.number % 3), b"%d" % self.number, self.world.now_ms)
            answer = (client or self.client).produce("t", records=build_batch([record]))
            assert not answer.error

    def begin(self) -> None:
        """A rebalance begins, and nothing is done of itself from here on."""
        self.world.auto = False
        self.world.advance(1_000)
        assert self.world.background_tasks

    def go_on(self) -> None:
        """Everything is done, one thing after the other."""
        self.world.auto = True
        self.world.perform(self.world.cluster.handle(TimersDue(), self.world.now_ms))

    def background_task(self) -> None:
        """What takes long is done, up to the first change of the log."""
        while self.world.background_tasks:
            self.world.background_task()

    @property
    def values(self) -> list[int]:
        return [int(value or b"0") for _, value in self.world.client().read_all("t")]

    @property
    def leftovers(self) -> list[str]:
        return [name for name in self.world.files.names("t-0") if name.endswith((".cleaned", ".swap", ".deleted"))]
