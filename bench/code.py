"""The size and shape of the code: files, lines, names that stand more than once, files that a request passes through.

    make bench-code                 # or: .venv/bin/python bench/code.py [--json FILE]

A file counts as touched if a function in it is called. Of a broker its threads are traced, and of a consumer its own
and that of its event loop, after a first run that has loaded everything. A micro-batch is the calls that Spark makes to
the stream reader of a query in a group, made here without Spark.
"""

from __future__ import annotations

import argparse
import ast
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

from heartbeat import Link
from measured import write_results

import coterie
from coterie.protocol.apis import heartbeat, join_group, offset_commit, sync_group
from coterie.protocol.messages import CommitPartition, Heartbeat, JoinGroup, OffsetCommit, Protocol, SyncGroup

PACKAGE = Path(coterie.__file__).parent
OLD_WORDS = (
    *("round", "rounds", "unowned", "toil", "chores", "errand", "wishes", "hungry", "farewell", "seat", "dice"),
    *("weather", "upkeep", "mend", "mended", "dawdler", "dawdle", "telling", "told", "tells", "whoever", "somebody"),
    *("everybody", "law", "house", "chore", "places", "claims", "looking", "quiet", "restless", "dear", "tale", "pace"),
)
"""Words of an older vocabulary. A few have an ordinary use as well, so the counts are not expected to be all zero."""


def modules() -> dict[str, ast.Module]:
    names = {path: ".".join(("coterie", *path.relative_to(PACKAGE).with_suffix("").parts)) for path in _files()}
    return {name.removesuffix(".__init__"): ast.parse(path.read_text()) for path, name in names.items()}


def _files() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def importers(found: dict[str, ast.Module]) -> dict[str, set[str]]:
    by: dict[str, set[str]] = defaultdict(set)
    for name, tree in found.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                for one in (node.module, *(f"{node.module}.{each.name}" for each in node.names)):
                    by[one].add(name)
            elif isinstance(node, ast.Import):
                for each in node.names:
                    by[each.name].add(name)
    return by


def shape() -> dict[str, Any]:
    found = modules()
    lines = [path.read_text().count("\n") for path in _files()]
    packages = {path.parent for path in _files() if path.name == "__init__.py"}
    by = importers(found)
    plain = [name for name in found if PACKAGE.joinpath(*name.split(".")[1:]) not in packages]
    file_names = Counter(path.name for path in _files() if path.name not in {"__init__.py", "__main__.py"})
    classes = Counter(node.name for tree in found.values() for node in tree.body if isinstance(node, ast.ClassDef))
    text = " ".join(path.read_text() for path in _files()).replace("_", " ").split()
    words = Counter(word.strip("\"'`.,:;()[]").lower() for word in text)
    return {
        "files": len(lines),
        "lines": sum(lines),
        "lines_a_file": round(sum(lines) / len(lines)),
        "modules_with_one_importer": sum(len(by[name]) == 1 for name in plain),
        "file_names_more_than_once": {name: count for name, count in file_names.most_common() if count > 1},
        "class_names_more_than_once": {name: count for name, count in classes.most_common() if count > 1},
        "old_words": {word: words[word] for word in OLD_WORDS if words[word]},
    }


class Touched:
    """Which files of the package are touched, by the threads that start while it is installed.

    `threads` are the names of those that count; None: all. A broker in the same process starts threads when it needs
    them, which may be during the measurement of a client.
    """

    def __init__(self, threads: Collection[str] | None = None) -> None:
        self.files: set[str] = set()
        self.is_on = False
        self._threads = threads

    def __call__(self, frame: FrameType, event: str, _about: object) -> None:
        counts = self._threads is None or threading.current_thread().name in self._threads
        if self.is_on and counts and event == "call":
            self.files.add(frame.f_code.co_filename)

    @contextmanager
    def installed(self) -> Iterator[None]:
        threading.setprofile(self)
        try:
            yield
        finally:
            threading.setprofile(None)

    def by(self, act: Callable[[], object]) -> int:
        self.files, self.is_on = set(), True
        act()
        self.is_on = False
        return sum(name.startswith(str(PACKAGE)) for name in self.files)


def touched_by_requests() -> dict[str, int]:
    """Files of the broker."""
    touched = Touched()
    with touched.installed():
        broker = coterie.Broker(settings={"group.initial.rebalance.delay.ms": 0}).start()
    host, port = broker.bootstrap_servers.rsplit(":", 1)
    link = Link((host, int(port)))

    def ask(api: Any, request: Any, version: int) -> Any:
        link.send(api, request, version)
        return link.answer(api, version)

    def join(group: str) -> Any:
        return ask(
            join_group,
            JoinGroup(None, group, "", None, "consumer", [Protocol("range", b"")], 30_000, 60_000, fresh_id=""),
            3,
        )

    with closing(link.socket):
        join("loads the coordinator")
        found = {"join": touched.by(lambda: join("g"))}
        member_id = join("h").member_id
        sync = SyncGroup(None, "h", member_id, None, 1, [(member_id, b"")])
        found["sync"] = touched.by(lambda: ask(sync_group, sync, 3))
        beat = Heartbeat(None, "h", member_id, None, 1)
        ask(heartbeat, beat, 3)
        found["heartbeat"] = touched.by(lambda: ask(heartbeat, beat, 3))
        commit = OffsetCommit(None, "h", member_id, None, 1, [CommitPartition("t", 0, 5)])
        ask(offset_commit, commit, 7)
        found["commit"] = touched.by(lambda: ask(offset_commit, commit, 7))
    broker.stop()
    return found


def touched_by_poll(touched: Touched) -> dict[str, int]:
    """Files of the consumer."""

    def poll(servers: str, group: str) -> None:
        sys.setprofile(touched)
        with coterie.Consumer(bootstrap_servers=servers, group_id=group, auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["t"])
            while not consumer.poll(5):
                pass
            touched.is_on = False
        sys.setprofile(None)

    with coterie.Broker(settings={"group.initial.rebalance.delay.ms": 0}) as broker, touched.installed():
        with coterie.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            producer.send("t", "x").result()
        poll(broker.bootstrap_servers, "loads everything")
        return {"first poll": touched.by(lambda: poll(broker.bootstrap_servers, "g"))}


def touched_by_micro_batch(touched: Touched) -> dict[str, int]:
    """Files of one micro-batch of a query that is a member: the calls that Spark makes, without Spark."""
    if find_spec("pyspark") is None or find_spec("pyarrow") is None:
        return {}
    from coterie.spark.options import SourceOptions, Use
    from coterie.spark.source import StreamReader

    with (
        TemporaryDirectory() as folder,
        coterie.Broker(settings={"group.initial.rebalance.delay.ms": 0}) as broker,
        coterie.Producer(bootstrap_servers=broker.bootstrap_servers) as producer,
        touched.installed(),
    ):
        options = {"subscribe": "t", "groupId": "g", "checkpointLocation": folder, "startingOffsets": "earliest"}
        source = {"kafka.bootstrap.servers": broker.bootstrap_servers, **options}
        producer.send("t", "x").result()
        reader = StreamReader(SourceOptions.of(source, Use.STREAM))
        offset = reader.initialOffset()

        def batch() -> None:
            nonlocal offset
            sys.setprofile(touched)
            end = offset
            while end == offset:
                end = reader.latestOffset(offset, reader.getDefaultReadLimit())
            for partition in reader.partitions(offset, end):
                list(reader.read(partition))
            offset = end
            sys.setprofile(None)

        batch()
        producer.send("t", "x").result()
        found = {"micro-batch": touched.by(batch)}
        reader.stop()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", help="write the figures there too")
    options = parser.parse_args()
    # all clients share the thread of one event loop, which keeps its first profiler
    clients = Touched({"MainThread", "coterie-client"})
    touched = touched_by_requests() | touched_by_poll(clients) | touched_by_micro_batch(clients)
    write_results(options.json, {**shape(), "files_touched": touched})


if __name__ == "__main__":
    main()
