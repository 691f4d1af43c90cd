"""The misfortunes of a night: what is done to a group of real clients, and what a diagnosis must find in it.

A scene notes each thing it does: from when until when, and which causes a rebalance in that time may have.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from clients.harness import Member, wait_until
from clients.members.telling import Orders
from coterie import Consumer, Producer
from coterie.facts import Cause
from coterie.ledger.derived import DerivedCause

SESSION_MS = 8_000
POLL_MS = 10_000
PATIENCE_S = 240.0

JOIN = {str(Cause.NEW_MEMBER)}
LEAVE = {str(Cause.MEMBER_LEFT), str(DerivedCause.MEMBER_GONE)}
EXPIRE = {str(Cause.SESSION_EXPIRED), str(DerivedCause.MEMBER_GONE)}
REJOIN = {str(Cause.LEADER_REJOINED), str(Cause.PROTOCOLS_CHANGED), str(Cause.SUBSCRIPTION_CHANGED)}


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass
class Deed:
    """What was done: rebalances that begin in its time have one of these causes and members."""

    what: str
    causes: set[str]
    client_id: str
    from_ms: int
    to_ms: int = 1 << 62


@dataclass
class Scene:
    """One group, its members, and what was done to it."""

    bootstrap: str
    directory: Path
    group: str
    rng: Random
    topics: Mapping[str, int]
    protocol: str = "classic"
    deeds: list[Deed] = field(default_factory=list)
    members: dict[str, Member] = field(default_factory=dict)
    count: int = 0

    def start(self, library: str, client_id: str, *, waits: bool = True, **more: Any) -> Member:
        """Start a member and wait until the group has settled with it."""
        self.count += 1
        told: dict[str, Any] = {
            "topics": list(self.topics),
            "assignor": "range" if self.protocol == "classic" else "",
            "session_timeout_ms": SESSION_MS,
            "heartbeat_interval_ms": 1_000,
            "max_poll_interval_ms": POLL_MS,
            "protocol": self.protocol,
            **more,
        }
        self.note("joins", JOIN, client_id)
        directory = self.directory / f"{self.group}-{self.count}"
        directory.mkdir(parents=True)
        orders = Orders(bootstrap=self.bootstrap, group=self.group, client_id=client_id, **told)
        member = self.members[client_id] = Member(library, orders, directory)
        if waits:
            self.settle()
        return member

    def note(self, what: str, causes: set[str], client_id: str) -> Deed:
        if self.deeds:
            self.deeds[-1].to_ms = min(self.deeds[-1].to_ms, now_ms())
        self.deeds.append(Deed(what, causes, client_id, now_ms()))
        return self.deeds[-1]

    def settle(self, members: int | None = None) -> None:
        """Wait until all partitions have one owner, and so many members have some."""
        wanted = {(topic, number) for topic, count in self.topics.items() for number in range(count)}
        sharing = min(len(self.members) if members is None else members, max(self.topics.values()))

        def is_settled() -> bool:
            owned = [one.read().owned for one in self.members.values()]
            return (
                sum(map(len, owned)) == len(wanted)
                and set().union(*owned) == wanted
                and sum(map(bool, owned)) >= sharing
            )

        wait_until(is_settled, f"{self.group} has settled", self.said, PATIENCE_S)

    def said(self) -> str:
        return "\n".join(one.said() for one in self.members.values())

    def kill(self, client_id: str) -> None:
        self.note("crashes", EXPIRE, client_id)
        self.members.pop(client_id).kill()
        if self.members:
            self.settle()

    def leave(self, client_id: str) -> None:
        self.note("leaves", LEAVE, client_id)
        self.members.pop(client_id).leave()
        if self.members:
            self.settle()

    def pause(self, client_id: str) -> None:
        """Stop a process until its session has expired, and a little longer."""
        self.note("pauses", EXPIRE, client_id)
        paused = self.members.pop(client_id)
        paused.suspend()
        self.settle()
        self.note("is back", JOIN, client_id)
        paused.resume()
        self.members[client_id] = paused
        time.sleep(3)  # it has to notice that it was removed
        self.settle()

    def slow(self, client_id: str) -> None:
        """Let the processing of the next records take longer than max.poll.interval.ms."""
        self.note("is slow", LEAVE, client_id)
        slow = self.members.pop(client_id)
        before = len(slow.told("busy"))
        slow.is_next_slow()
        self.produce(40)
        wait_until(lambda: len(slow.told("busy")) > before, f"{client_id} is busy", self.said, PATIENCE_S)
        self.settle()
        self.note("is back", JOIN, client_id)
        self.members[client_id] = slow
        self.settle()

    def produce(self, count: int) -> None:
        with Producer(bootstrap_servers=self.bootstrap) as producer:
            for number in range(count):
                for topic in self.topics:
                    producer.send(topic, str(number), partition=number % self.topics[topic])

    def quiet(self, seconds: float) -> None:
        time.sleep(seconds)

    def end(self) -> None:
        for member in self.members.values():
            member.discard()


# --- the scenes -------------------------------------------------------------------------------------------------------


def quiet(scene: Scene) -> None:
    scene.start("coterie", "one")
    scene.start("confluent", "two")
    scene.quiet(15)
    scene.leave("two")


def crash(scene: Scene) -> None:
    scene.start("confluent", "one")
    scene.start("coterie", "two")
    scene.kill("one")


def pauses(scene: Scene) -> None:
    scene.start("coterie", "one")
    scene.start("coterie", "two")
    scene.pause("two")
    scene.quiet(scene.rng.uniform(1, 4))
    scene.pause("two")


def slow_processing(scene: Scene) -> None:
    scene.start("coterie", "one")
    scene.start("coterie", "two", slow_ms=POLL_MS + 8_000)
    scene.slow("two")


def slow_without_a_reason(scene: Scene) -> None:
    """kafka-python leaves without a reason."""
    scene.start("coterie", "one")
    scene.start("kafka-python", "two", slow_ms=POLL_MS + 8_000)
    for _ in range(2):
        scene.slow("two")
        scene.quiet(POLL_MS / 1_000)


def flapping(scene: Scene) -> None:
    scene.start("coterie", "one")
    for _ in range(4):
        scene.start("coterie", "two")
        scene.quiet(scene.rng.uniform(0.5, 2))
        scene.leave("two")


def rolling_deployment(scene: Scene) -> None:
    names = ["one", "two", "three"]
    for name in names:
        scene.start("coterie", name)
    for name in names:
        scene.leave(name)
        scene.start("coterie", name)


def duplicate_instance_id(scene: Scene) -> None:
    scene.start("coterie", "one")
    scene.start("confluent", "two", instance_id="same")
    scene.note("takes over", {str(Cause.STATIC_MEMBER_REPLACED), *JOIN, *REJOIN}, "three")
    scene.members.pop("two")
    scene.start("coterie", "three", instance_id="same")
    scene.quiet(3)


def slow_joiner(scene: Scene) -> None:
    scene.start("confluent", "one", max_poll_interval_ms=120_000, slow_ms=14_000)
    scene.members["one"].is_next_slow()
    scene.produce(20)
    wait_until(lambda: bool(scene.members["one"].told("busy")), "one is busy", scene.said, PATIENCE_S)
    scene.start("coterie", "two")


def different_subscriptions(scene: Scene) -> None:
    first, *_ = scene.topics
    scene.start("coterie", "one")
    scene.start("coterie", "two", topics=[first])


def skewed(scene: Scene) -> None:
    """Two members, nothing more: the topics make it a skewed assignment."""
    scene.start("coterie", "one")
    scene.start("coterie", "two")


def idle(scene: Scene) -> None:
    for name in ("one", "two", "three"):
        scene.start("coterie", name)


def lag_without_members(scene: Scene) -> None:
    scene.start("coterie", "one")
    scene.produce(8)
    wait_until(lambda: bool(scene.members["one"].told("committed")), "committed", scene.said, PATIENCE_S)
    scene.leave("one")
    scene.produce(20)


def unread_topic(scene: Scene) -> None:
    first, second = scene.topics
    scene.start("coterie", "one")
    scene.produce(8)
    wait_until(
        lambda: {second} <= {place[0] for told in scene.members["one"].told("committed") for place in told["offsets"]},
        "both topics are committed",
        scene.said,
        PATIENCE_S,
    )
    scene.leave("one")
    scene.topics = {first: scene.topics[first]}
    scene.start("coterie", "one")


def autoscaler(scene: Scene) -> None:
    scene.start("coterie", "base")
    for turn in range(3):
        pods = [f"pod-{turn}-{index}" for index in range(2)]
        for pod in pods:
            scene.start("coterie", pod)
        for pod in pods:
            scene.leave(pod)


def rebalance_loop(scene: Scene) -> None:
    """A member changes its subscription all the time."""
    first, second = scene.topics
    scene.start("coterie", "one")
    stop = threading.Event()
    scene.note("joins", JOIN, "two")
    settings = {"session_timeout_ms": SESSION_MS, "heartbeat_interval_ms": 1_000, "metadata_max_age_ms": 300_000}
    with Consumer(bootstrap_servers=scene.bootstrap, group_id=scene.group, client_id="two", **settings) as consumer:  # type: ignore[arg-type]
        for turn in range(8):
            consumer.subscribe([first] if turn % 2 else [first, second])
            until = time.monotonic() + 4
            while time.monotonic() < until and not stop.is_set():
                consumer.poll(0.2)
            if turn == 0:
                scene.note("changes its subscription", REJOIN, "two")
        scene.note("leaves", LEAVE, "two")
    scene.settle()


@dataclass(frozen=True)
class Plan:
    play: Callable[[Scene], None]
    finds: set[str]
    """What a diagnosis with all sources must find."""
    may: set[str] = field(default_factory=set)
    """What else may be said about it: true, and not the point."""
    topics: Mapping[str, int] = field(default_factory=lambda: {"t": 4})
    protocols: tuple[str, ...] = ("classic",)


BOTH = ("classic", "consumer")
SCENES: Mapping[str, Plan] = {
    "quiet": Plan(quiet, set(), protocols=BOTH),
    "crash": Plan(crash, {"crash"}, protocols=BOTH),
    "pauses": Plan(pauses, {"heartbeat-lost"}, {"session-timeout-too-short", "unexplained-absence"}, protocols=BOTH),
    "slow": Plan(slow_processing, {"slow-processing"}, {"unexplained-absence"}, protocols=BOTH),
    "slow-without-a-reason": Plan(slow_without_a_reason, {"slow-processing"}),
    "flapping": Plan(flapping, {"flapping-member"}, protocols=BOTH),
    "deployment": Plan(rolling_deployment, {"rolling-deployment"}, protocols=BOTH),
    "duplicate": Plan(duplicate_instance_id, {"duplicate-instance-id"}),
    "slow-joiner": Plan(slow_joiner, {"slow-joiner"}),
    "subscriptions": Plan(
        different_subscriptions, {"different-subscriptions"}, {"skewed-assignment"}, {"t": 4, "u": 4}
    ),
    "skewed": Plan(skewed, {"skewed-assignment"}, topics={"s1": 3, "s2": 3, "s3": 3}),
    "idle": Plan(idle, {"idle-members"}, topics={"t2": 2}),
    "lag": Plan(lag_without_members, {"lag-without-members"}, protocols=BOTH),
    "unread": Plan(unread_topic, {"unread-topic"}, topics={"t": 4, "u": 4}),
    "autoscaler": Plan(autoscaler, {"autoscaler-storm"}),
    "coordinator-moved": Plan(skewed, {"coordinator-moved"}, {"crash", "heartbeat-lost"}),
    "loop": Plan(rebalance_loop, {"rebalance-loop"}, {"different-subscriptions"}, {"t": 4, "u": 4}),
}
