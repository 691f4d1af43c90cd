"""The misfortunes of a night: what is done to a group of real clients, and what a diagnosis must find in it.

A scene notes each thing it does: from when until when, and which causes a rebalance in that time has.
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
from coterie.diagnosis.detectors.members import LONGEST_SESSION_MS
from coterie.facts import Cause

SESSION_MS = 8_000
POLL_MS = 10_000
PATIENCE_S = 240.0

JOIN = {str(Cause.NEW_MEMBER)}
LEAVE = {str(Cause.MEMBER_LEFT)}
EXPIRE = {str(Cause.SESSION_EXPIRED)}
REJOIN = {str(Cause.LEADER_REJOINED), str(Cause.PROTOCOLS_CHANGED), str(Cause.SUBSCRIPTION_CHANGED)}
TAKE_OVER = {str(Cause.STATIC_MEMBER_REPLACED)}
JAVA = "java-consumer"
COOPERATIVE = "cooperative-sticky"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass
class Deed:
    """Something that was done: a rebalance that begins in its time has one of these causes, and this member."""

    what: str
    causes: set[str]
    client_id: str
    must: bool
    """Whether it causes a rebalance for certain."""
    from_ms: int
    to_ms: int = 1 << 62

    @property
    def is_end(self) -> bool:
        """Return whether a member went, so that a source which compares lists of members sees that one is missing."""
        return bool(self.causes & (LEAVE | EXPIRE))


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
    """Those that should own something now."""
    started: list[Member] = field(default_factory=list)
    is_cooperative: bool = False
    count: int = 0

    def start(self, library: str, client_id: str, **more: Any) -> Member:
        """Start a member and wait until the group has settled with it."""
        member = self.members[client_id] = self.begin(library, client_id, "joins", JOIN, **more)
        self.settle()
        return member

    def begin(
        self, library: str, client_id: str, what: str, causes: set[str], *, must: bool = True, **more: Any
    ) -> Member:
        """Start a process, which may become a member."""
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
        self.is_cooperative |= told["assignor"] == COOPERATIVE
        self.note(what, causes, client_id, must=must)
        directory = self.directory / f"{self.group}-{self.count}"
        directory.mkdir(parents=True)
        orders = Orders(bootstrap=self.bootstrap, group=self.group, client_id=client_id, **told)
        member = Member(library, orders, directory)
        self.started.append(member)
        return member

    def note(self, what: str, causes: set[str], client_id: str, *, must: bool = True) -> Deed:
        if self.deeds:
            self.deeds[-1].to_ms = min(self.deeds[-1].to_ms, now_ms())
        self.deeds.append(Deed(what, causes, client_id, must, now_ms()))
        return self.deeds[-1]

    def has_revoked(self, client_id: str, from_ms: int, to_ms: int) -> bool:
        """Return whether a member said that it gave up partitions, between two times."""
        return any(
            from_ms <= event["at_ms"] <= to_ms
            for member in self.started
            if member.client_id == client_id
            for event in member.events
            if event["event"] == "revoked"
        )

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
        for member in self.started:
            member.discard()
        for member in self.started:
            member.read()


# --- the scenes -------------------------------------------------------------------------------------------------------


def quiet(scene: Scene) -> None:
    """Members of all libraries join, read, commit and go: nothing is wrong with that."""
    libraries = ["coterie", "confluent", JAVA, *(["kafka-python"] if scene.protocol == "classic" else [])]
    for library in libraries:
        scene.start(library, f"a-{library}-member")
    for _ in range(10):
        scene.produce(16)
        scene.quiet(2)
    scene.leave(f"a-{JAVA}-member")
    scene.quiet(2)


def crash(scene: Scene) -> None:
    scene.start("confluent", "one")
    scene.start("coterie", "two")
    scene.kill("one")


def crash_java(scene: Scene) -> None:
    scene.start(JAVA, "one")
    scene.start(JAVA, "two")
    scene.kill("one")


def cooperative(scene: Scene) -> None:
    """Each join is followed up by a second rebalance, in which the new member gets what the others gave up."""
    scene.start(JAVA, "one", assignor=COOPERATIVE)
    scene.start("coterie", "two", assignor=COOPERATIVE)
    scene.start("confluent", "three", assignor=COOPERATIVE)
    scene.quiet(3)
    scene.leave("two")


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


def slow_java(scene: Scene) -> None:
    scene.start(JAVA, "one")
    scene.start(JAVA, "two", slow_ms=POLL_MS + 8_000)
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
    deploy(scene, "coterie")


def rolling_deployment_java(scene: Scene) -> None:
    deploy(scene, JAVA)


def deploy(scene: Scene, library: str) -> None:
    names = ["one", "two", "three"]
    for name in names:
        scene.start(library, name)
    for name in names:
        scene.leave(name)
        scene.start(library, name)


def duplicate_instance_id(scene: Scene) -> None:
    duplicate(scene, "confluent", "coterie")


def duplicate_instance_id_java(scene: Scene) -> None:
    duplicate(scene, JAVA, JAVA)


def duplicate(scene: Scene, first: str, second: str) -> None:
    """Start a second process with the instance id of a living one: it takes over; in a consumer group it is refused."""
    scene.start("coterie", "one")
    scene.start(first, "two", instance_id="same")
    if scene.protocol == "consumer":
        scene.begin(second, "three", "is refused", set(), must=False, instance_id="same")
        scene.quiet(LONGEST_SESSION_MS / 1_000 + 6)  # by then a dead member would have been removed
        return
    taking = scene.begin(second, "three", "takes over", TAKE_OVER, must=False, instance_id="same")
    scene.members.pop("two")
    scene.members["three"] = taking
    scene.settle()
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
    finds: Mapping[str, set[str] | None]
    """What a diagnosis with all sources must find, and about whom; None if that is not checked."""
    may: set[str] = field(default_factory=set)
    """What else may be said about it: true, and not the point."""
    vague: set[str] = field(default_factory=set)
    """What a source that knows less may say."""
    topics: Mapping[str, int] = field(default_factory=lambda: {"t": 4})
    protocols: tuple[str, ...] = ("classic",)


BOTH = ("classic", "consumer")
ABSENT = {"unexplained-absence"}
TWO_TOPICS = {"t": 4, "u": 4}
THREE = {"one", "two", "three"}
SCENES: Mapping[str, Plan] = {
    "quiet": Plan(quiet, {}, topics={"t": 8}, protocols=BOTH),
    "cooperative": Plan(cooperative, {}, topics={"t": 6}),
    "crash": Plan(crash, {"crash": {"one"}}, protocols=BOTH),
    "crash-java": Plan(crash_java, {"crash": {"one"}}, protocols=BOTH),
    "pauses": Plan(pauses, {"heartbeat-lost": {"two"}}, {"session-timeout-too-short"}, ABSENT, protocols=BOTH),
    "slow": Plan(slow_processing, {"slow-processing": {"two"}}, vague=ABSENT, protocols=BOTH),
    "slow-java": Plan(slow_java, {"slow-processing": {"two"}}, vague=ABSENT, protocols=BOTH),
    "slow-without-a-reason": Plan(slow_without_a_reason, {"slow-processing": {"two"}}),
    "flapping": Plan(flapping, {"flapping-member": {"two"}}, protocols=BOTH),
    "deployment": Plan(rolling_deployment, {"rolling-deployment": THREE}, protocols=BOTH),
    "deployment-java": Plan(rolling_deployment_java, {"rolling-deployment": THREE}, protocols=BOTH),
    "duplicate": Plan(duplicate_instance_id, {"duplicate-instance-id": {"same"}}),
    "duplicate-java": Plan(duplicate_instance_id_java, {"duplicate-instance-id": {"same"}}, protocols=BOTH),
    "slow-joiner": Plan(slow_joiner, {"slow-joiner": {"one"}}),
    "subscriptions": Plan(
        different_subscriptions, {"different-subscriptions": None}, {"skewed-assignment"}, topics=TWO_TOPICS
    ),
    "skewed": Plan(skewed, {"skewed-assignment": None}, topics={"s1": 3, "s2": 3, "s3": 3}),
    "idle": Plan(idle, {"idle-members": None}, topics={"t2": 2}),
    "lag": Plan(lag_without_members, {"lag-without-members": None}, protocols=BOTH),
    "unread": Plan(unread_topic, {"unread-topic": None}, topics=TWO_TOPICS),
    "autoscaler": Plan(autoscaler, {"autoscaler-storm": None}),
    "coordinator-moved": Plan(skewed, {"coordinator-moved": None}),
    "loop": Plan(rebalance_loop, {"rebalance-loop": {"two"}}, {"different-subscriptions"}, topics=TWO_TOPICS),
}
