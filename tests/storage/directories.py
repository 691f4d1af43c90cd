"""A data directory with a topic of two partitions, written as a broker writes it, and ways to damage it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar
from uuid import UUID

from coterie.storage import DataDirectory, DiskChange, Files, LogConfig, StoredTopic
from coterie.storage.files import read_file
from logs import SMALL, batch, read_all

__all__ = ["NOW", "ORDERS", "change", "flipped", "flush", "make", "opened", "segments", "written"]

T = TypeVar("T")
NOW = 1_000
ORDERS = StoredTopic("orders", UUID(int=7), 2)


def opened(files: Files, config: LogConfig = SMALL) -> DataDirectory:
    return DataDirectory.open(files, NOW, cluster_id="cluster", config_of=lambda _topic: config, journaled=True)


def make(change: DiskChange[T]) -> T:
    change.run()
    return change.done()


def flush(directory: DataDirectory) -> None:
    """As a broker flushes: what is durable is written down."""
    for log in directory.logs.values():
        target = log.flush_target(in_place=True)
        if target is not None:
            target.run()
            log.flushed(target)
            assert log.key is not None
            directory.ends.add([(log.key, target.end)])


def written(
    files: Files, *, clean: bool, count: int = 30, topic: StoredTopic = ORDERS
) -> list[tuple[int, bytes | None]]:
    """Write a topic with batches in several segments of partition 0, and return its content."""
    directory = opened(files)
    make(directory.create_topic(topic, NOW))
    log = directory.logs["orders", 0]
    for number in range(count):
        log.append(batch(b"%d" % number + bytes(40), timestamps=[number]), NOW)
        flush(directory)
    content = read_all(log)
    assert log.segment_count > 3
    if clean:
        directory.close()
    else:
        directory.release()
    return content


def segments(files: Files) -> list[str]:
    names = files.names("orders-0") if files.exists("orders-0") else []
    return [f"orders-0/{name}" for name in names if name.endswith(".log")]


def change(files: Files, path: str, to: Callable[[bytearray], bytes | bytearray]) -> None:
    content = to(bytearray(read_file(files, path)))
    file = files.open(path)
    file.truncate(0)
    file.append(content)
    file.close()


def flipped(content: bytearray, at: int) -> bytearray:
    content[at] ^= 1
    return content
