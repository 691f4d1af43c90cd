"""The topic `__coterie_facts`: the events of groups, with which a rebalance can be explained later and elsewhere.

A fact is a record: the key is the group, the value a line of JSON (`ledger.written_facts`). Facts are written in
batches, a few times a second. No request waits for that, and a crash may lose the last ones. Commits are left out:
there are too many of them, and `__consumer_offsets` has them all.
"""

from __future__ import annotations

from collections.abc import Callable

from coterie.broker.broker_effects import Effects
from coterie.broker.broker_facts import Reporter
from coterie.broker.handlers.refusals import TopicError
from coterie.broker.maintenance.flushing import Flusher
from coterie.coordinator.runtime import Timers
from coterie.coordinator.wall_clock import WallClock
from coterie.facts import Fact, OffsetsStored
from coterie.ledger import write_fact
from coterie.ledger.written_facts import FACTS_TOPIC
from coterie.protocol.records import BatchRecord, build_batch
from coterie.settings.broker_settings import BrokerSettings
from coterie.storage import DataDirectory, LogError, Origin, StoredTopic
from coterie.structs import DataStruct

__all__ = ["FactsDue", "FactsTopic"]

WRITE_EVERY_MS = 200
AT_ONCE = 1_000
"""Facts in a batch."""
BATCH_BYTES = 512 << 10
"""The size of a batch of facts; a larger fact gets a batch of its own."""
MOST = 100_000
"""Facts that may wait, should the disk be away for long: more are lost."""


class FactsDue(DataStruct):
    pass


class FactsTopic:
    def __init__(
        self,
        settings: BrokerSettings,
        directory: DataDirectory,
        flusher: Flusher,
        timers: Timers[object],
        reporter: Reporter,
        wall: WallClock,
        create: Callable[[Callable[[StoredTopic | TopicError, int], Effects]], None],
        check_retention: Callable[[], object],
    ) -> None:
        """`create` asks for the topic, and calls a function when it is there; `check_retention` asks for that."""
        self._is_wanted = settings.coterie_facts_enable
        self._directory = directory
        self._flusher = flusher
        self._timers = timers
        self._reporter = reporter
        self._wall = wall
        self._create = create
        self._check_retention = check_retention
        self._waiting: list[Fact] = []

    def add(self, fact: Fact, now_ms: int) -> None:
        if type(fact) is OffsetsStored or not self._is_wanted or len(self._waiting) >= MOST:
            return
        if not self._waiting:
            self._timers.arm("facts", now_ms + WRITE_EVERY_MS, FactsDue())
        self._waiting.append(fact)

    def write(self, now_ms: int) -> Effects:
        if self._waiting and (FACTS_TOPIC, 0) not in self._directory.logs:
            self._create(self._created)
            return []
        waiting, self._waiting = self._waiting, []
        effects: Effects = []
        records: list[BatchRecord] = []
        size = 0
        for fact in waiting:
            value = write_fact(fact)
            if records and (len(records) == AT_ONCE or size + len(value) > BATCH_BYTES):
                effects += self._append(records, now_ms)
                records, size = [], 0
            records.append(BatchRecord(fact.group_id.encode(), value, fact.at_ms))
            size += len(value)
        if records:
            effects += self._append(records, now_ms)
        return effects

    def _created(self, made: StoredTopic | TopicError, now_ms: int) -> Effects:
        return self._lost(str(made), now_ms) if isinstance(made, TopicError) else self.write(now_ms)

    def _append(self, records: list[BatchRecord], now_ms: int) -> Effects:
        log = self._directory.logs[FACTS_TOPIC, 0]
        try:
            log.append(build_batch(records), self._wall.at(now_ms), Origin.COORDINATOR)
        except LogError as error:
            return self._lost(str(error), now_ms)
        self._flusher.written(log, None)
        if log.config.retention_bytes >= 0 and log.size > log.config.retention_bytes + log.config.segment_bytes:
            self._check_retention()  # a flood of facts does not wait for its turn
        return []

    def _lost(self, why: str, now_ms: int) -> Effects:
        self._waiting.clear()
        return [self._reporter.trouble(f"facts about groups could not be kept: {why}", now_ms)]
