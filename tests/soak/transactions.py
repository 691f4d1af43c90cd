"""`kill -9` in the middle of transactions, again and again: each is seen as a whole or not at all, with its offsets.

    make transactions-soak                                 300 kills
    PYTHONPATH=tests python tests/soak/transactions.py --kills 20 --seed 7

Three producers send raw requests of both versions of the protocol, and die themselves from time to time. A fourth is
librdkafka, which lives through all kills. Nothing may be seen of a transaction that was not committed, and all of one
whose commit was acknowledged. The offset that a transaction commits is its number: it must be that of the last
transaction of its producer that is seen.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from threading import Event, Thread

from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from apache_kafka import free_ports
from broker.peer import Peer, Serving
from broker.transaction_journal import Fate, Journal, Sent
from broker.transactional import TransactionalPeer
from coterie.client.admin import Admin
from coterie.errors import ErrorCode
from coterie.protocol.batch import batches
from coterie.protocol.records import records

__all__ = ["Outcome", "kill_again_and_again"]

PARTITIONS = 3
TELLS_EVERY = 10
PATIENCE_S = 120.0
SETTINGS = [
    "--set=group.initial.rebalance.delay.ms=0",
    "--set=offsets.topic.num.partitions=3",
    "--set=transaction.state.log.num.partitions=3",
    "--set=log.segment.bytes=1048576",
    "--set=transaction.abort.timed.out.transaction.cleanup.interval.ms=100",
]
RETRIED = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
    }
)


@dataclass(slots=True)
class Outcome:
    kills: int = 0
    committed: int = 0
    aborted: int = 0
    left_open: int = 0
    undecided: int = 0
    """Commits that were not answered."""
    undecided_and_seen: int = 0
    by_librdkafka: int = 0
    hangs_in: str = ""
    """The call in which librdkafka hangs, long after its timeout; then its last transaction is not decided.

    It does not look at the timeout of requests to a coordinator (confluentinc/librdkafka, issues 5456 and 5511).
    """
    start_s: list[float] = field(default_factory=list)


class RawProducer:
    """Sends requests of both versions, and leaves some transactions open."""

    def __init__(self, name: str, seed: int) -> None:
        self.journal = Journal(name)
        self._rng = Random(f"{name} {seed}")

    def fence(self, bootstrap: str) -> None:
        """Take the id over: what the last life left open is aborted, what it decided is completed."""
        with TransactionalPeer(bootstrap, self.journal.name) as peer:
            self._init(peer)

    def _init(self, peer: TransactionalPeer) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            peer.find()
            answer = peer.init(timeout_ms=60_000)
            if not answer.error:
                return
            assert answer.error in RETRIED and time.monotonic() < deadline, answer
            time.sleep(0.01)

    def run(self, bootstrap: str, stop: Event) -> None:
        try:
            while not stop.is_set():
                with TransactionalPeer(bootstrap, self.journal.name) as peer:
                    peer.find_coordinator()
                    self._init(peer)
                    for _ in range(self._rng.randrange(1, 30)):
                        if self._rng.random() < 0.05:
                            self._write(peer)
                            break  # the producer dies in the middle of it
                        self._transact(peer)
        except OSError:
            return  # the broker was killed

    def _write(self, peer: TransactionalPeer) -> Sent:
        number, sent = self.journal.begin()
        is_new = self._rng.random() < 0.5
        group = self.journal.name
        partitions = self._rng.sample(range(PARTITIONS), self._rng.randrange(1, PARTITIONS + 1))
        if not is_new:
            errors = peer.add(*[("t", partition) for partition in partitions])
            assert not any(errors.values()), errors
            assert not peer.add_offsets(group)
        for count in range(self._rng.randrange(1, 4)):
            for partition in partitions:
                value = self.journal.value(number, partition, count)
                sent.values.setdefault(partition, set()).add(value)
                answer = peer.write(value, partition=partition, version=12 if is_new else 11)
                assert not answer.error, answer
        errors_of_offsets = peer.commit_offsets({("t", 0): number}, group, version=5 if is_new else 4)
        assert errors_of_offsets == [ErrorCode.NONE], errors_of_offsets
        return sent

    def _transact(self, peer: TransactionalPeer) -> None:
        sent = self._write(peer)
        commit = self._rng.random() < 0.7
        sent.fate = Fate.COMMITTING if commit else Fate.ABORTED
        answer = peer.end(commit=commit, version=self._rng.choice([4, 5]))
        assert not answer.error, answer
        if commit:
            sent.fate = Fate.COMMITTED


class LibrdkafkaProducer:
    """A real client that lives through all kills; it makes another producer when it must."""

    def __init__(self, name: str, bootstrap: str, seed: int) -> None:
        self.journal = Journal(name)
        self._bootstrap = bootstrap
        self._rng = Random(f"{name} {seed}")
        self.problem: BaseException | None = None
        self.doing = "nothing yet"
        """The last call, and its last error."""
        self._called = 0.0

    @property
    def is_overdue(self) -> bool:
        """Return whether a call has not returned for a minute, although its timeout is five seconds."""
        return 0 < self._called < time.monotonic() - 60

    def wait_for_a_commit(self) -> None:
        """Wait for the first committed transaction: lives are short, and on a busy machine there may be none yet."""
        deadline = time.monotonic() + PATIENCE_S
        while not any(sent.fate is Fate.COMMITTED for sent in self.journal.sent):
            if self.is_overdue or self.problem is not None or time.monotonic() > deadline:
                return
            time.sleep(0.05)

    def run(self, stop: Event) -> None:
        try:
            while not stop.is_set():
                self._live(stop)
        except BaseException as problem:  # noqa: BLE001  raised again where it is seen
            self.problem = problem

    def _live(self, stop: Event) -> None:
        producer = Producer(
            {"bootstrap.servers": self._bootstrap, "transactional.id": self.journal.name, "log_level": 0}
        )
        consumer = ConfluentConsumer(
            {"bootstrap.servers": self._bootstrap, "group.id": self.journal.name, "log_level": 0}
        )
        try:
            self._patiently(producer.init_transactions)
            for _ in range(self._rng.randrange(5, 50)):
                if stop.is_set():
                    return
                self._transact(producer, consumer)
        except KafkaException:
            return  # another producer takes the id over
        finally:
            self.doing = "close"
            consumer.close()

    def _patiently(self, call: object, *arguments: object) -> None:
        began = time.monotonic()
        deadline = began + PATIENCE_S
        name = self.doing = str(getattr(call, "__name__", call))
        while True:
            self._called = time.monotonic()
            try:
                call(*arguments, 5.0)  # type: ignore[operator]
            except KafkaException as error:
                self.doing = f"{name} for {time.monotonic() - began:.0f} s: {error}"
                if error.args[0].retriable() and time.monotonic() < deadline:
                    continue
                raise
            finally:
                self._called = 0.0
            return

    def _transact(self, producer: Producer, consumer: ConfluentConsumer) -> None:
        number, sent = self.journal.begin()
        commit = self._rng.random() < 0.7
        try:
            producer.begin_transaction()
            for partition in range(PARTITIONS):
                value = self.journal.value(number, partition, 0)
                sent.values[partition] = {value}
                producer.produce("t", value, partition=partition, on_delivery=partial(_note, sent))
            offsets = [TopicPartition("t", 0, number)]
            self._patiently(producer.send_offsets_to_transaction, offsets, consumer.consumer_group_metadata())
            if commit:
                sent.fate = Fate.COMMITTING
                self._patiently(producer.commit_transaction)
                sent.fate = Fate.COMMITTED
                return
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
        sent.fate = Fate.ABORTED
        self._patiently(producer.abort_transaction)


def _note(sent: Sent, error: KafkaError | None, message: Message) -> None:
    partition = message.partition()
    assert partition is not None
    sent.delivered[partition] = message.offset() if error is None else error


def kill_again_and_again(data: Path, kills: int, seed: int, log: Path, *, tells: bool = False) -> Outcome:
    """Raises `AssertionError` at the first thing that is not as it was acknowledged."""
    rng = Random(seed)
    (port,) = free_ports(1)  # that no connection takes while the broker is away
    raw = [RawProducer(f"raw-{number}", seed) for number in range(3)]
    real = LibrdkafkaProducer("librdkafka", f"127.0.0.1:{port}", seed)
    positions = [0] * PARTITIONS
    outcome = Outcome()
    stop_real = Event()
    thread: Thread | None = None
    for life in range(kills + 1):
        began = time.perf_counter()
        with Serving(data, *SETTINGS, port=port, log=log) as broker:
            bootstrap = broker.ready()
            outcome.start_s.append(time.perf_counter() - began)
            if life == 0:
                with Peer(bootstrap) as peer:
                    peer.find_coordinator()
                    peer.create("t", PARTITIONS)
                thread = Thread(target=real.run, args=(stop_real,), name="librdkafka", daemon=True)  # it may hang
                thread.start()
            for producer in raw:
                producer.fence(bootstrap)
            if life == kills:
                assert thread is not None
                real.wait_for_a_commit()
                stop_real.set()
                deadline = time.monotonic() + 3 * PATIENCE_S  # a transaction has two calls, and an abort
                while thread.is_alive() and not real.is_overdue:
                    thread.join(1)
                    late = f"librdkafka has not ended its last transaction: {real.doing}"
                    assert time.monotonic() < deadline, late
                if thread.is_alive():
                    outcome.hangs_in = _state_of(real, bootstrap)
                if real.problem is not None:
                    raise real.problem
                RawProducer(real.journal.name, 0).fence(bootstrap)
            journals = [producer.journal for producer in raw]
            _check(bootstrap, journals, [*journals, real.journal], positions)
            if life < kills:
                _live(broker, bootstrap, raw, rng.uniform(0.05, 0.5))
                outcome.kills += 1
                if tells and outcome.kills % TELLS_EVERY == 0:
                    print(f"{outcome.kills} of {kills} kills, {sum(len(one.sent) for one in journals)} transactions")
            else:
                _check(bootstrap, [real.journal], [], positions)
                broker.signal()
                status, _ = broker.ended()
                assert status == 0, f"the last stop ended with {status}"
    said = log.read_text()
    assert "Traceback" not in said and "Mistake" not in said, said[-2_000:]
    _count(outcome, [*(producer.journal for producer in raw), real.journal])
    outcome.by_librdkafka = sum(sent.fate is Fate.COMMITTED for sent in real.journal.sent)
    return outcome


def _state_of(real: LibrdkafkaProducer, bootstrap: str) -> str:
    """Return what librdkafka does, and what the coordinator says of its transaction."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        described = admin.describe_transactions([real.journal.name])[real.journal.name]
    return f"it is in {real.doing}; the coordinator has {described}"


def _check(bootstrap: str, checked: list[Journal], readers: list[Journal], positions: list[int]) -> None:
    """Read on where the last life ended, and compare all that was seen with what was sent."""
    with TransactionalPeer(bootstrap) as peer:
        for partition in range(PARTITIONS):
            if not readers:
                continue
            end = peer.read_log(positions[partition], partition=partition, committed=False).high_watermark
            deadline = time.monotonic() + PATIENCE_S
            while positions[partition] < end:  # librdkafka may have a transaction open, which it will end
                values, positions[partition] = peer.committed_from(positions[partition], partition)
                for value in values:
                    for journal in readers:
                        journal.take(partition, value or b"")
                assert time.monotonic() < deadline, f"offset {positions[partition]} of {end} stays unstable"
                time.sleep(0.01)
        for journal in checked:
            offset, error = peer.fetch_offsets(journal.name, stable=True)["t", 0]
            assert not error, f"{journal.name}: {error.name}"
            try:
                journal.check(offset)
            except AssertionError as failed:
                raise AssertionError(f"{failed}\n{_in_the_log(peer, journal.name)}") from None


def _in_the_log(peer: TransactionalPeer, name: str) -> str:
    """Return all batches and markers of the producers with this name, committed or not: offset, ids, what it is."""
    rows: list[tuple[int, int, int, str]] = []
    producers: set[int] = set()
    for partition in range(PARTITIONS):
        at = 0
        while data := bytes(peer.read_log(at, partition=partition, committed=False).records or b""):
            for position, header in batches(data):
                at = header.next_offset
                (record, *_) = records(data, header, position)
                said = f"epoch {header.producer_epoch} sequence {header.base_sequence} {record.value!r}"
                if header.is_control:
                    ends = "abort" if (record.key or b"")[3:4] == bytes(1) else "commit"
                    said = f"epoch {header.producer_epoch} {ends}"
                elif (record.value or b"").startswith(f"{name}/".encode()):
                    producers.add(header.producer_id)
                rows.append((header.producer_id, partition, header.base_offset, said))
    mine = [row for row in rows if row[0] in producers]
    return "\n".join(f"partition {where} offset {at} producer {who} {said}" for who, where, at, said in mine)


def _live(broker: Serving, bootstrap: str, producers: list[RawProducer], seconds: float) -> None:
    stop = Event()
    problems: list[BaseException] = []

    def run(producer: RawProducer) -> None:
        try:
            producer.run(bootstrap, stop)
        except BaseException as problem:  # noqa: BLE001  raised again where it is seen
            problems.append(problem)

    threads = [Thread(target=run, args=(producer,), name=producer.journal.name) for producer in producers]
    for thread in threads:
        thread.start()
    stop.wait(seconds)
    broker.kill()
    stop.set()
    for thread in threads:
        thread.join()
    if problems:
        raise problems[0]


def _count(outcome: Outcome, journals: list[Journal]) -> None:
    for journal in journals:
        for number, sent in enumerate(journal.sent):
            outcome.committed += sent.fate is Fate.COMMITTED
            outcome.aborted += sent.fate is Fate.ABORTED
            outcome.left_open += sent.fate is Fate.OPEN
            outcome.undecided += sent.fate is Fate.COMMITTING
            outcome.undecided_and_seen += sent.fate is Fate.COMMITTING and bool(journal.seen.get(number))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    print(f"seed {options.seed}, {options.kills} kills", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        data, log = Path(directory, "data"), Path(directory, "log")
        outcome = kill_again_and_again(data, options.kills, options.seed, log, tells=True)
    print(
        f"{outcome.kills} kills; {outcome.committed} transactions committed ({outcome.by_librdkafka} by librdkafka), "
        f"{outcome.aborted} aborted, {outcome.left_open} left open, {outcome.undecided} not answered "
        f"({outcome.undecided_and_seen} of them committed); slowest start {max(outcome.start_s):.2f} s"
    )
    if outcome.hangs_in:
        print(f"librdkafka hangs: {outcome.hangs_in}")


if __name__ == "__main__":
    main()
