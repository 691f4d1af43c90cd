"""A disk that refuses now this and now that, at random: nothing acknowledged is lost, nothing refused comes back.

What it refuses is everything there is: making, opening, renaming and deleting files, writing (and then a part of it is
there), reading, syncing, cutting. Then it is well again, and so is the broker.
"""

from __future__ import annotations

import errno
from contextlib import suppress
from random import Random  # noqa: TID251  (hypothesis throws the rng)

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.driver import Client, World
from broker.speaker import list_request
from coterie.errors import ErrorCode
from coterie.protocol.apis import delete_records, list_offsets
from coterie.protocol.buffer import Buffer
from coterie.storage import File, MemoryFiles, Sync

TOPICS = ("a", "b")
COMER = "comes"
STORAGE = {ErrorCode.KAFKA_STORAGE_ERROR}
COORDINATOR = {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}


class MoodyFiles(MemoryFiles):
    """One in `refuses` of what it is asked for fails; 0 is none."""

    def __init__(self, rng: Random) -> None:
        super().__init__()
        self.rng = rng
        self.refuses = 0
        self.refused = 0

    def mood(self) -> None:
        if self.refuses and not self.rng.randrange(self.refuses):
            self.refused += 1
            raise OSError(self.rng.choice((errno.ENOSPC, errno.EIO)), "not in the mood")

    def open(self, path: str, *, create: bool = False) -> File:
        self.mood()
        return _MoodyFile(self, super().open(path, create=create))

    def mkdir(self, path: str) -> None:
        self.mood()
        super().mkdir(path)

    def rename(self, old: str, new: str) -> None:
        self.mood()
        super().rename(old, new)

    def delete(self, path: str) -> None:
        self.mood()
        super().delete(path)

    def rmdir(self, path: str) -> None:
        self.mood()
        super().rmdir(path)

    def sync_directory(self, path: str = "") -> None:
        self.mood()
        super().sync_directory(path)


class _MoodySync:
    def __init__(self, disk: MoodyFiles, sync: Sync) -> None:
        self._disk = disk
        self._sync = sync

    def run(self) -> None:
        self._disk.mood()
        self._sync.run()


class _MoodyFile:
    def __init__(self, disk: MoodyFiles, file: File) -> None:
        self._disk = disk
        self._file = file

    @property
    def size(self) -> int:
        return self._file.size

    def append(self, data: Buffer) -> None:
        try:
            self._disk.mood()
        except OSError:
            self._file.append(data[: self._disk.rng.randrange(len(data) + 1)])
            raise
        self._file.append(data)

    def pread(self, size: int, at: int) -> bytes:
        self._disk.mood()
        return self._file.pread(size, at)

    def truncate(self, size: int) -> None:
        self._disk.mood()
        self._file.truncate(size)

    def sync(self) -> None:
        self.later().run()

    def later(self) -> Sync:
        return _MoodySync(self._disk, self._file.later())

    def close(self) -> None:
        self._file.close()


class Load:
    """Clients that remember what they were told."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.disk = MoodyFiles(rng)
        self.world = World(self.disk, {"offsets.topic.num.partitions": 2})
        self.client = self.world.client()
        self.told: dict[str, list[bytes]] = {topic: [] for topic in TOPICS}
        self.sequence = 0
        self.committed: dict[str, int] = {}
        self.exists = False
        self.counter = 0
        self.refusals = 0
        self.client.find_coordinator()
        for topic in TOPICS:
            self.client.create(topic)
        self.shrink_segments()

    def shrink_segments(self) -> None:
        for log in self.world.cluster.directory.logs.values():
            log.config = log.config.__class__(segment_bytes=700, index_interval_bytes=100)

    def expect(self, error: ErrorCode, allowed: set[ErrorCode], message: str | None = "") -> bool:
        """Whether it went well; if not, it was refused with one of these, and only since the disk did."""
        if error is ErrorCode.NONE:
            return True
        assert error in allowed, error
        assert self.disk.refused, f"refused by a disk that is well: {message or self.world.troubles[-1]}"
        self.refusals += 1
        return False

    # --- steps --------------------------------------------------------------------------------------------------------

    def produce(self, topic: str) -> None:
        self.counter += 1
        value = b"%d " % self.counter * self.rng.randrange(1, 30)
        producer = (1, 0, self.sequence) if topic == "b" else None
        answer = self.client.produce(topic, value, producer=producer)
        if self.expect(answer.error, STORAGE):
            assert answer.base_offset == len(self.told[topic])
            self.told[topic].append(value)
            self.sequence += topic == "b"

    def commit(self, group: str) -> None:
        self.counter += 1
        (error,) = self.client.commit(group, {("a", 0): self.counter})
        if self.expect(error, COORDINATOR):
            self.committed[group] = self.counter

    def change(self) -> None:
        if self.exists:
            self.exists = not self.expect(self.client.delete(COMER), STORAGE)
        else:
            self.client.send_create(COMER, 2)
            made = self.client.created()
            self.exists = self.expect(made.error, STORAGE, made.message)
        with suppress(OSError):  # the server tells of it, and goes on
            self.world.do_tasks()

    def read(self) -> None:
        answer = self.client.fetch("a", 0, max_wait_ms=0)
        self.expect(answer.error, STORAGE)
        (found,) = self.client.ask(list_offsets, list_request("a", 500)).topics[0].partitions
        self.expect(found.error, STORAGE)

    def free(self) -> None:
        """Of nothing: the start stays where it is, and the checkpoint is written."""
        part = delete_records.Partition(partition=0, offset=0)
        topic = delete_records.Topic(name="a", partitions=[part])
        answer = self.client.ask(delete_records, delete_records.Request(topics=[topic])).topics[0].partitions[0]
        self.expect(answer.error, STORAGE)

    def maintenance(self) -> None:
        self.world.cluster.log_manager.checkpoint()
        self.world.advance(self.rng.choice((10, 1_000, 400_000)))

    # --- what must hold -----------------------------------------------------------------------------------------------

    def check(self, client: Client) -> None:
        for topic in TOPICS:
            assert client.read_all(topic) == list(enumerate(self.told[topic]))
        for group in ("g", "h"):
            assert client.offsets_of(group).get(("a", 0)) == self.committed.get(group)
        assert (COMER in self.world.cluster.directory.topics) == self.exists

    def heal(self) -> None:
        self.disk.refuses = 0
        for _ in range(3):
            self.world.advance(60_000)
        self.disk.refused = 0


STEPS = (
    "produce a",
    "produce a",
    "produce b",
    "produce b",
    "commit g",
    "commit h",
    "change",
    "read",
    "free",
    "maintenance",
)


MOODS = (3, 10, 2, 40, 5)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(rng=st.randoms(use_true_random=True))
def test_a_moody_disk_loses_nothing_and_keeps_nothing_that_was_refused(rng: Random) -> None:
    load = Load(rng)
    for mood in MOODS:
        load.disk.refuses = mood
        for _ in range(15):
            name, _, what = rng.choice(STEPS).partition(" ")
            getattr(load, name)(*([what] if what else []))
        load.heal()
        load.check(load.client)
        for step in STEPS:  # all of it works again
            name, _, what = step.partition(" ")
            getattr(load, name)(*([what] if what else []))
        load.check(load.client)
    assert load.refusals, "the disk was never in a bad mood"
    load.world.stop()
    load.world = World(load.disk, now_ms=10_000_000)
    load.check(load.world.client())
