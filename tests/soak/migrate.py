"""Move a Coterie broker under load to three brokers of Apache Kafka, with kills in between.

    make migrate-soak
    python tests/soak/migrate.py --kills 2 --seed 1

Plain, transactional and compacted topics are written all the time, and a group of three client libraries reads one of
them. `coterie migrate` is killed in the middle of its work and started again. The group is stopped on the source when
the copy is under way, and started on the target when `coterie migrate status` says so. Then the producers stop, too.
Held at the end:

- every partition has the same records in the same order in both clusters: timestamp, key, value, headers;
- the offsets of all groups name the same records in both clusters;
- the group has read every record; those that it has read twice are counted;
- a Spark query goes on in the target with its checkpoint, and reads every record once.

Then Apache Kafka is moved to Apache Kafka, both with TLS and SASL, by `coterie migrate --spark`, which is killed and
started again. The same is held.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from apache_kafka import why_not
from clients.libraries import TESTS
from coterie import Admin, Broker, Consumer, NewTopic, OffsetAndMetadata, Producer, TopicPartition, checked
from coterie.client.types import Record
from secured_kafka import SHARED, USERS, SecuredKafka
from soak.cluster import Member
from soak.kafka_cluster import KafkaCluster

COTERIE = [sys.executable, "-m", "coterie", "migrate"]
SETTINGS = {"group.initial.rebalance.delay.ms": "0", "log.cleaner.backoff.ms": "500"}
PATIENCE_S = 120.0
ORDERS, BILLS, PRICES = "orders", "bills", "prices"
COMPACTED = {"cleanup.policy": "compact", "segment.ms": "300", "min.cleanable.dirty.ratio": "0.1"}
TOPICS = (
    NewTopic(ORDERS, 4, configs={"retention.ms": "864000000"}),
    NewTopic(BILLS, 2),
    NewTopic(PRICES, 2, configs=COMPACTED),
)
READERS = ("slow", "quick")
"""Groups that only commit: one far behind, and one at the end."""
KINDS = ("coterie", "confluent", "kafka-python")
MIXED = "mixed"

Contents = Mapping[TopicPartition, Sequence[Record]]


# --- the load ---------------------------------------------------------------------------------------------------------


class Traffic(threading.Thread):
    """Writes all topics and commits for some groups, until it is told to stop."""

    def __init__(self, bootstrap: str, rng: Random, pause_s: float) -> None:
        super().__init__(daemon=True)
        self._where = {"bootstrap.servers": bootstrap}
        self._rng = rng
        self._pause_s = pause_s
        self._stop_it = threading.Event()
        self.orders: set[str] = set()
        """The values that were written to the topic of orders."""
        self.turns = 0

    def run(self) -> None:
        with (
            Producer(self._where) as plain,
            Producer(self._where, transactional_id="bills") as transactional,
            Admin(self._where) as admin,
        ):
            transactional.init_transactions()
            while not self._stop_it.wait(self._pause_s):
                self.turns += 1
                self._write(plain, transactional)
                self._commit(admin)

    def _write(self, plain: Producer, transactional: Producer) -> None:
        values = [f"order {self.turns}.{one}" for one in range(50)]
        for value in values:
            plain.send(ORDERS, value, key=value[-1], headers=[("turn", str(self.turns)), ("none", None), ("turn", "")])
        for one in range(20):
            price = None if self._rng.random() < 0.1 else f"price {self.turns}.{one}" * 5
            plain.send(PRICES, price, key=str(self._rng.randrange(50)))
        transactional.begin_transaction()
        for one in range(5):
            transactional.send(BILLS, f"bill {self.turns}.{one}", key=str(one), timestamp=1_700_000_000_000 + one)
        plain.flush()
        transactional.flush()
        self.orders.update(values)
        if self._rng.random() < 0.3:
            transactional.abort_transaction()
        else:
            transactional.commit_transaction()

    def _commit(self, admin: Admin) -> None:
        ends = ends_of(admin)
        for group in READERS:
            part = 1.0 if group == "quick" else 0.5
            offsets = {one: OffsetAndMetadata(int(end * part), f"{group} {end}") for one, end in ends.items()}
            checked(admin.alter_group_offsets(group, offsets))

    def end(self) -> None:
        self._stop_it.set()
        self.join()


def ends_of(admin: Admin) -> dict[TopicPartition, int]:
    places = {TopicPartition(topic.name, one): -1 for topic in TOPICS for one in range(topic.partitions)}
    return {one: found.offset for one, found in checked(admin.list_offsets(places)).items()}


# --- the command ------------------------------------------------------------------------------------------------------


def run(source: str, target: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    command = [*COTERIE, *words, "--from", source, "--to", target]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def start(source: str, target: str, *words: str, stderr: int | None = None) -> subprocess.Popen[bytes]:
    return subprocess.Popen([*COTERIE, *words, "--from", source, "--to", target], stderr=stderr)


def kill_in_the_middle(source: str, target: str, wait_s: float, *words: str, look_at: str | None = None) -> int:
    """Start a copy, and kill it so long after it has begun to write. Returns how many offsets the target has."""
    with Admin(bootstrap_servers=look_at or target) as admin:
        before = _written(admin)
        copy = start(source, target, "--every", "0.5", *words)
        try:
            wait_until(lambda: _written(admin) > before, "the copy writes")
            time.sleep(wait_s)
        finally:
            copy.send_signal(signal.SIGKILL)
            copy.wait()
        return _written(admin)


def _written(admin: Admin) -> int:
    names = {one.name for one in admin.list_topics()}
    return sum(ends_of(admin).values()) if all(topic.name in names for topic in TOPICS) else 0


def wait_until(holds: Callable[[], bool], what: str, patience_s: float = PATIENCE_S) -> None:
    until = time.monotonic() + patience_s
    while not holds():
        assert time.monotonic() < until, f"waited {patience_s:.0f} s in vain: {what}"
        time.sleep(0.02)


# --- what is held -----------------------------------------------------------------------------------------------------


def contents(bootstrap: str, topics: Iterable[NewTopic] = TOPICS) -> Contents:
    """Read all committed records."""
    found: dict[TopicPartition, list[Record]] = {}
    settings = {"isolation.level": "read_committed", "auto.offset.reset": "earliest", "fetch.max.wait.ms": 50}
    with Consumer(settings, bootstrap_servers=bootstrap) as consumer:
        for place in [TopicPartition(topic.name, one) for topic in topics for one in range(topic.partitions)]:
            consumer.assign([place])
            end = consumer.end_offsets([place])[place]
            found[place] = []
            consumer.seek_to_beginning(place)
            while consumer.position(place) < end:
                found[place] += consumer.poll(0.1)
    return found


def kept(record: Record) -> tuple[object, ...]:
    return record.timestamp, record.key, record.value, record.headers


def record_differences(source: Contents, target: Contents) -> list[str]:
    """Compare records and their order. Of a compacted topic, the last record of each key counts."""
    found = []
    for place, records in source.items():
        here, there = [kept(one) for one in records], [kept(one) for one in target[place]]
        if place.topic == PRICES:
            here, there = _last_of_keys(records), _last_of_keys(target[place])
        if here != there:
            doubled = sum(count - 1 for count in Counter(map(repr, there)).values())
            found.append(f"{place}: {len(here)} records, {len(there)} in the target, {doubled} of them doubled")
    return found


def _last_of_keys(records: Sequence[Record]) -> list[tuple[object, ...]]:
    last = {one.key: one for one in records}
    return sorted((kept(one) for one in last.values() if one.value is not None), key=repr)


Offsets = Mapping[TopicPartition, OffsetAndMetadata | None]


def offset_differences(
    source: str, target: str, groups: Iterable[str], here: Contents, there: Contents
) -> tuple[int, list[str]]:
    """Compare what the committed offsets of groups name: the next record. Returns how many were compared, too."""
    compared, found = 0, []
    with Admin(bootstrap_servers=source) as from_, Admin(bootstrap_servers=target) as to:
        for group in groups:
            committed, translated = checked(from_.list_group_offsets(group)), checked(to.list_group_offsets(group))
            compared += len(committed)
            found += [f"{group} {one}" for one in wrong_offsets(committed, translated, here, there)]
    return compared, found


def wrong_offsets(committed: Offsets, translated: Offsets, here: Contents, there: Contents) -> list[str]:
    """Return the partitions in which the offsets do not name the same next record."""
    found = []
    for place, at in committed.items():
        copy = translated.get(place)
        assert at is not None
        ours = [kept(one) for one in here[place] if one.offset >= at.offset]
        copies = [kept(one) for one in there[place] if copy is not None and one.offset >= copy.offset]
        if place.topic == PRICES:  # each side has removed other records
            both = {kept(one) for one in here[place] if one.value} & {kept(one) for one in there[place]}
            ours, copies = [one for one in ours if one in both], [one for one in copies if one in both]
        if copy is None or ours != copies or copy.metadata != at.metadata:
            found.append(f"{place}: {at} has {len(ours)} records to read, {copy} in the target {len(copies)}")
    return found


# --- the run ----------------------------------------------------------------------------------------------------------


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


class MixedGroup:
    """Members of three client libraries in one group, and what they have read."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._members: list[Member] = []
        self._number = 0
        self.seen: Counter[str] = Counter()

    def start(self, bootstrap: str) -> None:
        self._number += 1
        self._members = [
            Member(kind, MIXED, self._number, bootstrap, self._directory, topics=[ORDERS]) for kind in KINDS
        ]

    def read(self) -> set[str]:
        """Read what members have said. Returns who owns partitions."""
        owners = set()
        for member in self._members:
            assert member.is_running, member.err.read_text()[-2000:]
            self._take(member)
            if member.owned:
                owners.add(member.kind)
        return owners

    def _take(self, member: Member) -> None:
        for event in member.events():
            if event["event"] == "consumed":
                self.seen.update(value for _, _, _, value in event["records"])
            elif event["event"] == "assigned":
                member.owned |= {(place[0], place[1]): event["at_ms"] for place in event["partitions"]}
            elif event["event"] in {"revoked", "lost"}:
                for topic, one in event["partitions"]:
                    member.owned.pop((topic, one), None)

    def stop(self) -> None:
        for member in self._members:
            member.end()
        for member in self._members:
            self._take(member)


def status_of(source: str, target: str) -> dict[str, dict[str, Any]]:
    done = run(source, target, "status", "-o", "json")
    assert done.returncode == 0, done.stderr
    return {row["name"]: row for row in json.loads(done.stdout)}


@dataclass
class Moved:
    """The offsets of the mixed group when it was between the clusters."""

    committed: Offsets
    translated: Offsets


def move(source: str, target: str, group: MixedGroup) -> Moved:
    """Stop the group on the source, and start it on the target when the command says so."""
    group.read()
    group.stop()
    say(f"the group is stopped on the source, having read {len(group.seen)} orders")
    wait_until(lambda: status_of(source, target)[MIXED]["next"] == "start it on the target", "the group can move")
    with Admin(bootstrap_servers=source) as from_, Admin(bootstrap_servers=target) as to:
        moved = Moved(checked(from_.list_group_offsets(MIXED)), checked(to.list_group_offsets(MIXED)))
    group.start(target)
    wait_until(lambda: len(group.read()) == len(KINDS), "every member has partitions on the target")
    say("the group runs on the target, with a member of each library")
    return moved


def soak(source: str, cluster: KafkaCluster, kills: int, rng: Random, directory: Path) -> list[str]:
    target = cluster.bootstrap
    with Admin(bootstrap_servers=source) as admin:
        checked(admin.create_topics(TOPICS))
    traffic, group = Traffic(source, rng, pause_s=0.02), MixedGroup(directory)
    traffic.start()
    group.start(source)
    wait_until(lambda: len(group.read()) == len(KINDS), "every member has partitions on the source")
    for _ in range(kills):
        written = kill_in_the_middle(source, target, rng.uniform(0, 2))
        say(f"killed: {traffic.turns} turns of the producers, {written} offsets in the target")
    copy = start(source, target, "--every", "0.5")
    try:
        wait_until(lambda: status_of(source, target)[ORDERS]["behind"] < 2_000, "the copy has caught up")
        before = group.seen.total() - len(group.seen)
        moved = move(source, target, group)
        cluster.nodes[2].kill()
        time.sleep(5)
        cluster.start(2)
        say("a broker of the target was killed and is back")
        traffic.end()
        wait_until(lambda: group.read() is not None and traffic.orders <= set(group.seen), "the group has read all")
        repeated = group.seen.total() - len(group.seen) - before
        say(f"the group has read all {len(traffic.orders)} orders; {repeated} were read twice since it has moved")
        step = status_of(source, target)[MIXED]["next"]
        group.stop()
        wait_until(lambda: status_of(source, target)[ORDERS]["behind"] == 0, "all is copied")
        time.sleep(2)  # it must not set back the group that has moved
    finally:
        copy.send_signal(signal.SIGTERM)
        code = copy.wait(PATIENCE_S)
    problems = [] if code == 0 else [f"the copy ended with {code}"]
    problems += [] if step == "moved" else [f"the group that runs on the target is said to be: {step}"]
    problems += [f"never written, but read: {one}" for one in set(group.seen) - traffic.orders]
    return problems + compared(source, target, moved)


def compared(source: str, target: str, moved: Moved) -> list[str]:
    """Let the last offsets be set, then compare both clusters, with and without the command's own comparison."""
    last = run(source, target, "--once")
    here, there = contents(source), contents(target)
    count, problems = offset_differences(source, target, READERS, here, there)
    problems += [f"{MIXED} {one}" for one in wrong_offsets(moved.committed, moved.translated, here, there)]
    count += len(moved.committed)
    with Admin(bootstrap_servers=target) as admin:
        ends = checked(admin.list_group_offsets(MIXED))
    left = {one: at for one, at in ends.items() if at is None or any(copy.offset >= at.offset for copy in there[one])}
    problems += [f"{MIXED} has read all, and is at {one} {at}" for one, at in left.items()]
    problems += record_differences(here, there)
    own = run(source, target, "verify")
    say(f"{sum(map(len, here.values()))} records and {count} offsets compared")
    say(f"coterie migrate verify:\n{own.stdout}{own.stderr}")
    problems += [f"coterie migrate ended with {one.returncode}: {one.stderr}" for one in (last, own) if one.returncode]
    return problems


# --- a Spark query ----------------------------------------------------------------------------------------------------

NUMBERS = "numbers"


def spark_moves(source: str, target: str, directory: Path) -> list[str]:
    """Move a streaming query, which is a member of a group, together with its checkpoint."""
    with Admin(bootstrap_servers=source) as admin:
        checked(admin.create_topics([NewTopic(NUMBERS, 2)]))
    with Producer(bootstrap_servers=source, transactional_id="numbers") as producer:
        for first, where in ((0, source), (100, target)):
            for number in range(first, first + 100):
                with producer.transaction():  # markers, so that offsets differ
                    producer.send(NUMBERS, str(number), partition=number % 2)
            copied = run(source, target, "--once", "--topic", NUMBERS, "--name", "coterie-migrate-numbers")
            assert copied.returncode == 0, copied.stderr
            job = [sys.executable, "-m", "spark.submitted_job", where, NUMBERS, str(directory)]
            workers = {**os.environ, "PYSPARK_PYTHON": sys.executable}
            done = subprocess.run(job, cwd=TESTS, env=workers, capture_output=True, text=True, timeout=300, check=False)
            assert done.returncode == 0, done.stderr[-4000:]
            last = run(source, target, "--once", "--topic", NUMBERS, "--name", "coterie-migrate-numbers")
            assert last.returncode == 0, last.stderr
    import pyarrow.parquet

    seen = Counter(pyarrow.parquet.read_table(directory / "out")["number"].to_pylist())
    say(f"a Spark query has read {len(seen)} numbers, half of them on the target; {seen.total() - len(seen)} twice")
    wrong = {one: seen[one] for one in range(200) if seen[one] != 1}
    return [f"numbers that the Spark query has not read once: {wrong}"] if wrong else []


# --- Kafka to Kafka, on Spark -----------------------------------------------------------------------------------------

BULK = 400_000
"""How many orders there are at first, so that a kill meets Spark at work."""
MODULES = {
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
}


def client_properties(kafka: SecuredKafka, mechanism: str, file: Path) -> Path:
    """Write the settings of a client of the listener SASL_SSL."""
    login = f'username="alice" password="{USERS["alice"]}"'
    settings = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f"{MODULES[mechanism]} required {login};",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(kafka.certificates.ca),
    }
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return file


def kafka_to_kafka(kills: int, rng: Random, directory: Path) -> list[str]:
    """Move one Apache Kafka to another by jobs of Spark. A login of the source ends every three seconds."""
    directory.mkdir()
    target = SecuredKafka({**SHARED, **SETTINGS})
    target.cluster_id = "VGhlIHRhcmdldCBpbiBhIA"  # both would have the same
    with SecuredKafka({**SHARED, **SETTINGS}) as source, target:
        here, there = source.address_of("PLAINTEXT"), target.address_of("PLAINTEXT")
        with Admin(bootstrap_servers=here) as admin:
            checked(admin.create_topics(TOPICS))
        with Producer(bootstrap_servers=here, linger_ms=5) as producer:
            for one in range(BULK):
                producer.send(ORDERS, f"bulk {one}", key=str(one))
        secured = [kafka.address_of("SASL_SSL") for kafka in (source, target)]
        files = [
            client_properties(kafka, mechanism, directory / mechanism)
            for kafka, mechanism in ((source, "SCRAM-SHA-256"), (target, "PLAIN"))
        ]
        words = ["--from-config", str(files[0]), "--to-config", str(files[1])]
        spark = ["--spark", "--master", "local[2]"]
        traffic = Traffic(here, rng, pause_s=0.05)
        traffic.start()
        for _ in range(kills):
            by_spark = [*words, *spark, "--spark-from", "1000"]
            written = kill_in_the_middle(secured[0], secured[1], rng.uniform(0, 2), *by_spark, look_at=there)
            say(f"killed: {written} offsets in the target")
        first = run(secured[0], secured[1], "--once", *words, *spark, "--spark-from", "100")
        say("".join(f"\n  {line}" for line in first.stderr.splitlines() if line.startswith("coterie:")))
        traffic.end()
        last = run(secured[0], secured[1], "--once", *words)
        ours, copies = contents(here), contents(there)
        count, problems = offset_differences(here, there, READERS, ours, copies)
        problems += record_differences(ours, copies)
        own = run(secured[0], secured[1], "verify", *words, *spark)
        say(f"{sum(map(len, ours.values()))} records and {count} offsets compared")
        say(f"coterie migrate verify --spark:\n{own.stdout}")
        if "records copied by Spark" not in first.stderr:
            problems.append("Spark has copied nothing")
        ended = [one for one in (first, last, own) if one.returncode]
        return problems + [f"coterie migrate ended with {one.returncode}: {one.stderr}" for one in ended]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=2)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--only", choices=["kafka-to-kafka"])
    options = parser.parse_args()
    if why_not():
        print(f"not run: {why_not()}")
        return 1
    say(f"seed {options.seed}")
    rng, problems = Random(options.seed), list[str]()
    with tempfile.TemporaryDirectory() as directory:
        if options.only is None:
            with KafkaCluster() as cluster, Broker(settings=SETTINGS) as broker:
                say("three brokers of Apache Kafka are up")
                problems += soak(broker.bootstrap_servers, cluster, options.kills, rng, Path(directory))
                problems += spark_moves(broker.bootstrap_servers, cluster.bootstrap, Path(directory, "spark"))
        say("Apache Kafka to Apache Kafka, on Spark")
        problems += kafka_to_kafka(options.kills, rng, Path(directory, "kafka"))
    for problem in problems[:20]:
        print(f"  {problem}")
    say(f"killed {options.kills} times: {len(problems)} problems")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
