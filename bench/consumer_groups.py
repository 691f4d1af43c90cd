"""Consumer groups (KIP-848) of Coterie and of Apache Kafka 4.3.1, in one run. `make bench-consumer-groups` runs it.

    PYTHONPATH=tests .venv/bin/python bench/consumer_groups.py [--json FILE] [--only heartbeat large grown target]

Both brokers run at once, each on its defaults, and are loaded in turn. Kafka is warmed first. Four measurements:

heartbeat: CPU of a ConsumerGroupHeartbeat that changes nothing, one under way on each connection.
large: CPU of a group of 1 000 members with 1 000 partitions, from the first join until all is owned; then one member
    more, again until all is owned. Members have a connection each, and send one heartbeat in a pass.
grown: a topic of ten members of librdkafka grows from 100 to 1 000 partitions. Seconds until all are owned, in a
    classic group (cooperative-sticky, metadata refreshed every second) and in a consumer group.
target: a target for 1 000 members and 10 000 partitions, in this process: milliseconds on the thread that computes it
    and on the event loop, and how long another thread could not run meanwhile: by the clock, which also counts what
    other processes do, and at most, whatever else the machine does (`_longest_step`).
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from confluent_kafka import Consumer
from heartbeat import Link, closed_loop
from measured import Broker, Process, coterie_serve, quartiles, write_results

from apache_kafka import SERVER, ApacheKafka, why_not
from coordinator.consumer.group_world import GroupWorld
from coterie.client.admin import Admin
from coterie.client.admin.admin_types import NewTopic
from coterie.coordinator.consumer.target_assignment import ASSIGNORS, TargetComputation
from coterie.errors import ErrorCode
from coterie.protocol.apis import consumer_group_heartbeat, find_coordinator
from coterie.protocol.frames import request_frame
from coterie.protocol.messages import ConsumerGroupHeartbeat

AIMS = {"heartbeat": 0.6, "large": 1.0}
VERSION = 1
WARM_UP_S = 20.0
PATIENCE_S = 120.0
INTERVAL_S = 1.1
"""A little more than group.consumer.assignment.interval.ms."""


_LOADING = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}
"""Kafka's answers while it makes the topic of the groups: the next pass joins again."""


class Member:
    """A member that sends a heartbeat when it is told to."""

    def __init__(self, link: Link, group: str, name: str, topics: Sequence[str]) -> None:
        self.link, self.group, self.name, self.topics = link, group, name, topics
        self.epoch = 0
        self.owned: dict[UUID, Sequence[int]] = {}
        self._acknowledges = False

    def send(self) -> None:
        """Join, or send a heartbeat: with what it owns if that has changed."""
        request = consumer_group_heartbeat.Request(group_id=self.group, member_id=self.name, member_epoch=self.epoch)
        if not self.epoch:
            request.rebalance_timeout_ms, request.subscribed_topic_names = 60_000, list(self.topics)
            request.topic_partitions = []
        elif self._acknowledges:
            request.topic_partitions = [
                consumer_group_heartbeat.TopicPartitions(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in self.owned.items()
            ]
        self.link.send(consumer_group_heartbeat, request, VERSION)

    def leave(self) -> None:
        request = consumer_group_heartbeat.Request(group_id=self.group, member_id=self.name, member_epoch=-1)
        self.link.send(consumer_group_heartbeat, request, VERSION)

    def receive(self) -> None:
        answer = self.link.answer(consumer_group_heartbeat, VERSION)
        if answer.error in _LOADING and not self.epoch:
            return
        if answer.error:
            raise SystemExit(f"{self.group}: {self.name} was answered {answer.error.name}: {answer.message}")
        self.epoch = answer.member_epoch
        self._acknowledges = answer.assignment is not None
        if answer.assignment is not None:
            self.owned = {
                topic.topic_id: topic.partitions for topic in answer.assignment.topic_partitions if topic.topic_id
            }

    @property
    def count(self) -> int:
        return sum(map(len, self.owned.values()))


def one_round(members: Sequence[Member]) -> None:
    """Let each member send one heartbeat. Those of a connection are answered in order."""
    for member in members:
        member.send()
    for member in members:
        member.receive()


def until_owned(groups: Sequence[Sequence[Member]], partitions: int, *, after_epoch: int = 0) -> int:
    """Send passes of heartbeats until each group owns all its partitions, spread evenly, in one later epoch."""
    give_up = time.monotonic() + PATIENCE_S
    passes = 0
    while True:
        one_round([member for group in groups for member in group])
        passes += 1
        if all(_is_settled(group, partitions, after_epoch) for group in groups):
            return passes
        if time.monotonic() > give_up:
            raise SystemExit(f"not all partitions are owned after {passes} passes")
        time.sleep(INTERVAL_S)


def _is_settled(group: Sequence[Member], partitions: int, after_epoch: int) -> bool:
    counts, epochs = [member.count for member in group], {member.epoch for member in group}
    is_even = max(counts) <= -(-partitions // len(group))
    return is_even and sum(counts) == partitions and len(epochs) == 1 and min(epochs) > after_epoch


def prepare(broker: Broker, topic: str, partitions: int) -> None:
    """Create a topic, and the topic of the groups."""
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topics([NewTopic(topic, partitions)])
    finder = Link(broker.where)
    give_up = time.monotonic() + PATIENCE_S
    while True:
        finder.send(find_coordinator, find_coordinator.Request(keys=["g"]), 1)
        if not finder.answer(find_coordinator, 1).coordinators[0].error:
            break
        if time.monotonic() > give_up:
            raise SystemExit("there is no coordinator")
        time.sleep(0.2)
    finder.socket.close()


def compared(rows: Mapping[str, Sequence[float]], aim: float | None = None) -> dict[str, Any]:
    """Return the quartiles of both brokers, and of the ratio of neighbours."""
    ours, theirs = rows["coterie"], rows["kafka"]
    ratios = [mine / its for mine, its in zip(ours, theirs, strict=True)]
    found: dict[str, Any] = {
        "coterie": quartiles(ours),
        "kafka": quartiles(theirs),
        "ratio": round(statistics.median(ratios), 2),
        "ratio_quartiles": quartiles(ratios),
    }
    if aim is not None:
        found["aim"] = {"ratio": aim, "met": statistics.median(ratios) <= aim}
    return found


# --- heartbeat --------------------------------------------------------------------------------------------------------


def heartbeat_links(broker: Broker, connections: int) -> list[Link]:
    """Return connections of members of groups of ten, which are Stable, with their heartbeats."""
    prepare(broker, "beats", 10)
    links = [Link(broker.where) for _ in range(connections)]
    members = [Member(link, f"beats-{at // 10}", f"member-{at:032}", ["beats"]) for at, link in enumerate(links)]
    until_owned([members[first : first + 10] for first in range(0, connections, 10)], 10)
    one_round(members)
    for member in members:
        request = consumer_group_heartbeat.Request(
            group_id=member.group, member_id=member.name, member_epoch=member.epoch
        )
        body = consumer_group_heartbeat.write_request(request, VERSION)
        key = consumer_group_heartbeat.API.key
        member.link.beat = request_frame(key, VERSION, 0, "bench", body, flexible=True)
        member.link.socket.sendall(member.link.beat)
        member.link.expected = member.link.socket.recv(256)
    return links


def heartbeat(brokers: Mapping[str, Broker], connections: int, seconds: float, slices: int) -> dict[str, Any]:
    links = {"kafka": heartbeat_links(brokers["kafka"], connections)}
    closed_loop(links["kafka"], WARM_UP_S)
    links["coterie"] = heartbeat_links(brokers["coterie"], connections)
    closed_loop(links["coterie"], 1)
    cpu: dict[str, list[float]] = {name: [] for name in brokers}
    for _ in range(slices):
        for name, broker in brokers.items():
            before = broker.cpu_s()
            count = closed_loop(links[name], seconds)
            cpu[name].append((broker.cpu_s() - before) / count * 1e6)
    return {"connections": connections, "cpu_us": compared(cpu, AIMS["heartbeat"])}


# --- large ------------------------------------------------------------------------------------------------------------


def large_once(broker: Broker, members: int, number: int) -> tuple[float, float, int]:
    """Return milliseconds of CPU of a group from nothing, and of one member more; and all passes that it took."""
    links = [Link(broker.where) for _ in range(members + 1)]
    group = f"large-{number}"
    crowd = [Member(links[at], group, f"member-{at:032}", ["large"]) for at in range(members)]
    before = broker.cpu_s()
    passes = until_owned([crowd], members)
    settled = broker.cpu_s()
    crowd.append(Member(links[members], group, f"member-{members:032}", ["large"]))
    passes += until_owned([crowd], members, after_epoch=crowd[0].epoch)
    after = broker.cpu_s()
    for member in crowd:
        member.leave()
    for member in crowd:
        member.receive()
    for link in links:
        link.socket.close()
    return (settled - before) * 1e3, (after - settled) * 1e3, passes


def large(brokers: Mapping[str, Broker], members: int, runs: int) -> dict[str, Any]:
    for broker in brokers.values():
        prepare(broker, "large", members)
    for number in range(3):
        large_once(brokers["kafka"], members, -number - 1)
    rows: dict[str, list[tuple[float, float, int]]] = {name: [] for name in brokers}
    for number in range(runs):
        for name, broker in brokers.items():
            rows[name].append(large_once(broker, members, number))
    return {
        "members": members,
        "partitions": members,
        "passes": {name: [row[2] for row in found] for name, found in rows.items()},
        "from_nothing_cpu_ms": compared({name: [row[0] for row in rows[name]] for name in rows}, AIMS["large"]),
        "one_more_cpu_ms": compared({name: [row[1] for row in rows[name]] for name in rows}, AIMS["large"]),
    }


# --- grown ------------------------------------------------------------------------------------------------------------

CLASSIC = {"partition.assignment.strategy": "cooperative-sticky", "topic.metadata.refresh.interval.ms": 1_000}
PROTOCOLS: Mapping[str, Mapping[str, Any]] = {"classic": CLASSIC, "consumer": {"group.protocol": "consumer"}}


def grown_once(broker: Broker, protocol: str, number: int) -> tuple[float, float]:
    """Return seconds until ten members own 900 partitions more, and the broker's CPU until then, in milliseconds."""
    name = f"grown-{protocol}-{number}"
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": name, "enable.auto.commit": False, "log_level": 3}
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topics([NewTopic(name, 100)])
        consumers = [Consumer({**settings, **PROTOCOLS[protocol]}) for _ in range(10)]
        for consumer in consumers:
            consumer.subscribe([name])
        _until_all_own(consumers, 100)
        before, began = broker.cpu_s(), time.monotonic()
        admin.create_partitions({name: 1_000})
        _until_all_own(consumers, 1_000)
        took = time.monotonic() - began, (broker.cpu_s() - before) * 1e3
        for consumer in consumers:
            consumer.close()
        admin.delete_topics([name])
    return took


def _until_all_own(consumers: Sequence[Consumer], partitions: int) -> None:
    give_up = time.monotonic() + PATIENCE_S
    while True:
        for consumer in consumers:
            consumer.poll(0)
        owned = [(each.topic, each.partition) for consumer in consumers for each in consumer.assignment()]
        if len(owned) == len(set(owned)) == partitions:
            return
        if time.monotonic() > give_up:
            raise SystemExit(f"{len(owned)} of {partitions} partitions are owned")
        time.sleep(0.02)


def grown(brokers: Mapping[str, Broker], runs: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for protocol in PROTOCOLS:
        rows: dict[str, list[tuple[float, float]]] = {name: [] for name in brokers}
        for number in range(runs):
            for name, broker in brokers.items():
                rows[name].append(grown_once(broker, protocol, number))
        found[protocol] = {
            "seconds": compared({name: [row[0] for row in rows[name]] for name in rows}),
            "cpu_ms": compared({name: [row[1] for row in rows[name]] for name in rows}),
        }
    return found


# --- target -----------------------------------------------------------------------------------------------------------


def target(members: int = 1_000, partitions: int = 10_000, topics: int = 10) -> dict[str, Any]:
    """Return milliseconds of a target from nothing, and of one for a member more."""
    gc.freeze()
    gc.set_threshold(100_000, 20, 50)  # as in `coterie serve`
    names = [f"t{number}" for number in range(topics)]
    world = GroupWorld({"group_consumer_assignment_interval_ms": 1_000}, **dict.fromkeys(names, partitions // topics))
    found: dict[str, Any] = {"members": members, "partitions": partitions, "topics": topics}
    for number in range(members):
        _joins(world, number, names)
        if not number:  # the target of the first member alone
            world.world.send(world.world.computations[-1].then.compute(ASSIGNORS["uniform"], is_kafkas=True))
    for what in ("from_nothing", "one_more"):
        world.world.advance(2_000)
        before = time.thread_time()
        _joins(world, members + (what == "one_more"), names)
        loop_ms = (time.thread_time() - before) * 1e3
        asked: TargetComputation = world.world.computations[-1].then
        step_ms = _longest_step(asked)
        thread_ms, held_ms = _computed(asked)
        before = time.thread_time()
        world.world.send(asked)
        loop_ms = max(loop_ms, (time.thread_time() - before) * 1e3)
        found[what] = {
            "thread_ms": round(thread_ms, 1),
            "event_loop_at_a_time_ms": round(loop_ms, 1),
            "other_thread_held_ms": round(held_ms, 1),
            "other_thread_held_at_most_ms": round(sys.getswitchinterval() * 1e3 + step_ms, 1),
        }
    return found


def _joins(world: GroupWorld, number: int, names: Sequence[str]) -> None:
    name = f"member-{number:032}"
    request = ConsumerGroupHeartbeat(world.world.token(), "g", name, 0, rebalance_timeout_ms=60_000, topics=names)
    request.owned = {}
    world.world.send(request)


def _longest_step(asked: TargetComputation) -> float:
    """Return the most CPU of the computation between two calls or returns of functions, in milliseconds.

    A thread that waits for the GIL gets it when its interval is over and the other has ended the step that it is in, or
    earlier, in a loop. The CPU of a thread does not depend on what else the machine does. Of three times the least,
    since interrupts count.
    """

    def longest() -> float:
        most, last = 0.0, time.thread_time()

        def note(*_: object) -> None:
            nonlocal most, last
            now = time.thread_time()
            most, last = max(most, now - last), now

        sys.setprofile(note)
        asked.compute(ASSIGNORS[asked.assignor], is_kafkas=True)
        sys.setprofile(None)
        return most * 1e3

    return min(longest() for _ in range(3))


def _computed(asked: TargetComputation) -> tuple[float, float]:
    """Compute on a thread; return its CPU, and the longest time that this one could not run, in milliseconds.

    Of seven times the median, since other processes hold both up.
    """
    took: list[float] = []
    held: list[float] = []

    def compute() -> None:
        before = time.thread_time()
        asked.compute(ASSIGNORS[asked.assignor], is_kafkas=True)
        took.append((time.thread_time() - before) * 1e3)

    for _ in range(7):
        thread = threading.Thread(target=compute)
        thread.start()
        longest, last = 0.0, time.perf_counter()
        while thread.is_alive():
            time.sleep(0.0005)
            now = time.perf_counter()
            longest, last = max(longest, now - last), now
        held.append(longest * 1e3)
    return statistics.median(took), statistics.median(held)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json")
    parser.add_argument("--connections", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=0.5, help="of a slice of heartbeats")
    parser.add_argument("--slices", type=int, default=30, help="of each broker")
    parser.add_argument("--members", type=int, default=1_000)
    parser.add_argument("--runs", type=int, default=5)
    what = ("heartbeat", "large", "grown", "target")
    parser.add_argument("--only", nargs="+", default=what, choices=what)
    options = parser.parse_args()
    if why_not():
        raise SystemExit(why_not())
    found: dict[str, Any] = {"load_before": round(os.getloadavg()[0], 1)}
    if "target" in options.only:
        found["target"] = target()
    with (
        ApacheKafka(flags=SERVER) as kafka,
        tempfile.TemporaryDirectory() as data,
        Process(coterie_serve("--data", f"{data}/data")) as ours,
    ):
        host, port = ours.ready()
        brokers = {"coterie": Broker(ours.pid, f"{host}:{port}"), "kafka": Broker(kafka.pid, kafka.bootstrap)}
        if "heartbeat" in options.only:
            found["heartbeat"] = heartbeat(brokers, options.connections, options.seconds, options.slices)
        if "large" in options.only:
            found["large"] = large(brokers, options.members, options.runs)
        if "grown" in options.only:
            found["grown"] = grown(brokers, options.runs)
    found["load_after"] = round(os.getloadavg()[0], 1)
    write_results(options.json, found)


if __name__ == "__main__":
    main()
