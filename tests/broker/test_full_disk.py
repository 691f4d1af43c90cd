"""A disk that is really full: a small file system of its own, or files that may not grow. Then there is room again."""

from __future__ import annotations

import os
import resource
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from broker.peer import Peer, Serving
from coterie.errors import ErrorCode
from coterie.storage.flush import RESERVED

pytestmark = pytest.mark.real_time

SETTINGS = ["--set=group.initial.rebalance.delay.ms=0", "--set=offsets.topic.num.partitions=1"]
LARGE = bytes(300_000)
SIZE = 16 << 20


class Disk(Protocol):
    path: Path

    def fill(self, broker: Serving) -> None: ...

    def free(self, broker: Serving) -> None: ...


class SmallFileSystem:
    """Really full: ENOSPC. Only root may mount one."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def fill(self, _broker: Serving) -> None:
        with (self.path / "ballast").open("wb", buffering=0) as file:
            try:
                while file.write(bytes(4096)):
                    pass
            except OSError:
                return

    def free(self, _broker: Serving) -> None:
        (self.path / "ballast").unlink()


class FilesThatMayNotGrow:
    """EFBIG, for the broker alone; anybody may do that to a process of their own."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def fill(self, broker: Serving) -> None:
        self._allow(broker, 1)

    def free(self, broker: Serving) -> None:
        self._allow(broker, resource.RLIM_INFINITY)

    def _allow(self, broker: Serving, size: int) -> None:
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.prlimit(broker.process.pid, resource.RLIMIT_FSIZE, (size, hard))


@pytest.fixture(params=[SmallFileSystem, FilesThatMayNotGrow])
def disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Disk]:
    if request.param is FilesThatMayNotGrow:
        yield FilesThatMayNotGrow(tmp_path)
        return
    mounted = tmp_path / "small"
    mounted.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(mounted)]
    if os.geteuid() or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("only root may mount a file system, and not everywhere")
    try:
        yield SmallFileSystem(mounted)
    finally:
        subprocess.run(["umount", "--lazy", str(mounted)], check=True)


def until_refused(peer: Peer, offset: int) -> tuple[ErrorCode, int]:
    """Small ones fit into the room that the journal has beforehand; the error, and what was acknowledged last."""
    for number in range(offset + 1, offset + RESERVED // 50):
        (error,) = peer.commit("g", {("t", 0): number})
        if error:
            return error, number - 1
    raise AssertionError("a full disk takes everything")


def test_what_a_full_disk_refuses_is_refused_and_all_works_again_when_there_is_room(disk: Disk) -> None:
    """Kafka would take the log directory offline for good."""
    with Serving(disk.path / "data", *SETTINGS) as broker, Peer(broker.ready()) as peer:
        peer.find_coordinator()
        peer.create("t")
        assert peer.produce("t", b"before").base_offset == 0
        assert peer.commit("g", {("t", 0): 1}) == [ErrorCode.NONE]
        member = peer.enter("members")
        disk.fill(broker)

        refused = peer.produce("t", LARGE)
        assert (refused.error, refused.base_offset) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
        error, committed = until_refused(peer, 1)
        assert error is ErrorCode.NOT_COORDINATOR, "what Kafka makes of a storage error for whoever commits"
        peer.send_create("new", 20)
        assert peer.created().error is ErrorCode.KAFKA_STORAGE_ERROR
        assert peer.heartbeat("members", member.member_id, member.generation_id) is ErrorCode.NONE
        assert peer.read_all("t") == [(0, b"before")]
        assert peer.offsets_of("g") == {("t", 0): committed}

        disk.free(broker)
        deadline = time.perf_counter() + 60
        while peer.produce("t", LARGE).error is ErrorCode.KAFKA_STORAGE_ERROR:
            assert time.perf_counter() < deadline
        while peer.commit("g", {("t", 0): 1_000}) == [ErrorCode.NOT_COORDINATOR]:  # its log is repaired once a second
            assert time.perf_counter() < deadline
            time.sleep(0.1)  # each refusal is a line of the broker's log
        peer.create("new", 20)
        broker.kill()
        _, said = broker.ended()
    assert "Trouble" in said and "Mistake" not in said and "Traceback" not in said
    with Serving(disk.path / "data", *SETTINGS) as broker, Peer(broker.ready()) as peer:
        assert peer.read_all("t") == [(0, b"before"), (1, LARGE)]
        assert peer.offsets_of("g") == {("t", 0): 1_000}
        assert peer.produce("new", b"x", partition=19).base_offset == 0
