"""What Spark does with a stream reader, without Spark: the order of calls, the checkpoint, a sink by batch.

So members by the dozen can live and die in one process, in seconds. Real Spark is in test_on_spark.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from time import monotonic  # noqa: TID251  a busy machine joins by the wall clock
from typing import Any

from coterie.client.network.runtime import background
from coterie.spark.options import SourceOptions, Use
from coterie.spark.queries import GroupQuery
from coterie.spark.source import StreamReader
from spark.topics import Topic

__all__ = ["Query"]

JOINS_WITHIN_S = 30.0


class Query:
    """One run of a query; its folder outlives it."""

    def __init__(self, topic: Topic, folder: Path, group_id: str | None = None, **options: str) -> None:
        self.folder = folder
        for name in ("offsets", "commits", "sink"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        given = {"kafka.bootstrap.servers": topic.address, "subscribe": topic.name, "startingOffsets": "earliest"}
        if group_id is not None:
            given |= {"groupId": group_id, "checkpointLocation": str(folder)}
            given |= {"kafka.heartbeat.interval.ms": "100", "kafka.session.timeout.ms": "2000"}
        given |= {name.replace("__", "."): text for name, text in options.items()}
        given = {name: text for name, text in given.items() if text}
        self.reader = StreamReader(SourceOptions.of(given, Use.STREAM))
        self.in_batch: Callable[[], None] = lambda: None
        """Called while a batch runs: it has read, and nothing of it is durable."""
        self.write: Callable[[int, list[int]], None] = self._keep
        """The sink: called with the number of the batch and its rows."""
        self.error: BaseException | None = None
        self._is_ending = False
        self._thread: Thread | None = None
        self._has_recovered = False

    # --- the checkpoint -----------------------------------------------------------------------------------------------

    def _numbers(self, folder: str) -> list[int]:
        return sorted(int(path.name) for path in (self.folder / folder).iterdir() if path.name.isdigit())

    def _offset(self, batch: int) -> dict[str, Any]:
        if batch < 0:
            return self.initial
        found: dict[str, Any] = json.loads((self.folder / "offsets" / str(batch)).read_text().splitlines()[2])
        return found

    @property
    def initial(self) -> dict[str, Any]:
        path = self.folder / "initial"
        if not path.exists():
            path.write_text(json.dumps(self.reader.initialOffset()))
        found: dict[str, Any] = json.loads(path.read_text())
        return found

    # --- Spark's steps ------------------------------------------------------------------------------------------------

    def trigger(self) -> bool:
        """One trigger; whether it had a batch."""
        done, begun = self._numbers("commits"), self._numbers("offsets")
        last = done[-1] if done else -1
        start = self._offset(last)
        if begun and begun[-1] > last:
            assert not self._has_recovered
            self._run_batch(begun[-1], start, self._offset(begun[-1]))  # found in the checkpoint, not done
            return True
        self._has_recovered = True
        end = self.reader.latestOffset(start, self.reader.getDefaultReadLimit())
        assert isinstance(end, dict)
        if json.dumps(end) == json.dumps(start):
            return False
        (self.folder / "offsets" / str(last + 1)).write_text(f"v1\n{{}}\n{json.dumps(end)}\n")
        self._run_batch(last + 1, start, end)
        return True

    def _run_batch(self, batch: int, start: dict[str, Any], end: dict[str, Any]) -> None:
        rows: list[int] = []
        for partition in self.reader.partitions(start, end):
            for found in self.reader.read(partition):
                rows += [int(value) for value in found.column("value").to_pylist()]
        self.in_batch()
        self.write(batch, rows)
        (self.folder / "commits" / str(batch)).write_text("v1\n{}")
        self._has_recovered = True

    def _keep(self, batch: int, rows: list[int]) -> None:
        (self.folder / "sink" / str(batch)).write_text(json.dumps(rows))

    def run(self, at_least: int = 1) -> None:
        """Trigger after trigger, as long as there is something new. To join a group may take several triggers."""
        idle, give_up_s = 0, monotonic() + JOINS_WITHIN_S
        while idle < at_least:
            if self.trigger():
                idle = 0
            elif not self._is_joining or monotonic() > give_up_s:
                idle += 1

    def start(self) -> Query:
        """Trigger after trigger in a thread, until it is stopped, killed or fails."""

        def go_on() -> None:
            try:
                while not self._is_ending:
                    self.trigger()
            except BaseException as error:  # noqa: BLE001  what a query that failed would show
                if not self._is_ending:
                    self.error = error

        self._thread = Thread(target=go_on, daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """In order: Spark ends the batch or breaks it off, then the process gets SIGTERM."""
        self._is_ending = True
        if self._thread is not None:
            self._thread.join(30)
        self.reader.stop()

    def kill(self) -> None:
        """As kill -9: nobody is told, the sockets close."""
        self._is_ending = True
        query = self.reader.query
        assert isinstance(query, GroupQuery)
        self.reader._query = None
        background().run(_vanish(query))
        if self._thread is not None:
            self._thread.join(30)

    @property
    def _is_joining(self) -> bool:
        return isinstance(self.reader._query, GroupQuery) and not self.owned

    @property
    def owned(self) -> int:
        """Return how many partitions it owns; it creates no query, since Spark asks from one thread alone."""
        query = self.reader._query
        return len(query._owned.owned) if isinstance(query, GroupQuery) else 0

    def seen(self) -> list[int]:
        return sinks(self.folder)


async def _vanish(query: GroupQuery) -> None:
    query._commits_server.close()
    await query._member.engine.close()


def sinks(folder: Path) -> list[int]:
    """What the sink has, batch by batch; a batch that was run again has replaced itself."""
    return [row for path in sorted((folder / "sink").iterdir()) for row in json.loads(path.read_text())]
