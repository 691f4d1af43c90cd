"""A machine dies in the middle of transactions: each is seen as a whole or not at all, whatever the disk has kept."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.driver import World
from broker.lossy import LossyFiles, PowerCut
from broker.transaction_journal import Fate, Journal, Sent
from broker.transactional import QUICK, TransactionalClient
from coterie.errors import ErrorCode
from coterie.storage import LogConfig

IDS = ("a", "b")
PARTITIONS = 3
SMALL = LogConfig(segment_bytes=700, index_interval_bytes=100)
SETTINGS = {**QUICK, "offsets.topic.num.partitions": 2, "transaction.state.log.num.partitions": 2}


class TransactionalLoad:
    """Producers whose requests wait for a disk that may die at any moment."""

    def __init__(self, data: st.DataObject) -> None:
        self.data = data
        self.lives = 0
        self.files = LossyFiles()
        self.journals = {name: Journal(name) for name in IDS}
        self.positions = [0] * PARTITIONS
        self.open()

    def open(self) -> None:
        """Start, fence all producers, and look at what is there."""
        self.lives += 1
        self.world = World(self.files, SETTINGS, now_ms=1_000_000 * self.lives)
        admin = TransactionalClient(self.world)
        if self.lives == 1:
            admin.create("t", PARTITIONS)
            admin.find()
            admin.find_coordinator()
        for (topic, _), log in self.world.cluster.directory.logs.items():
            if topic == "t":
                log.config = SMALL
        self.clients = {name: TransactionalClient(self.world, name) for name in IDS}
        for client in self.clients.values():
            while (answer := client.init()).error:
                assert answer.error is ErrorCode.CONCURRENT_TRANSACTIONS
                self.world.advance(200)
        self.open_ones: dict[str, tuple[int, Sent]] = {}
        self.waiting: dict[str, Callable[[], None]] = {}
        self.check(admin)
        self.world.auto = False

    def check(self, reader: TransactionalClient) -> None:
        for partition in range(PARTITIONS):
            values, self.positions[partition] = reader.committed_from(self.positions[partition], partition)
            for value in values:
                for journal in self.journals.values():
                    journal.take(partition, value or b"")
        for name, journal in self.journals.items():
            offset, error = reader.fetch_offsets(name, stable=True)["t", 0]
            assert not error
            journal.check(offset)

    # --- steps --------------------------------------------------------------------------------------------------------

    def write(self, name: str) -> None:
        """Send a batch; the transaction begins with it, if there is none."""
        if name in self.waiting:
            return
        if name not in self.open_ones:
            self.open_ones[name] = self.journals[name].begin()
        number, sent = self.open_ones[name]
        client, partition = self.clients[name], self.data.draw(st.integers(0, PARTITIONS - 1))
        values = sent.values.setdefault(partition, set())
        value = self.journals[name].value(number, partition, len(values))
        values.add(value)
        sequence = client.sequences.get(("t", partition), 0)
        client.send_write(value, partition=partition)

        def written() -> None:
            answer = client.produced()
            assert not answer.error, answer
            client.sequences["t", partition] = sequence + 1

        self.waiting[name] = written

    def end(self, name: str) -> None:
        """Commit the offset of the transaction, and end it."""
        if name in self.waiting or name not in self.open_ones:
            return
        number, sent = self.open_ones.pop(name)
        client, commit = self.clients[name], self.data.draw(st.booleans())
        version = self.data.draw(st.sampled_from([4, 5]))
        self.world.auto = True
        assert client.commit_offsets({("t", 0): number}, name) == [ErrorCode.NONE]
        self.world.auto = False
        self.collect()
        sent.fate = Fate.COMMITTING if commit else Fate.ABORTED
        client.send_end(commit=commit, version=version)

        def ended() -> None:
            answer = client.ended()
            assert not answer.error, answer
            if commit:
                sent.fate = Fate.COMMITTED

        self.waiting[name] = ended

    def flush(self) -> None:
        if self.world.flushes:
            self.world.flush()
        else:
            self.world.advance(20)  # a produce that waits for the end of the transaction before
        self.collect()

    def collect(self) -> None:
        for name, then in list(self.waiting.items()):
            if self.clients[name].answers:
                del self.waiting[name]
                then()

    def cut(self) -> None:
        """The machine dies in the middle of a flush."""
        self.files.steps_left = self.data.draw(st.integers(0, 12))
        with suppress(PowerCut):
            self.flush()
        self.crash()

    def crash(self) -> None:
        self.files = self.files.crash(lambda most: self.data.draw(st.integers(0, most)))
        self.positions = [0] * PARTITIONS
        for journal in self.journals.values():
            journal.seen = {}
        self.open()


@settings(suppress_health_check=list(HealthCheck), deadline=None, max_examples=25)
@given(data=st.data())
def test_whenever_the_machine_dies_transactions_are_whole(data: st.DataObject) -> None:
    """TR3, TR5, TL3: the decision, the markers and the completion reach the disk in this order."""
    load = TransactionalLoad(data)
    steps: list[Callable[[], None]] = [
        *[lambda name=name: load.write(name) for name in IDS for _ in range(2)],
        *[lambda name=name: load.end(name) for name in IDS],
        *[load.flush] * 5,
        load.cut,
        load.crash,
    ]
    for step in data.draw(st.lists(st.sampled_from(range(len(steps))), min_size=15, max_size=60)):
        steps[step]()
    load.crash()
