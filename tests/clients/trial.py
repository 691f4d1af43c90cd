"""One group on one broker, put to the test: who is in it, what they read, and how it is judged in the end."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from apache_kafka import needs_apache_kafka
from clients.either import EitherBroker
from clients.harness import Crew, Member, Place
from clients.laws import check_laws
from clients.producing import Stream, Topics

__all__ = ["CASTS", "Cast", "Trial", "cooperative_only", "everywhere"]

OURS = "coterie"
SECONDS = 30


@dataclass(frozen=True)
class Cast:
    """Who is in the group beside our own members, and the assignor they agree on."""

    assignor: str
    others: tuple[str, ...] = ()


CASTS = {
    "ours-range": Cast("range"),
    "ours-cooperative": Cast("cooperative-sticky"),
    "mixed-range": Cast("range", ("java", "confluent", "kafka-python")),
    "mixed-cooperative": Cast("cooperative-sticky", ("java", "confluent", "kafka-python")),
}
BROKERS = ("coterie", "kafka")
ALL = "COTERIE_CONFORMANCE" in os.environ


def everywhere(*smoke: str, casts: tuple[str, ...] = tuple(CASTS)) -> pytest.MarkDecorator:
    """Every cast on every broker where COTERIE_CONFORMANCE is set, as `make conformance` does; else `smoke` alone."""
    names = [f"{broker}-{cast}" for broker in BROKERS for cast in casts]
    assert set(smoke) <= set(names), f"{smoke} are not among {names}"
    chosen = names if ALL else [name for name in names if name in smoke]
    params = [pytest.param(name, marks=_needs(name)) for name in chosen]
    why = pytest.mark.skip(reason="run by make conformance, on both brokers")
    return pytest.mark.parametrize("trial", params or [pytest.param(names[0], marks=why)], indirect=True)


def cooperative_only(*smoke: str) -> pytest.MarkDecorator:
    return everywhere(*smoke, casts=("ours-cooperative", "mixed-cooperative"))


def _needs(name: str) -> tuple[pytest.MarkDecorator, ...]:
    needs_java = name.startswith("kafka-") or "java" in CASTS[name.partition("-")[2]].others
    return (needs_apache_kafka,) if needs_java else ()


@dataclass
class Trial:
    broker: EitherBroker
    cast: Cast
    crew: Crew
    topics: Topics
    name: str
    told: dict[str, Any] = field(default_factory=dict)
    """What every member is told at its start."""

    def ours(self, **told: Any) -> Member:
        return self.start(OURS, **told)

    def others(self, **told: Any) -> list[Member]:
        return [self.start(library, **told) for library in self.cast.others]

    def start(self, library: str, **told: Any) -> Member:
        about = {"topics": [self.name], "assignor": self.cast.assignor, **self.told, **told}
        return self.crew.start(library, **about)

    @property
    def generation(self) -> int:
        return self.broker.facts.generation(self.name)

    def stream(self, places: set[Place]) -> Stream:
        return Stream(self.topics, places)

    def wait_until_read_on(self, places: set[Place]) -> None:
        """Until records that are produced after now were read, of each partition."""
        ends = self.topics.ends(places)

        def read() -> bool:
            seen = {
                (topic, partition, offset) for one in self.crew.members for topic, partition, offset, _ in one.consumed
            }
            return all((*place, end) in seen for place, end in ends.items())

        self.crew.wait_until(read, f"what comes after {ends} is read")

    def finish(self, places: set[Place]) -> None:
        """Nothing comes any more: all is read and committed, the laws were kept, and our members leave in order."""
        self.crew.wait_until_settled(places)
        self.topics.fill(places, 1)  # a commit that fell into a rebalance failed; with the next record it is made good
        self.crew.wait_until_committed(self.topics.ends(places))
        check_laws(self.crew, self.topics.of(places))
        for member in self.crew.present:
            if member.library == OURS:
                member.leave()

    @cached_property
    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.broker.bootstrap, "log_level": 0})

    def is_preparing(self) -> bool:
        """A rebalance is open: the broker waits for members to join."""
        described = self._admin.describe_consumer_groups([self.name])[self.name].result(SECONDS)
        return bool(described.state.name == "PREPARING_REBALANCING")

    def rebalance_while(self, holds: Callable[[], bool]) -> tuple[int, int]:
        """From when until when the rebalance that is about to begin was seen open, while `holds`."""
        self.crew.wait_until(self.is_preparing, "a rebalance is open")
        began_ms = ended_ms = _now_ms()
        while holds():
            asked_ms = _now_ms()
            if not self.is_preparing():
                break
            ended_ms = asked_ms
        return began_ms, ended_ms


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
