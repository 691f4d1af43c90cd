"""Assignors of users in the broker: found by their entry points, asked on a thread, told the lag."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from importlib.metadata import EntryPoint, EntryPoints
from threading import Event
from typing import Any

import pytest

from broker.driver import Client, World
from broker.test_consumer_groups import ask, joins
from coterie.assignors import Assignment, Assignor, LagAware, Member, Topic, UnknownAssignorError, registry
from coterie.broker.broker import Broker
from coterie.client.admin import Admin
from coterie.client.admin.admin_types import NewTopic
from coterie.facts import AssignorFailed, Fact
from newer_groups import consumer_joins
from raw_kafka import RawConnection

WAIT_S = 60


class OneGetsAll(Assignor):
    name = "one-gets-all"

    def assign(self, members: Sequence[Member], topics: Mapping[str, Topic]) -> Assignment:
        first = min(member.id for member in members)
        return {first: {name: range(topic.partitions) for name, topic in topics.items()}}


class Endless(Assignor):
    name = "endless"
    ended = Event()

    def assign(self, _members: Sequence[Member], _topics: Mapping[str, Topic]) -> Assignment:
        try:
            while True:
                pass
        finally:
            self.ended.set()


@pytest.fixture(autouse=True)
def plugged_in(monkeypatch: pytest.MonkeyPatch) -> None:
    points = EntryPoints(
        [
            EntryPoint("one-gets-all", f"{__name__}:OneGetsAll", registry.GROUP),
            EntryPoint("endless", f"{__name__}:Endless", registry.GROUP),
        ]
    )
    monkeypatch.setattr(registry, "_entry_points", partial(points.select, group=registry.GROUP))


def world_with(assignors: str) -> tuple[World, Client]:
    world = World(settings={"group.consumer.assignors": assignors, "group.consumer.assignment.interval.ms": 0})
    client = world.client()
    client.create("t", 2)
    client.find_coordinator()
    return world, client


def beat(client: Client, epoch: int, member: str = "m") -> Any:
    said = {"group_id": "g", "member_id": member, "member_epoch": epoch}
    return ask(client, "consumer_group_heartbeat", 1, **said, topic_partitions=None)


def assigned(answer: Any) -> list[int]:
    return [number for topic in answer.assignment.topic_partitions for number in topic.partitions]


def test_an_assignor_of_a_user_is_found_by_its_entry_point_and_assigns() -> None:
    """K16: it is the default if it is the first of the setting."""
    world, client = world_with("one-gets-all,uniform")
    assert assigned(joins(client)) == []
    assert assigned(beat(client, 1)) == [0, 1]
    (group,) = ask(client, "consumer_group_describe", 1, group_ids=("g",), include_authorized_operations=False).groups
    assert (group.assignor_name, group.group_state) == ("one-gets-all", "Stable")
    assert not [fact for fact in world.facts if isinstance(fact, AssignorFailed)]


@pytest.mark.parametrize(
    ("assignors", "why"),
    [
        ("uniform,nosuch", r'unknown assignor "nosuch"; known are uniform, range, endless, lag-aware, one-gets-all'),
        ("cooperative-sticky", "withholds partitions until their owners have given them up.*use uniform instead"),
    ],
)
def test_a_name_that_means_nothing_stops_the_start_and_says_what_there_is(assignors: str, why: str) -> None:
    with pytest.raises(UnknownAssignorError, match=why):
        World(settings={"group.consumer.assignors": assignors})


def test_a_broker_that_was_started_without_an_assignor_goes_on_with_its_default() -> None:
    """K16: what members named before is no vote any more."""
    world, client = world_with("uniform,one-gets-all")
    joins(client, server_assignor="one-gets-all")
    world.stop()
    again = World(world.files, settings={"group.consumer.assignors": "range"}, now_ms=world.now_ms + 2_000)
    client = again.client()
    joins(client, member="other")
    (group,) = ask(client, "consumer_group_describe", 1, group_ids=("g",), include_authorized_operations=False).groups
    assert (group.assignor_name, group.group_epoch, group.assignment_epoch) == ("range", 3, 3)


def test_lag_aware_is_told_the_lag_of_committed_partitions_and_no_other() -> None:
    """What the group has not read, up to the high watermark; nothing is known of a partition without a commit."""
    world, client = world_with("lag-aware")
    for _ in range(3):
        client.produce("t", *[b"x"] * 10)
    client.commit("g", {("t", 0): 4})
    joins(client)
    seen: list[Topic] = []

    class Seeing(LagAware):
        def assign(self, members: Sequence[Member], topics: Mapping[str, Topic]) -> Assignment:
            seen.append(topics["t"])
            return super().assign(members, topics)

    world.node.groups.assignors["lag-aware"] = Seeing()  # type: ignore[index]
    joins(client, member="other")
    assert seen == [Topic(2, None, [26, None])]


def test_an_assignor_that_never_ends_is_interrupted_and_the_broker_goes_on() -> None:
    """K2: the group keeps its last target, and everybody is answered."""
    facts: list[Fact] = []
    told = Event()

    def hear(fact: Fact) -> None:
        facts.append(fact)
        if isinstance(fact, AssignorFailed):
            told.set()

    Endless.ended.clear()
    settings = {"group.consumer.assignors": "endless", "coterie.assignor.timeout.ms": 200}
    with Broker(settings=settings, on_fact=hear) as broker, Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("t", 2)])
        with RawConnection(broker.bootstrap_servers) as connection:
            connection.ask("find_coordinator", 6, key_type=0, coordinator_keys=("g",))
            consumer_joins(connection, "g", "t")
        assert told.wait(WAIT_S) and Endless.ended.wait(WAIT_S)
        (failed,) = (fact for fact in facts if isinstance(fact, AssignorFailed))
        assert (failed.assignor, failed.generation_id) == ("endless", 2)
        assert "took more than 200 ms" in failed.why
        assert admin.list_topics()
