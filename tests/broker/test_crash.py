"""What was acknowledged is there after a crash, whatever the disk makes of the rest."""

from __future__ import annotations

from contextlib import suppress
from unittest.mock import patch

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.driver import Client, World
from broker.lossy import LossyFiles, PowerCut
from broker.speaker import list_request
from coterie.broker.broker_effects import TimersDue
from coterie.broker.maintenance import flushing
from coterie.broker.maintenance.log_cleaner import CleanDue
from coterie.errors import ErrorCode
from coterie.protocol.apis import delete_records, describe_groups, list_offsets
from coterie.protocol.messages import DescribeGroup, JoinedGroup
from coterie.protocol.offsets_topic import OFFSETS_TOPIC
from coterie.storage import LogConfig, flush
from coterie.storage import files as storage_files
from coterie.storage.flush import JOURNAL_FILE
from coterie.structs import replace

SMALL_SEGMENTS = 700
SMALL = LogConfig(segment_bytes=SMALL_SEGMENTS, index_interval_bytes=100)
EAGER = replace(SMALL, compacts=True, deletes=False, min_cleanable_dirty_ratio=0.1, roll_dirty_bytes=150)
"""Compacted whenever there is something to compact."""
TOPICS = ("a", "b")
COMERS = ("come", "go")
"""Topics that come and go."""
GROUPS = ("g", "h")


class Load:
    """Clients that remember what they were told, through as many lives of the node as it takes."""

    def __init__(self, data: st.DataObject) -> None:
        self.data = data
        self.lives = 0
        self.files = LossyFiles()
        self.produced: dict[str, dict[int, bytes]] = {topic: {} for topic in TOPICS}
        self.committed: dict[str, int] = {}
        self.attempted: dict[str, list[int]] = {group: [] for group in GROUPS}
        self.members: dict[str, JoinedGroup] = {}
        self.sequences: dict[str, int] = dict.fromkeys(TOPICS, 0)
        self.counter = 0
        self.exists = dict.fromkeys(COMERS, False)
        self.filled = dict.fromkeys(COMERS, 0)
        """How many records of each were acknowledged."""
        self.open()
        client = self.world.client()
        client.find_coordinator()
        for topic in TOPICS:
            client.create(topic)
        self.shrink_segments()
        self.world.auto = False

    def open(self) -> None:
        self.lives += 1
        self.world = World(self.files, {"offsets.topic.num.partitions": 2}, now_ms=1_000_000 * self.lives)
        self.producers = {topic: self.world.client() for topic in TOPICS}
        self.committers = {group: self.world.client() for group in GROUPS}
        self.in_flight: dict[str, list[bytes]] = {topic: [] for topic in TOPICS}
        self.changing: dict[str, tuple[Client, bool] | None] = {}
        self.shrink_segments()

    def shrink_segments(self) -> None:
        """So that a dozen batches roll a log several times."""
        for (topic, _), log in self.world.cluster.directory.logs.items():
            log.config = EAGER if topic == OFFSETS_TOPIC else SMALL

    # --- steps --------------------------------------------------------------------------------------------------------

    def produce(self, topic: str) -> None:
        self.counter += 1
        value = b"%d" % self.counter * self.data.draw(st.integers(1, 20))
        producer = (1, self.lives, len(self.in_flight[topic]) + self.sequences[topic]) if topic == "b" else None
        self.in_flight[topic].append(value)
        self.producers[topic].send_produce(topic, value, producer=producer)

    def commit(self, group: str) -> None:
        self.counter += 1
        self.attempted[group].append(self.counter)
        self.committers[group].send_commit(group, {("a", 0): self.counter}, member=self.members.get(group))

    def flush(self) -> None:
        if self.world.flushes:
            self.world.flush()
        self.collect()

    def burst(self) -> None:
        """Enough for logs to be past their first flush, which is in place: from then on the journal may have them."""
        for _ in range(self.data.draw(st.integers(1, 4))):
            self.produce(self.data.draw(st.sampled_from(TOPICS)))
            self.commit(self.data.draw(st.sampled_from(GROUPS)))
            self.flush()
            self.flush()

    def collect(self) -> None:
        self.collect_topics()
        for topic, client in self.producers.items():
            while client.answers:
                answer = client.produced()
                value = self.in_flight[topic].pop(0)
                self.sequences[topic] += 1
                assert answer.error is ErrorCode.NONE
                self.produced[topic][answer.base_offset] = value
        for group, client in self.committers.items():
            while client.answers:
                assert client.committed() == [ErrorCode.NONE]
                self.committed[group] = self.attempted[group].pop(0)

    def enter(self, group: str) -> None:
        """Somebody joins; if it is told that it is a member, it is one."""
        if group in self.members or self.committers[group].answers or self.attempted[group]:
            return
        client = self.world.client()
        self.world.auto = True
        self.members[group] = client.enter(group, b"assigned")
        self.world.auto = False
        self.collect()

    def make(self, name: str) -> None:
        """Whoever is told that a topic is there finds it after a crash, and so does one that was told it is gone."""
        if self.changing.get(name) is None:
            client = self.world.client()
            self.changing[name] = client, not self.exists[name]
            if self.exists[name]:
                client.send_delete(name)
            else:
                client.send_create(name, 2)

    def collect_topics(self) -> None:
        for name, change in self.changing.items():
            if change is not None and change[0].answers:
                client, creates = change
                assert (client.created().error if creates else client.deleted()) is ErrorCode.NONE
                self.exists[name] = creates
                self.filled[name] = 0
                self.changing[name] = None

    def fill(self, name: str) -> None:
        """What is acknowledged of a topic that comes and goes."""
        client = self.world.client()
        if self.exists[name] and self.changing.get(name) is None:
            self.world.auto = True
            assert client.produce(name, b"x").base_offset == self.filled[name]
            self.world.auto = False
            self.collect()
            self.filled[name] += 1

    def free(self, name: str) -> None:
        """Delete all records, and let the checkpoints know."""
        client = self.world.client()
        if self.exists[name] and self.changing.get(name) is None:
            self.world.auto = True
            part = delete_records.Partition(partition=0, offset=-1)
            topic = delete_records.Topic(name=name, partitions=[part])
            answer = client.ask(delete_records, delete_records.Request(topics=[topic])).topics[0].partitions[0]
            assert answer.low_watermark == self.filled[name]
            self.world.auto = False
            self.collect()

    def tasks(self) -> None:
        self.world.do_tasks()

    def checkpoint(self) -> None:
        self.world.cluster.log_manager.checkpoint()
        self.world.perform(self.world.cluster.handle(TimersDue(), self.world.now_ms))

    def clean(self) -> None:
        """Compaction, as far as it comes: a segment is rolled, and flushed, read, rewritten, offered, swapped."""
        world = self.world
        for _ in range(self.data.draw(st.integers(1, 6))):
            if world.cluster.cleaner._cleaning is None:
                world.node.coordinator.timers.arm("cleaner", world.now_ms, CleanDue())
                world.perform(world.cluster.handle(TimersDue(), world.now_ms))
            self.background_task()
            self.flush()
        if self.data.draw(st.booleans()):
            self.cut()

    def background_task(self) -> None:
        while self.world.background_tasks:
            self.world.background_task()

    def cut_background_task(self) -> None:
        """The machine dies while a compacted segment is being written."""
        if self.world.background_tasks:
            self.files.steps_left = self.data.draw(st.integers(0, 10))
            with suppress(PowerCut):
                self.background_task()
            self.crash()

    def cut(self) -> None:
        """The machine dies in the middle of a flush or of a change of topics."""
        if self.world.flushes:
            self.files.steps_left = self.data.draw(st.integers(0, 30))
            with suppress(PowerCut):
                self.flush()
            self.crash()

    def crash(self) -> None:
        self.under_way = self.changing
        self.files = self.files.crash(lambda most: self.data.draw(st.integers(0, most)))
        self.sequences = dict.fromkeys(TOPICS, 0)
        self.open()
        self.check()
        for group in GROUPS:  # what was under way may have happened
            self.attempted[group] = []
        self.world.auto = False

    # --- what must hold -----------------------------------------------------------------------------------------------

    def check(self) -> None:
        client = self.world.client()
        assert all(stray.startswith(COMERS) for stray in self.world.cluster.directory.opening.strays)
        for name in COMERS:
            self.check_topic(client, name)
        for topic in TOPICS:
            found = dict(client.read_all(topic))
            assert list(found) == list(range(len(found))), "offsets have no gaps"
            for offset, value in self.produced[topic].items():
                assert found.get(offset) == value, f"{topic}: offset {offset} of {len(found)} was acknowledged"
            self.produced[topic] = {offset: value or b"" for offset, value in found.items()}
        for group in GROUPS:
            self.check_group(client, group)

    def check_topic(self, client: Client, name: str) -> None:
        found = name in self.world.cluster.directory.topics
        if self.under_way.get(name) is None:
            assert found == self.exists[name], f"{name} was said to be {'there' if self.exists[name] else 'gone'}"
            if found:
                listed = client.ask(list_offsets, list_request(name, -1)).topics[0].partitions[0]
                assert listed.offset == self.filled[name]
        elif found != self.exists[name]:  # it was under way, and has happened
            self.filled[name] = 0
        self.exists[name] = found

    def check_group(self, client: Client, group: str) -> None:
        offset = client.offsets_of(group).get(("a", 0))
        known = self.committed.get(group)
        assert offset in {known, *self.attempted[group]}, f"{group}: {offset} was not what it was told"
        if offset is not None:
            self.committed[group] = offset
        member = self.members.get(group)
        if member is not None:
            assert client.heartbeat(group, member.member_id, member.generation_id) is ErrorCode.NONE
            assert client.sync(group, member).assignment == b"assigned"
            (described,) = client.ask(describe_groups, [DescribeGroup(None, group)], 5)
            assert [one.member_id for one in described.members] == [member.member_id]

    def stop(self) -> None:
        """In an orderly way: what is left needs no journal."""
        while self.world.flushes or self.world.background_tasks:
            self.flush()
            self.background_task()
        self.world.stop()
        assert not self.files.exists(JOURNAL_FILE)
        self.crash()


STEPS = st.lists(
    st.sampled_from(
        [
            *("produce a", "produce b", "commit g", "commit h", "enter h", "flush", "flush", "checkpoint", "crash"),
            *("make come", "make go", "make come", "fill come", "free come", "tasks", "cut", "stop"),
            *("burst", "burst", "burst", "clean", "clean", "clean", "background_task", "cut_background_task"),
        ]
    ),
    min_size=1,
    max_size=50,
)


SMALLS = st.sampled_from([0, 300, flush.SMALL, flush.SMALL])
"""A log with more bytes in a flush is synced in place: here mostly none."""
UNWRITTEN = st.sampled_from([0, 300, storage_files.MOST_UNWRITTEN])
"""Segments write at once, soon, or when they are read or synced."""
LONGS = st.sampled_from([0, 300, 1_000, flushing.LONG_JOURNAL])
"""The journal is dropped when it is longer: at once, soon, or by checkpoints alone."""


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(steps=STEPS, small=SMALLS, unwritten=UNWRITTEN, long=LONGS, data=st.data())
def test_everything_acknowledged_is_there_after_a_crash(
    steps: list[str], small: int, unwritten: int, long: int, data: st.DataObject
) -> None:
    """Rules 22 and C4, and acks=all: whatever was not synced may be there, in part, or not at all."""
    with (
        patch.object(flush, "SMALL", small),
        patch.object(storage_files, "MOST_UNWRITTEN", unwritten),
        patch.object(flushing, "LONG_JOURNAL", long),
    ):
        load = Load(data)
        for step in [*steps, "crash"]:
            name, _, what = step.partition(" ")
            getattr(load, name)(*([what] if what else []))
