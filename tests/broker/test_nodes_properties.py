"""Whatever happens to leaders: everybody is answered once, what was acknowledged stays, epochs never fall.

A story is any order of produces, commits, fetches that wait, moves, nodes that stop and start, and a disk that takes
its time, refuses, and is cut off at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.cluster_world import Three
from broker.driver import Client
from broker.lossy import LossyFiles
from coterie.errors import ErrorCode
from coterie.storage import File, Sync

PARTITIONS = 4
GROUPS = ("g", "h", "i")
MAY_BE_WRITTEN = {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}
REFUSED = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.REQUEST_TIMED_OUT,
}


class Disk(LossyFiles):
    """It refuses to sync while it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.is_broken = False

    def open(self, path: str, *, create: bool = False) -> File:
        return _Breakable(self, super().open(path, create=create))  # type: ignore[return-value]


class _Breakable:
    def __init__(self, disk: Disk, file: File) -> None:
        self._disk = disk
        self._file = file

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)

    def sync(self) -> None:
        self.later().run()

    def later(self) -> Sync:
        return _BreakableSync(self._disk, self._file.later())


class _BreakableSync:
    def __init__(self, disk: Disk, sync: Sync) -> None:
        self._disk = disk
        self._sync = sync

    def run(self) -> None:
        if self._disk.is_broken:
            raise OSError(5, "broken disk")
        self._sync.run()


@dataclass
class Story:
    disk: Disk = field(default_factory=Disk)
    number: int = 0
    produced: list[tuple[Client, int, bytes]] = field(default_factory=list)
    commits: list[tuple[Client, str, int]] = field(default_factory=list)
    fetches: list[Client] = field(default_factory=list)
    epochs: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.world = Three(self.disk, {"log.segment.bytes": 1 << 20})
        client = self.world.client()
        client.find_coordinator()
        client.create("t", PARTITIONS)
        self.world.auto = False

    # --- steps --------------------------------------------------------------------------------------------------------

    def produce(self, partition: int, node: int) -> None:
        """To whoever leads, or to somebody."""
        leader = self.world.leader("t", partition)
        client = self.world.client(leader if leader > 0 else node)
        self.number += 1
        value = b"%d" % self.number
        client.send_produce("t", value, partition=partition, timeout_ms=3_600_000)
        self.produced.append((client, partition, value))

    def commit(self, group: str, node: int) -> None:
        there = self.world.coordinator(group)
        client = self.world.client(there if there > 0 else node)
        self.number += 1
        client.send_commit(group, {("t", 0): self.number})
        self.commits.append((client, group, self.number))

    def fetch(self, partition: int, node: int) -> None:
        client = self.world.client(node)
        client.send_fetch("t", 0, partition=partition, min_bytes=1 << 30, max_wait_ms=30_000)
        self.fetches.append(client)

    def move(self, partition: int, node: int) -> None:
        self.world.move("t", partition, node)

    def move_group(self, group: str, node: int) -> None:
        self.world.move_coordinator(group, node)

    def stop(self, node: int) -> None:
        self.world.stop_node(node)

    def start(self, node: int) -> None:
        self.world.start_node(node)

    def flush(self, breaks: bool, ahead: int) -> None:
        self.disk.is_broken = breaks
        self.world.flush(ahead)
        self.disk.is_broken = False
        self.look()

    def advance(self, ms: int) -> None:
        self.world.advance(ms)

    def look(self) -> None:
        for key, state in self.world.cluster.leadership.partition_states.items():
            seen = (state.leader_epoch, state.leader)
            before = self.epochs.get(key, seen)
            assert before[0] <= state.leader_epoch, "epochs never fall"
            assert before == seen or before[0] < state.leader_epoch, "and rise with every new leader"
            self.epochs[key] = seen

    # --- the end ------------------------------------------------------------------------------------------------------

    def heal(self) -> None:
        """The disk works, all nodes are up, and time goes by until nobody waits any more."""
        self.world.auto = True
        self.world.flush_all()
        for node in (1, 2, 3):
            if node not in self.world.cluster.leadership.up:
                self.world.start_node(node)
        for _ in range(40):
            self.world.advance(1_000)
        self.look()

    def judge(self, world: Three) -> None:
        """Of this world, or of the one that finds what this left behind."""
        kept = {
            number: [value for _, value in world.of_leader("t", number).read_all("t", number)]
            for number in range(PARTITIONS)
        }
        sent = {(partition, value) for _, partition, value in self.produced}
        acknowledged = {(partition, value) for partition, value in self.told()}
        found = [(number, value) for number, values in kept.items() for value in values]
        assert len(found) == len(set(found)), "nothing is there twice"
        assert acknowledged <= set(found) <= sent
        for group in GROUPS:
            offset = world.of_coordinator(group).offsets_of(group).get(("t", 0), 0)
            last = max((number for known, number, error in self.answered if known == group and not error), default=0)
            maybe = {number for known, number, error in self.answered if known == group and error in MAY_BE_WRITTEN}
            assert offset == last or (offset in maybe and offset > last), f"{group}: {offset}, acknowledged {last}"

    def told(self) -> list[tuple[int, bytes]]:
        return self._told

    def collect(self) -> None:
        """Everybody has been answered, once."""
        self._told: list[tuple[int, bytes]] = []
        self.answered: list[tuple[str, int, ErrorCode]] = []
        for client, partition, value in self.produced:
            assert client.answers == 1, f"the produce of {value!r} has {client.answers} answers"
            error = client.produced().error
            assert not error or error in REFUSED, error
            if not error:
                self._told.append((partition, value))
        for client, group, number in self.commits:
            assert client.answers == 1, f"the commit of {number} has {client.answers} answers"
            (error,) = client.committed()
            assert not error or error in REFUSED, error
            self.answered.append((group, number, error))
        assert [client.answers for client in self.fetches] == [1] * len(self.fetches)


NODE, PARTITION, GROUP = st.integers(1, 3), st.integers(0, PARTITIONS - 1), st.sampled_from(GROUPS)
STEPS: st.SearchStrategy[tuple[Callable[..., None], tuple[object, ...]]] = st.one_of(
    st.tuples(st.just(Story.produce), st.tuples(PARTITION, NODE)),
    st.tuples(st.just(Story.commit), st.tuples(GROUP, NODE)),
    st.tuples(st.just(Story.fetch), st.tuples(PARTITION, NODE)),
    st.tuples(st.just(Story.move), st.tuples(PARTITION, NODE)),
    st.tuples(st.just(Story.move_group), st.tuples(GROUP, NODE)),
    st.tuples(st.just(Story.stop), st.tuples(NODE)),
    st.tuples(st.just(Story.start), st.tuples(NODE)),
    st.tuples(st.just(Story.flush), st.tuples(st.sampled_from([False, False, False, True]), st.integers(1, 3))),
    st.tuples(st.just(Story.flush), st.tuples(st.just(False), st.integers(1, 3))),
    st.tuples(st.just(Story.advance), st.tuples(st.sampled_from([1, 600, 6_000]))),
)


@settings(max_examples=100, deadline=None)
@given(st.lists(STEPS, max_size=40), st.data())
def test_everybody_is_answered_once_and_what_was_acknowledged_outlives_moves_and_power_cuts(
    steps: list[tuple[Callable[..., None], tuple[object, ...]]], data: st.DataObject
) -> None:
    story = Story()
    for step, arguments in steps:
        step(story, *arguments)
    story.heal()
    story.collect()
    story.judge(story.world)

    left = story.disk.crash(lambda most: data.draw(st.integers(0, most)))
    story.world.cluster.directory.release()
    again = Three(left, now_ms=story.world.now_ms + 1)
    story.judge(again)
    for key, (epoch, leader) in story.epochs.items():
        state = again.cluster.leadership.partition_states[key]
        assert state.leader_epoch == epoch + (state.leader != leader)
