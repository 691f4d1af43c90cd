"""A broker's slot at ZooKeeper as a process of its own; under design 2 it coordinates groups, by its own strategy.

    python -m coterie.history.broker_process '{"broker": "1", "groups": ["g"], "strategy": "range", ...}'

Another strategy is another process: it is named when this one starts. SIGTERM: it ends in order.
"""

from __future__ import annotations

import json
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from coterie.assignors import Topic
from coterie.history.brokers import BrokerSlot
from coterie.history.design_types import HangUp, Say
from coterie.history.journal import Journal
from coterie.history.lines import Listener
from coterie.history.loop import Loop, Station
from coterie.history.shares import strategy_of

__all__ = ["BrokerProcess"]

TURN_MS = 50


class BrokerProcess:
    def __init__(self, told: dict[str, Any]) -> None:
        self._journal = Journal(Path(told["home"]), f"broker-{told['broker']}")
        self._loop = Loop()
        self._listener = Listener()
        topics = {name: Topic(partitions) for name, partitions in told["topics"].items()}
        self._station = Station(
            self._loop,
            BrokerSlot(told["broker"], self._listener.address, told["groups"], topics, strategy_of(told["strategy"])),
            told["zookeeper"],
            session_timeout_ms=told["session_timeout_ms"],
            performs={Say: self._listener.say, HangUp: self._listener.hang_up},
        )
        self._is_over = False
        signal.signal(signal.SIGTERM, lambda *_: setattr(self, "_is_over", True))
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def run(self) -> None:
        self._listener.serve(self._station.post)
        self._station.registry.connect()
        before: Counter[str] = Counter()
        while not self._is_over:
            self._loop.run(TURN_MS)
            counts = self._station.registry.counts + Counter(messages=self._listener.said)
            if counts != before:
                before = counts
                self._journal.reads(frozenset(), counts, is_news=True)
        self._station.registry.close()
        self._listener.close()
        self._journal.close()


if __name__ == "__main__":
    BrokerProcess(json.loads(sys.argv[1])).run()
