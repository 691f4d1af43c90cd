"""A consumer of design 1 or 2 as a process of its own: reads a topic of our broker, and keeps a journal.

    python -m coterie.history.member_process '{"design": 1, "name": "c1", ...}'

What it has processed is written down before it is committed. SIGTERM: it ends in order, its session closed.
"""

from __future__ import annotations

import json
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from coterie import Consumer
from coterie.assignors import Topic
from coterie.client.types import TopicPartition
from coterie.history.design_types import CommitDue, Connect, Say, StartReading, Stopped, StopReading
from coterie.history.journal import COMMIT_MS, Journal, now_ms
from coterie.history.lines import Line
from coterie.history.loop import Loop, Station
from coterie.history.shares import strategy_of
from coterie.history.told_member import ToldMember
from coterie.history.zookeeper_watchers import WatchingConsumer, WatchingSettings

__all__ = ["MemberProcess"]

POLL_S, TURN_MS = 0.02, 5


class MemberProcess:
    def __init__(self, told: dict[str, Any]) -> None:
        self._journal = Journal(Path(told["home"]), told["name"])
        self._consumer = Consumer(
            {
                "bootstrap.servers": told["bootstrap"],
                "client.id": told["name"],
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "fetch.max.wait.ms": 100,
            }
        )
        self._machine = _machine(told)
        self._loop = Loop()
        self._station = Station(
            self._loop,
            self._machine,
            told["zookeeper"],
            session_timeout_ms=told["session_timeout_ms"],
            performs={StartReading: self._start, StopReading: self._stop, Connect: self._connect, Say: self._say},
        )
        self._line = Line(self._station.post)
        self._positions: dict[tuple[str, int], int] = {}
        """Of all it reads: so far everything is processed."""
        self._is_over = False
        signal.signal(signal.SIGTERM, lambda *_: setattr(self, "_is_over", True))
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to everybody; who started us will end us

    def run(self) -> None:
        self._station.registry.connect()
        commit_ms = now_ms() + COMMIT_MS
        while not self._is_over:
            self._loop.run(0 if self._positions else TURN_MS)
            if self._positions:
                self._read()
            self._note()
            if now_ms() >= commit_ms:
                commit_ms = now_ms() + COMMIT_MS
                self._station.post(CommitDue(dict(self._positions)))
        self._end()

    def _end(self) -> None:
        """What was processed is committed, then it is gone."""
        self._station.post(CommitDue(dict(self._positions)))
        self._loop.run(TURN_MS)
        self._consumer.close()
        self._station.registry.close()
        self._line.close()
        self._journal.reads(frozenset(), self._counts(), is_news=True)
        self._journal.close()

    def _read(self) -> None:
        records = self._consumer.poll(POLL_S)
        if not records:
            return
        self._journal.done([(record.partition, record.offset) for record in records])
        for record in records:
            self._positions[record.topic, record.partition] = record.offset + 1

    def _note(self) -> None:
        self._journal.reads(self._machine.reads, self._counts())

    def _counts(self) -> Counter[str]:
        more = {
            name: getattr(self._machine, name) for name in ("attempts", "conflicts") if hasattr(self._machine, name)
        }
        return self._station.registry.counts + Counter(more) + Counter(messages=self._line.said)

    # --- what the machine wants ---------------------------------------------------------------------------------------

    def _start(self, effect: StartReading) -> None:
        self._positions = dict(effect.offsets)
        self._consumer.assign([TopicPartition(*one) for one in effect.offsets])
        for one, offset in effect.offsets.items():
            self._consumer.seek(TopicPartition(*one), offset)

    def _stop(self, _effect: StopReading) -> None:
        """Nothing is processed meanwhile: what reads is what handles this."""
        positions, self._positions = self._positions, {}
        self._consumer.assign([])
        self._station.post(Stopped(positions))

    def _connect(self, effect: Connect) -> None:
        self._line.connect(effect)

    def _say(self, effect: Say) -> None:
        self._line.say(effect)


def _machine(told: dict[str, Any]) -> Any:
    topics = {name: Topic(partitions) for name, partitions in told["topics"].items()}
    if told["design"] == 2:
        return ToldMember(told["group"], told["name"], list(topics))
    settings = WatchingSettings(rebalance_backoff_ms=told["backoff_ms"])
    return WatchingConsumer(told["group"], told["name"], list(topics), topics, strategy_of(told["strategy"]), settings)


if __name__ == "__main__":
    MemberProcess(json.loads(sys.argv[1])).run()
