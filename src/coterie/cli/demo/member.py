"""A member of the demonstration's group, as a process of its own: reads orders, notes what it has done, commits.

    python -m coterie.cli.demo.member '{"name": "...", "notes": "FILE", "settings": {...}, "topic": "orders"}'

What it has processed it writes down before it commits; so whatever becomes of it, nothing is committed that was not
done. What it has to give up it commits first: the next owner begins where it ended. SIGTERM: it ends in order. SIGUSR1:
it dawdles over the next batch for longer than its group allows.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from pathlib import Path
from typing import Any

from coterie import Consumer
from coterie.cli.demo.parent import end_with_parent
from coterie.client.types import TopicPartition
from coterie.errors import CommitFailedError, KafkaError, RebalanceInProgressError

__all__ = ["note"]


def note(place: TopicPartition, offset: int) -> str:
    """A line of what was processed."""
    return f"{place.partition} {offset}\n"


class Member:
    def __init__(self, told: dict[str, Any]) -> None:
        self._dawdles_s: float = told["dawdles_s"]
        self._consumer = Consumer(told["settings"])
        self._notes = Path(told["notes"]).open("a", buffering=1)  # noqa: SIM115  closed with the process
        self._done: dict[TopicPartition, int] = {}
        """By partition: where whoever comes next has to begin."""
        self._stops = self._dawdles = False
        signal.signal(signal.SIGTERM, lambda *_: setattr(self, "_stops", True))
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to everybody; who started us will end us
        signal.signal(signal.SIGUSR1, lambda *_: setattr(self, "_dawdles", True))
        self._consumer.subscribe([told["topic"]], on_revoked=self._give_up, on_lost=self._lose)

    def run(self) -> None:
        while not self._stops:
            records = self._consumer.poll(0.2)
            if not records:
                continue
            for place, some in records.by_partition().items():
                self._notes.write("".join(note(place, record.offset) for record in some))
                self._done[place] = some[-1].offset + 1
            if self._dawdles:
                self._dawdles = False
                time.sleep(self._dawdles_s)
            self._commit()
        while not self._commit():  # a rebalance is on: nothing new is read until it is over
            self._consumer.pause(*self._consumer.assignment())
            self._consumer.poll(0.2)
        self._consumer.close()

    def _commit(self) -> bool:
        """False if it has to be tried again, with the next batch or when the rebalance is over."""
        try:
            self._consumer.commit(self._done)
        except RebalanceInProgressError:
            return False
        except CommitFailedError:
            self._done.clear()  # we are out of the group, and somebody else reads it
        except KafkaError as error:
            if not error.retriable:
                raise
            return False
        return True

    def _give_up(self, partitions: list[TopicPartition]) -> None:
        going = {place: self._done.pop(place) for place in partitions if place in self._done}
        if going:
            self._consumer.commit(going)

    def _lose(self, partitions: list[TopicPartition]) -> None:
        for place in partitions:
            self._done.pop(place, None)


if __name__ == "__main__":
    end_with_parent()
    Member(json.loads(sys.argv[1])).run()
