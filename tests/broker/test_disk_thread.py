"""The thread that waits for the disk: everything is done once, in order, and its end is heard of in the event loop."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import threading
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from coterie.broker.broker_effects import Flush, FlushEnded
from coterie.broker.io.disk_thread import DiskThread
from coterie.storage import DataDirectory, DiskFiles, LogConfig, StoredTopic
from coterie.storage.durable_ends import ENDS_FILE
from coterie.storage.flush import JOURNAL_FILE
from logs import batch

IS_BUILT = find_spec("coterie.storage._fast_disk") is not None


def test_work_is_done_in_order_away_from_the_loop_and_its_end_is_heard_of_in_it() -> None:
    async def ask() -> list[tuple[int, bool]]:
        disk = DiskThread(asyncio.get_running_loop())
        heard: list[tuple[int, bool]] = []
        done = asyncio.Event()
        here = threading.get_ident()

        def ended(found: tuple[int, bool]) -> None:
            assert threading.get_ident() == here
            heard.append(found)
            if len(heard) == 100:
                done.set()

        for number in range(100):
            disk.run(lambda number=number: (number, threading.get_ident() != here), ended)  # type: ignore[misc]
        await asyncio.wait_for(done.wait(), 60)
        disk.shutdown()
        return heard

    assert asyncio.run(ask()) == [(number, True) for number in range(100)]


def test_a_mistake_is_reported_and_the_thread_goes_on() -> None:
    def fails() -> None:
        raise ValueError("a mistake")

    async def ask() -> tuple[list[Any], list[Any]]:
        loop = asyncio.get_running_loop()
        reported: list[Any] = []
        loop.set_exception_handler(lambda _, context: reported.append(context["exception"]))
        disk = DiskThread(loop)
        heard: asyncio.Queue[Any] = asyncio.Queue()
        disk.run(fails, heard.put_nowait)
        disk.run(lambda: "next", heard.put_nowait)
        found = [await asyncio.wait_for(heard.get(), 60)]
        disk.shutdown()
        return found, reported

    found, reported = asyncio.run(ask())
    assert found == ["next"]
    assert [str(each) for each in reported] == ["a mistake"]


def test_the_last_work_comes_after_all_other_and_its_error_is_raised() -> None:
    async def ask() -> list[int]:
        disk = DiskThread(asyncio.get_running_loop())
        done: list[int] = []
        for number in range(10):
            disk.run(_noting(done, number), lambda _: None)
        await asyncio.wait_for(disk.finish(_noting(done, 10)), 60)
        with pytest.raises(ZeroDivisionError):
            await asyncio.wait_for(disk.finish(_fails), 60)
        disk.shutdown()
        return done

    assert asyncio.run(ask()) == list(range(11))


@pytest.mark.parametrize("times", [1, 2])
def test_a_shutdown_waits_for_what_was_asked_for(times: int) -> None:
    async def ask() -> list[int]:
        disk = DiskThread(asyncio.get_running_loop())
        done: list[int] = []
        for number in range(10):
            disk.run(_noting(done, number), lambda _: None)
        for _ in range(times):
            disk.shutdown()
        disk.run(_noting(done, 10), lambda _: None)
        return done

    assert asyncio.run(ask()) == list(range(10))


def test_a_shutdown_of_a_thread_that_never_worked_ends_at_once() -> None:
    async def ask() -> None:
        DiskThread(asyncio.get_running_loop()).shutdown()

    asyncio.run(ask())


def test_work_that_ends_after_the_loop_was_closed_disturbs_nobody() -> None:
    held = threading.Event()

    async def ask() -> DiskThread:
        disk = DiskThread(asyncio.get_running_loop())
        disk.run(held.wait, lambda _: None)
        return disk

    disk = asyncio.run(ask())
    held.set()
    disk.shutdown()


COMPILED = pytest.param("0", marks=pytest.mark.skipif(not IS_BUILT, reason="the disk's writer was not compiled here"))


@pytest.mark.parametrize("pure", [COMPILED, "1"])
def test_flushes_leave_the_same_files_whoever_writes_them(
    pure: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same as `Flush.run`, which the simulator uses."""
    monkeypatch.setenv("COTERIE_PURE", pure)

    async def flush_all(broker: OneLog) -> None:
        disk = DiskThread(asyncio.get_running_loop())
        for number in range(50):
            assert await _error(disk, broker, b"%d" % number * (number * 100 + 1)) is None
        disk.shutdown()

    ours, plain = OneLog(tmp_path / "ours"), OneLog(tmp_path / "plain")
    asyncio.run(flush_all(ours))
    for number in range(50):
        plain.log.flushed(plain.flush(b"%d" % number * (number * 100 + 1)).run().results[0][1])
    assert ours.log.durable_end == plain.log.durable_end == 51
    for name in (JOURNAL_FILE, ENDS_FILE):
        assert (tmp_path / "ours" / name).read_bytes() == (tmp_path / "plain" / name).read_bytes()
    assert ours.journal.size == plain.journal.size and ours.journal.is_sound


@pytest.mark.parametrize("pure", [COMPILED, "1"])
def test_a_journal_that_cannot_be_written_is_reported_and_cut_back(
    pure: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COTERIE_PURE", pure)
    broker = OneLog(tmp_path)

    async def ask() -> Exception | None:
        disk = DiskThread(asyncio.get_running_loop())
        await _error(disk, broker, b"one")
        room = broker.journal.size + 20
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, limits[1]))
        os.truncate(tmp_path / JOURNAL_FILE, broker.journal.size)  # else there is room already
        try:
            error = await _error(disk, broker, b"two")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        disk.shutdown()
        return error

    error = asyncio.run(ask())
    assert isinstance(error, OSError) and error.errno == errno.EFBIG
    assert not broker.journal.is_sound
    assert (tmp_path / JOURNAL_FILE).stat().st_size == broker.journal.size


@pytest.mark.skipif(not IS_BUILT, reason="the disk's writer was not compiled here")
def test_work_asked_for_while_the_journal_is_written_comes_after_it(tmp_path: Path) -> None:
    broker = OneLog(tmp_path)

    async def ask() -> list[str]:
        disk = DiskThread(asyncio.get_running_loop())
        await _error(disk, broker, b"one")  # creates the journal
        heard: list[str] = []
        disk.flush(broker.flush(b"two"), lambda _: heard.append("flush"))
        disk.run(lambda: f"work with {broker.journal.size} bytes", heard.append)
        await asyncio.wait_for(disk.finish(lambda: None), 60)
        disk.shutdown()
        return heard

    assert asyncio.run(ask()) == ["flush", f"work with {broker.journal.size} bytes"]


@pytest.mark.skipif(not IS_BUILT, reason="the disk's writer was not compiled here")
def test_a_shutdown_waits_for_the_journal_and_for_what_comes_after_it(tmp_path: Path) -> None:
    broker = OneLog(tmp_path)

    async def ask() -> list[int]:
        disk = DiskThread(asyncio.get_running_loop())
        await _error(disk, broker, b"one")
        done: list[int] = []
        disk.flush(broker.flush(b"two" * 1_000), lambda _: None)
        disk.run(_noting(done, 1), lambda _: None)
        disk.shutdown()
        return done

    assert asyncio.run(ask()) == [1]
    assert (tmp_path / JOURNAL_FILE).read_bytes().count(b"two" * 1_000) == 1


class OneLog:
    """A data directory with one log and a journal."""

    def __init__(self, path: Path) -> None:
        self.directory = DataDirectory.open(
            DiskFiles(path), 0, cluster_id="cluster", config_of=lambda _: LogConfig(), journaled=True
        )
        change = self.directory.create_topic(StoredTopic("orders", UUID(int=7), 1), 0)
        change.run()
        change.done()
        (self.log,) = self.directory.logs.values()
        self.log.append(batch(b"first"), 0)
        self.log.flush()
        assert self.directory.journal is not None
        self.journal = self.directory.journal

    def flush(self, value: bytes) -> Flush:
        self.log.append(batch(value), 0)
        small = [(self.log, self.log.journal_target())]
        return Flush([], FlushEnded(), self.journal, small, ends=self.directory.ends)


async def _error(disk: DiskThread, broker: OneLog, value: bytes) -> Exception | None:
    """Flush one batch, and return the error of that."""
    ended: asyncio.Future[FlushEnded] = asyncio.get_running_loop().create_future()
    disk.flush(broker.flush(value), ended.set_result)
    ((log, target, error),) = (await asyncio.wait_for(ended, 60)).results
    if error is None:
        log.flushed(target)
    else:
        log.flush_failed(target)
    return error


def _noting(done: list[int], number: int) -> Callable[[], None]:
    return lambda: done.append(number)


def _fails() -> None:
    raise ZeroDivisionError
