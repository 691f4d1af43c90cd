"""Consumer groups of KIP-848 on a node: over the wire, after a restart, with configs of their own, and with ACLs."""

from __future__ import annotations

from typing import Any

import pytest

from broker.driver import Client, World
from broker.test_facts_topic import kept as facts_kept
from coterie.broker.maintenance.facts_topic import WRITE_EVERY_MS
from coterie.errors import CoterieError
from coterie.ledger import RebalanceOutcome, fold
from coterie.protocol.api import ResourceType
from coterie.storage import MemoryFiles
from coterie.storage.metadata_files import GROUP_CONFIGS
from raw_kafka import frame_of, read_answer

QUICK = {"group.consumer.assignment.interval.ms": 0, "group.consumer.min.session.timeout.ms": 100}


def ask(client: Client, api: str, version: int, **values: Any) -> Any:
    client.send_frame(frame_of(api, version, 1, "c", values))
    return read_answer(api, version, client.next_frame())


def joins(client: Client, group: str = "g", member: str = "m", topics: tuple[str, ...] = ("t",), **said: Any) -> Any:
    return ask(
        client,
        *("consumer_group_heartbeat", 1),
        group_id=group,
        member_id=member,
        member_epoch=0,
        rebalance_timeout=60_000,
        subscribed_topic_names=topics,
        topic_partitions=(),
        **said,
    )


def beats(client: Client, member: str, epoch: int, owned: Any = None) -> Any:
    return ask(
        client,
        *("consumer_group_heartbeat", 1),
        group_id="g",
        member_id=member,
        member_epoch=epoch,
        rebalance_timeout=-1,
        subscribed_topic_names=None,
        topic_partitions=owned,
    )


def alter(client: Client, group: str, config: str, value: str | None) -> str:
    entry = {"name": config, "config_operation": 1 if value is None else 0, "value": value}
    resource = {"resource_type": ResourceType.GROUP, "resource_name": group, "configs": (entry,)}
    answer = ask(client, "incremental_alter_configs", 1, resources=(resource,), validate_only=False)
    return str(answer.responses[0].error_code.name)


def prepared(**settings: Any) -> tuple[World, Client]:
    world = World(settings={**QUICK, **settings})
    client = world.client()
    if not settings:
        client.create("t", 2)
        client.find_coordinator()
    return world, client


def started_again(world: World) -> tuple[World, Client]:
    world.stop()
    again = World(world.files, settings=QUICK, now_ms=world.now_ms + 1_000)
    return again, again.client()


def test_a_group_comes_back_after_a_restart() -> None:
    """K27."""
    world, client = prepared()
    joined = joins(client)
    assert (joined.member_epoch, joined.error_code.name) == (2, "none")
    _, client = started_again(world)
    (group,) = ask(client, "consumer_group_describe", 1, group_ids=("g",), include_authorized_operations=False).groups
    assert (group.group_state, group.group_epoch, [member.member_id for member in group.members]) == (
        "Stable",
        2,
        ["m"],
    )


def test_the_topic_of_facts_has_one_rebalance_over_a_restart() -> None:
    """K27: the group goes on to reconcile, and the facts of both runs tell of one rebalance."""
    world, client = prepared()
    given = joins(client, member="a").assignment.topic_partitions
    joins(client, member="b")
    told = beats(client, "a", 2)
    (kept,) = told.assignment.topic_partitions
    assert len(given[0].partitions) == 2 and len(kept.partitions) == 1
    world, client = started_again(world)
    owned = ({"topic_id": kept.topic_id, "partitions": kept.partitions},)
    beats(client, "a", 2, owned)
    beats(client, "b", 3)
    world.advance(WRITE_EVERY_MS)
    last = fold(facts_kept(world))[-1]
    assert (last.culprit, last.outcome, last.generation_id) == ("b", RebalanceOutcome.STABLE, 3)
    assert (last.took_ms, len(last.restarts_ms), len(last.moves), last.kept) == (1_000, 1, 1, 1)


@pytest.mark.parametrize(
    ("config", "value", "error"),
    [
        ("consumer.session.timeout.ms", "50000", "none"),
        ("consumer.session.timeout.ms", "99", "invalid_config"),
        ("consumer.session.timeout.ms", "60001", "invalid_config"),
        ("consumer.session.timeout.ms", "soon", "invalid_config"),
        ("consumer.session.timeout.ms", "5000", "invalid_config"),
        ("consumer.heartbeat.interval.ms", "15000", "none"),
        ("consumer.heartbeat.interval.ms", "15001", "invalid_config"),
        ("consumer.assignment.interval.ms", "0", "none"),
        ("share.session.timeout.ms", "50000", "invalid_config"),
    ],
)
def test_the_configs_of_a_group_are_within_the_brokers_bounds(config: str, value: str, error: str) -> None:
    """K29: the session must be longer than the heartbeat interval."""
    _, client = prepared()
    assert alter(client, "g", config, value) == error


def test_the_configs_of_a_group_count_at_once_and_after_a_restart() -> None:
    """K29."""
    world, client = prepared()
    assert joins(client).heartbeat_interval.total_seconds() == 5
    assert alter(client, "g", "consumer.heartbeat.interval.ms", "7000") == "none"
    assert alter(client, "g", "consumer.session.timeout.ms", "8000") == "none"
    assert joins(client).heartbeat_interval.total_seconds() == 7
    world.advance(8_000)
    (group,) = ask(client, "consumer_group_describe", 1, group_ids=("g",), include_authorized_operations=False).groups
    assert (group.group_state, group.group_epoch) == ("Empty", 3)
    listed = ask(client, "list_config_resources", 1, resource_types=(ResourceType.GROUP,))
    assert [resource.resource_name for resource in listed.config_resources] == ["g"]
    _, client = started_again(world)
    assert joins(client).heartbeat_interval.total_seconds() == 7
    assert alter(client, "g", "consumer.heartbeat.interval.ms", None) == "none"
    assert joins(client).heartbeat_interval.total_seconds() == 5


def test_a_damaged_file_of_configs_stops_the_start() -> None:
    files = MemoryFiles()
    World(files).stop()
    GROUP_CONFIGS.write(files, b'{"groups": {"g": {"consumer.session.timeout.ms": "soon"}}}')
    with pytest.raises(CoterieError, match=GROUP_CONFIGS.path):
        World(files)


def test_rights_of_members() -> None:
    """K29: READ of the group, DESCRIBE of the topics; a regular expression finds what may be described."""
    world, _ = prepared(**{"authorizer.class.name": "StandardAuthorizer", "super.users": "User:admin"})
    admin, bob = world.client(), world.client()
    admin.connection.principal, bob.connection.principal = "User:admin", "User:bob"
    for name in ("t", "secret"):
        admin.create(name, 1)
    admin.find_coordinator()
    assert joins(bob).error_code.name == "group_authorization_failed"

    def allow(resource_type: int, name: str, operation: int) -> None:
        creation = {
            "resource_type": resource_type,
            "resource_name": name,
            "resource_pattern_type": 3,
            "principal": "User:bob",
            "host": "*",
            "operation": operation,
            "permission_type": 3,
        }
        (result,) = ask(admin, "create_acls", 3, creations=(creation,)).results
        assert result.error_code.name == "none"

    allow(3, "g", 3)
    assert joins(bob).error_code.name == "topic_authorization_failed"
    allow(2, "t", 8)
    assert joins(bob).error_code.name == "none"
    assert joins(bob, topics=("t", "secret")).error_code.name == "topic_authorization_failed"
    said = {"group_id": "g", "member_id": "m", "member_epoch": 2, "topic_partitions": None}
    ask(bob, "consumer_group_heartbeat", 1, **said, subscribed_topic_names=(), subscribed_topic_regex=".*")
    assert list(next(iter(_resolved(world).values())).topics) == ["t"]


def _resolved(world: World) -> Any:
    (group,) = (group for shard in world.node.coordinator.shards.values() for group in shard.groups.values())
    return group.resolved  # type: ignore[union-attr]
