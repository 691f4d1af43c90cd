"""What happens to groups, kept as a topic of its own, so that a rebalance can be explained later and from elsewhere.

A fact is a record of `__coterie_facts`: the key is the group, the value a line of JSON (`ledger.written_facts`). Facts
are written a few times a second, many at once; nobody waits for it, and a crash may lose the last. Commits are
left out: there are too many of them, and `__consumer_offsets` has them all.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from coterie.broker.handlers.refusals import TopicError
from coterie.broker.handlers.topic_changes import Made, ensure
from coterie.broker.maintenance.periodic import check_retention
from coterie.facts import Fact, OffsetsStored
from coterie.ledger import write_fact
from coterie.ledger.written_facts import FACTS_TOPIC
from coterie.protocol.records import BatchRecord, build_batch
from coterie.storage import LogError, Origin

if TYPE_CHECKING:
    from coterie.broker.cluster import Cluster

__all__ = ["FactsDue", "FactsTopic"]

WRITE_EVERY_MS = 200
AT_ONCE = 1_000
"""Facts in a batch."""
BATCH_BYTES = 512 << 10
"""And their size; a larger one goes alone."""
MOST = 100_000
"""Facts that may wait, should the disk be away for long: more are lost."""


@dataclass(slots=True)
class FactsDue:
    pass


class FactsTopic:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._is_wanted = cluster.settings.coterie_facts_enable
        self._waiting: list[Fact] = []

    def add(self, fact: Fact, now_ms: int) -> None:
        if type(fact) is OffsetsStored or not self._is_wanted or len(self._waiting) >= MOST:
            return
        if not self._waiting:
            self._cluster.timers.arm("facts", now_ms + WRITE_EVERY_MS, FactsDue())
        self._waiting.append(fact)

    def write(self, now_ms: int) -> None:
        cluster = self._cluster
        if self._waiting and cluster.log(FACTS_TOPIC, 0) is None:
            cluster.changes.ask(None, partial(ensure, cluster, FACTS_TOPIC, self._made))
            return
        waiting, self._waiting = self._waiting, []
        records: list[BatchRecord] = []
        size = 0
        for fact in waiting:
            value = write_fact(fact)
            if records and (len(records) == AT_ONCE or size + len(value) > BATCH_BYTES):
                self._append(records, now_ms)
                records, size = [], 0
            records.append(BatchRecord(fact.group_id.encode(), value, fact.at_ms))
            size += len(value)
        if records:
            self._append(records, now_ms)

    def _made(self, made: Made) -> None:
        if isinstance(made, TopicError):
            self._lost(str(made), self._cluster.now_ms)
        else:
            self.write(self._cluster.now_ms)

    def _append(self, records: list[BatchRecord], now_ms: int) -> None:
        log = self._cluster.log(FACTS_TOPIC, 0)
        assert log is not None
        try:
            log.append(build_batch(records), self._cluster.wall.at(now_ms), Origin.COORDINATOR)
        except LogError as error:
            self._lost(str(error), now_ms)
        else:
            self._cluster.wrote(log, None)
            if log.config.retention_bytes >= 0 and log.size > log.config.retention_bytes + log.config.segment_bytes:
                check_retention(self._cluster)  # a flood of facts does not wait for its turn

    def _lost(self, why: str, now_ms: int) -> None:
        self._waiting.clear()
        self._cluster.tell_trouble(f"facts about groups could not be kept: {why}", now_ms)
