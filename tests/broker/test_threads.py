"""The event loop never waits for the disk: which thread does what to the files of a broker on real sockets."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.peer import Peer
from broker.speaker import list_request
from coterie import Broker
from coterie.errors import ErrorCode
from coterie.facts import Fact, Mistake
from coterie.protocol.api import ResourceType
from coterie.protocol.apis import (
    alter_configs,
    create_partitions,
    delete_groups,
    delete_records,
    describe_log_dirs,
    incremental_alter_configs,
    init_producer_id,
    leave_group,
    list_offsets,
    metadata,
    offset_delete,
)
from coterie.protocol.messages import DeleteGroup, LeaveGroup, LeavingMember, OffsetDelete
from coterie.storage import DiskFiles, File

pytestmark = pytest.mark.real_time

LOOP = "coterie-broker"
CACHED = {"append", "pread", "later", "close", "closed", "open", "reopen"}
"""What the loop may do: it goes to the system's cache or to no disk at all. `open` is of a segment that is there."""
SEGMENT = 1 << 20
BIG = 700_000
SETTINGS: dict[str, Any] = {
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 2,
    "log.segment.bytes": SEGMENT,
    "log.retention.check.interval.ms": 20,
    "log.retention.ms": -1,
}


class WatchedFiles(DiskFiles):
    """Remembers which thread called what."""

    def __init__(self, root: str | Path, most_open: int) -> None:
        super().__init__(root, most_open)
        self.calls: set[tuple[str, str, str]] = set()

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name.startswith("_") or not callable(found):
            return found
        return _watched(self.calls, name, found)


def _watched(calls: set[tuple[str, str, str]], name: str, found: Any) -> Any:
    def call(*args: Any, **named: Any) -> Any:
        what = "create" if name == "open" and named.get("create") else name
        calls.add((threading.current_thread().name, what, str(args[0]) if args and isinstance(args[0], str) else ""))
        result = found(*args, **named)
        return _WatchedFile(calls, args[0], result) if name == "open" else result

    return call


class _WatchedFile:
    def __init__(self, calls: set[tuple[str, str, str]], path: str, file: File) -> None:
        self._calls = calls
        self._path = path
        self._file = file

    @property
    def size(self) -> int:
        return self._file.size

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._file, name)
        calls, path = self._calls, self._path

        def call(*args: Any) -> Any:
            calls.add((threading.current_thread().name, name, path))
            return found(*args)

        return call


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> list[WatchedFiles]:
    opened: list[WatchedFiles] = []

    def files(root: str, most_open: int) -> WatchedFiles:
        opened.append(WatchedFiles(root, most_open))
        return opened[-1]

    monkeypatch.setattr("coterie.broker.broker.DiskFiles", files)
    monkeypatch.setattr("coterie.broker.maintenance.log_manager.CHECKPOINT_EVERY_MS", 20)
    return opened


@pytest.fixture(params=["sync", "os"])
def broker(tmp_path: Path, watched: list[WatchedFiles], request: pytest.FixtureRequest) -> Iterator[Broker]:
    facts: list[Fact] = []
    with Broker(tmp_path / "data", SETTINGS, flush=request.param, on_fact=facts.append) as broker:
        watched[0].calls.clear()
        yield broker
    assert not [fact for fact in facts if isinstance(fact, Mistake)]


def live(peer: Peer) -> None:
    """All that a broker does to its files."""
    peer.find_coordinator()
    peer.create("t", 2)
    asked = metadata.Request(topics=[metadata.Topic(name="auto")], allow_auto_topic_creation=True)
    assert not peer.ask(metadata, asked).topics[0].error
    for _ in range(5):  # rolls
        assert not peer.produce("t", bytes(BIG)).error
    assert not peer.produce("t", b"x", acks=1).error
    wanted = init_producer_id.Request(transactional_id=None, transaction_timeout_ms=1)
    assert not peer.ask(init_producer_id, wanted).error
    assert peer.read_all("t")  # of old segments
    assert not peer.ask(list_offsets, list_request("t", 5)).topics[0].partitions[0].error

    member = peer.enter("g")
    assert peer.commit("g", {("t", 0): 3}, member=member) == [ErrorCode.NONE]
    peer.ask(leave_group, LeaveGroup(None, "g", [LeavingMember(member.member_id)]))
    peer.ask(offset_delete, OffsetDelete(None, "g", [("t", [0])]))
    peer.ask(delete_groups, [DeleteGroup(None, "g")])

    grown = create_partitions.Topic(name="t", count=3)
    assert not peer.ask(create_partitions, create_partitions.Request(topics=[grown])).results[0].error
    part = delete_records.Partition(partition=0, offset=4)
    asked_less = delete_records.Request(topics=[delete_records.Topic(name="t", partitions=[part])])
    assert peer.ask(delete_records, asked_less).topics[0].partitions[0].low_watermark == 4
    config = alter_configs.Config(name="max.message.bytes", value="2000000")
    altered = alter_configs.Resource(resource_type=ResourceType.TOPIC, resource_name="t", configs=[config])
    assert not peer.ask(alter_configs, alter_configs.Request(resources=[altered])).responses[0].error
    retained = incremental_alter_configs.Config(name="retention.ms", operation=0, value="1")
    again = incremental_alter_configs.Resource(resource_type=ResourceType.TOPIC, resource_name="t", configs=[retained])
    request = incremental_alter_configs.Request(resources=[again])
    assert not peer.ask(incremental_alter_configs, request).responses[0].error
    peer.ask(describe_log_dirs, describe_log_dirs.Request(topics=None))


def wait_until_retained(peer: Peer) -> None:
    deadline = time.perf_counter() + 60
    while peer.ask(list_offsets, list_request("t", -2)).topics[0].partitions[0].offset < 6:
        assert time.perf_counter() < deadline


def wait_until_removed(peer: Peer, files: WatchedFiles) -> None:
    """Nobody waits for the files of a deleted topic to go, so it may take longer than the answers after it."""
    deadline = time.perf_counter() + 60
    while not any(what == "rmdir" for _, what, _ in list(files.calls)):
        peer.ask(list_offsets, list_request("t", -2))
        assert time.perf_counter() < deadline


def test_what_waits_for_the_disk_is_done_by_other_threads(broker: Broker, watched: list[WatchedFiles]) -> None:
    with Peer(broker.bootstrap_servers) as peer:
        live(peer)
        wait_until_retained(peer)
        assert peer.delete("t") is peer.delete("auto") is ErrorCode.NONE
        peer.create("t")
        peer.produce("t", b"of the new one")
        wait_until_removed(peer, watched[0])
    calls = watched[0].calls
    done_by_loop = {(what, path) for thread, what, path in calls if thread == LOOP}
    waiting = sorted((what, path) for what, path in done_by_loop if what not in CACHED)
    rolls = [path for what, path in waiting if what == "create" and path.endswith(".log")]
    assert rolls, "a roll makes a file: it is a name in the cache, as an append is a page of it"
    assert [(what, path) for what, path in waiting if path not in rolls] == []
    done_by_others = {what for thread, what, _ in calls if thread != LOOP}
    assert {"create", "mkdir", "rename", "delete", "rmdir", "sync", "sync_directory", "names"} <= done_by_others
