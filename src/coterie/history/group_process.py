"""A member of today's design as a process of its own: the shipped consumer, and a journal like the others'.

    python -m coterie.history.group_process '{"name": "c1", "strategies": ["range"], "group": "g", ...}'

A strategy may be `module:Class`: an assignor of the user's own, which no broker knows of.
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

from coterie import Consumer
from coterie.client.types import TopicPartition
from coterie.errors import CommitFailedError, KafkaError, RebalanceInProgressError
from coterie.history.design_types import Partition
from coterie.history.journal import COMMIT_MS, Journal, now_ms
from coterie.history.shares import strategy_of

__all__ = ["GroupProcess"]

POLL_S = 0.05


class GroupProcess:
    def __init__(self, told: dict[str, Any]) -> None:
        self._journal = Journal(Path(told["home"]), told["name"])
        self._reads: set[Partition] = set()
        self._consumer = Consumer(
            {
                "bootstrap.servers": told["bootstrap"],
                "client.id": told["name"],
                "group.id": told["group"],
                "partition.assignment.strategy": [strategy_of(name) for name in told["strategies"]],
                "session.timeout.ms": told["session_timeout_ms"],
                "heartbeat.interval.ms": told["session_timeout_ms"] // 6,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "fetch.max.wait.ms": 100,
            }
        )
        self._is_over = False
        self._done: dict[TopicPartition, int] = {}
        signal.signal(signal.SIGTERM, lambda *_: setattr(self, "_is_over", True))
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._consumer.subscribe(
            list(told["topics"]), on_assigned=self._assigned, on_revoked=self._revoked, on_lost=self._lost
        )

    def run(self) -> None:
        commit_ms = now_ms() + COMMIT_MS
        while not self._is_over:
            records = self._consumer.poll(POLL_S)
            if records:
                self._journal.done([(record.partition, record.offset) for record in records])
                for record in records:
                    self._done[TopicPartition(record.topic, record.partition)] = record.offset + 1
            if now_ms() >= commit_ms:
                commit_ms = now_ms() + COMMIT_MS
                self._commit()
        self._commit()
        self._consumer.close()
        self._journal.reads(frozenset(), {}, is_news=True)
        self._journal.close()

    def _commit(self) -> None:
        try:
            self._consumer.commit(dict(self._done))
        except CommitFailedError:
            self._done.clear()  # we are out of the group: somebody else reads it
        except RebalanceInProgressError:
            return  # what is still ours after the rebalance is committed then
        except KafkaError as error:
            if not error.retriable:
                raise

    # --- the listener -------------------------------------------------------------------------------------------------

    def _assigned(self, partitions: list[TopicPartition]) -> None:
        self._reads |= {(one.topic, one.partition) for one in partitions}
        self._journal.reads(frozenset(self._reads), {})

    def _revoked(self, partitions: list[TopicPartition]) -> None:
        self._commit()
        self._lost(partitions)

    def _lost(self, partitions: list[TopicPartition]) -> None:
        for one in partitions:
            self._done.pop(one, None)
            self._reads.discard((one.topic, one.partition))
        self._journal.reads(frozenset(self._reads), {})


if __name__ == "__main__":
    GroupProcess(json.loads(sys.argv[1])).run()
