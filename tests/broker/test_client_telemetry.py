"""GetTelemetrySubscriptions, PushTelemetry and the configs of client metrics (KIP-714): as in Kafka 4.3.1."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from uuid import UUID

import pytest

from broker.driver import Client, World
from broker.metrics_data import counter, gauge, metrics_data
from broker.test_facts_topic import kept
from coterie.broker import client_metrics_manager, client_reports
from coterie.broker.client_metrics import MetricsSubscribed, subscribed, subscription_of, tidy_client_metrics
from coterie.broker.client_metrics_manager import MOST_INSTANCES, subscription_id_of
from coterie.broker.client_reports import KEPT_MS, ClientReports, has_rebalanced
from coterie.broker.handlers.refusals import Refusal
from coterie.broker.maintenance.facts_topic import WRITE_EVERY_MS
from coterie.errors import CoterieError, ErrorCode
from coterie.facts import ClientReported
from coterie.protocol.acls import AclOperation, AclPermissionType, AclResourceType, PatternType
from coterie.protocol.api import ConfigSource, ResourceType
from coterie.protocol.apis import (
    alter_configs,
    api_versions,
    create_acls,
    describe_configs,
    get_telemetry_subscriptions,
    incremental_alter_configs,
    list_config_resources,
    push_telemetry,
)
from coterie.protocol.apis.incremental_alter_configs import AlterConfigOp
from coterie.protocol.batch import Compression
from coterie.protocol.compression import compress
from coterie.storage import MemoryFiles
from coterie.storage.metadata_files import CLIENT_METRICS_CONFIGS, id_text, parse_id

ON = {"coterie.client.telemetry.enable": True}
COORDINATOR = "org.apache.kafka.consumer.coordinator."
INTERVAL_MS = 1_000
NAME = "rebalances"


def altered(client: Client, name: str, configs: Mapping[str, str], operation: int = AlterConfigOp.SET) -> ErrorCode:
    resource = incremental_alter_configs.Resource(
        resource_type=ResourceType.CLIENT_METRICS,
        resource_name=name,
        configs=[
            incremental_alter_configs.Config(name=key, operation=operation, value=value)
            for key, value in configs.items()
        ],
    )
    answer = client.ask(incremental_alter_configs, incremental_alter_configs.Request(resources=[resource]))
    error: ErrorCode = answer.responses[0].error
    return error


def subscribe(client: Client, name: str = NAME, **configs: str) -> None:
    wanted = {"metrics": COORDINATOR, "interval.ms": str(INTERVAL_MS)} | configs
    assert altered(client, name, {key.replace("_", "."): value for key, value in wanted.items()}) is ErrorCode.NONE


def get(client: Client, client_instance_id: UUID | None = None) -> Any:
    request = get_telemetry_subscriptions.Request(client_instance_id=client_instance_id)
    return client.ask(get_telemetry_subscriptions, request)


def push(
    client: Client,
    client_instance_id: UUID | None,
    subscription_id: int,
    metrics: bytes = b"",
    *,
    compression: int = 0,
    terminating: bool = False,
) -> ErrorCode:
    request = push_telemetry.Request(
        client_instance_id=client_instance_id,
        subscription_id=subscription_id,
        terminating=terminating,
        compression_type=compression,
        metrics=metrics,
    )
    error: ErrorCode = client.ask(push_telemetry, request).error
    return error


def a_world(**settings: Any) -> tuple[World, Client]:
    world = World(settings={**ON, **{name.replace("_", "."): value for name, value in settings.items()}})
    client = world.client()
    subscribe(client)
    return world, client


def begun(client: Client) -> tuple[UUID, int]:
    """A client that has asked for its subscription: its ids."""
    answer = get(client)
    assert answer.error is ErrorCode.NONE and answer.client_instance_id is not None
    return answer.client_instance_id, answer.subscription_id


# --- what is advertised -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("settings", "is_advertised"), [({}, False), (ON, True)])
def test_the_apis_are_advertised_only_if_the_setting_is_on(settings: Mapping[str, Any], is_advertised: bool) -> None:
    """Kafka advertises them only if it has a plugin. It answers them all the same."""
    world = World(settings=settings)
    client = world.client()
    request = api_versions.Request(client_software_name="tests", client_software_version="1")
    keys = [row.api_key for row in client.ask(api_versions, request).api_keys]
    assert keys == sorted(keys) and ({71, 72} <= set(keys)) is is_advertised
    client_instance_id, subscription_id = begun(client)
    assert push(client, client_instance_id, subscription_id, b"not protobuf") is (
        ErrorCode.INVALID_RECORD if is_advertised else ErrorCode.NONE
    )


def test_without_the_setting_metrics_are_decompressed_and_dropped() -> None:
    """So does Kafka without a plugin: metrics that cannot be decompressed are refused."""
    world = World()
    client = world.client()
    client_instance_id, subscription_id = begun(client)
    assert push(client, client_instance_id, subscription_id, b"no zstd", compression=4) is ErrorCode.INVALID_RECORD
    assert world.cluster.client_reports is None


# --- GetTelemetrySubscriptions ----------------------------------------------------------------------------------------


def test_a_client_without_subscriptions_is_asked_for_nothing() -> None:
    client = World(settings=ON).client()
    answer = get(client)
    assert answer.client_instance_id not in (None, UUID(int=0), UUID(int=1))
    assert (answer.error, list(answer.requested_metrics), answer.push_interval_ms) == (ErrorCode.NONE, [], 300_000)
    assert list(answer.accepted_compression_types) == [4, 3, 1, 2], "zstd, lz4, gzip, snappy"
    assert answer.delta_temporality and answer.telemetry_max_bytes == 1_048_576


def test_a_client_gets_its_subscription_and_keeps_the_id_that_it_brings() -> None:
    _, client = a_world(telemetry_max_bytes=77)
    mine = UUID(int=99)
    answer = get(client, mine)
    assert (answer.client_instance_id, list(answer.requested_metrics)) == (mine, [COORDINATOR])
    assert (answer.push_interval_ms, answer.telemetry_max_bytes) == (INTERVAL_MS, 77)
    assert answer.subscription_id == subscription_id_of(MetricsSubscribed((COORDINATOR,), INTERVAL_MS), mine)


@pytest.mark.parametrize(
    ("text", "interval_ms", "prefixes", "order", "subscription_id"),
    [
        ("AAAAAAAAAAAAAAAAAAAAAg", 300_000, [], [], -725132324),
        ("pZ1bD4fYT0K9Pjv0b3yXHw", 1_000, ["*"], ["*"], -1031009761),
        (
            "-_9bD4fYT0K9Pjv0b3yXHw",
            100,
            ["org.apache.kafka.consumer.", "org.apache.kafka.producer.", "org.apache.kafka.client.x", "a", "zz"],
            ["org.apache.kafka.producer.", "org.apache.kafka.client.x", "zz", "a", "org.apache.kafka.consumer."],
            1354233888,
        ),
    ],
)
def test_a_subscription_id_is_the_one_that_kafka_computes(
    text: str, interval_ms: int, prefixes: list[str], order: list[str], subscription_id: int
) -> None:
    """The numbers are from Java: the CRC-32C of the set's text and the interval, and the hash of the id."""
    configs = {"metrics": ",".join(prefixes), "interval.ms": str(interval_ms)}
    wanted = subscribed([subscription_of(configs)], {})
    assert list(wanted.metrics) == order
    assert subscription_id_of(wanted, parse_id(text)) == subscription_id


def test_a_client_that_asks_before_the_push_interval_is_over_is_throttled() -> None:
    world, client = a_world()
    client_instance_id, subscription_id = begun(client)
    world.advance(INTERVAL_MS - 1)
    throttled = get(client, client_instance_id)
    assert throttled.error is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert (throttled.client_instance_id, throttled.subscription_id, throttled.push_interval_ms) == (None, 0, 0)
    world.advance(1)
    assert get(client, client_instance_id).error is ErrorCode.NONE
    assert push(client, client_instance_id, subscription_id) is ErrorCode.NONE
    world.advance(INTERVAL_MS - 1)
    assert get(client, client_instance_id).error is ErrorCode.THROTTLING_QUOTA_EXCEEDED, "a push counts as well"


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"subscription_id": 5}, ErrorCode.UNKNOWN_SUBSCRIPTION_ID),
        ({"compression": 5}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    ],
)
def test_a_client_may_ask_again_at_once_after_an_error_that_says_so(wrong: Mapping[str, int], error: ErrorCode) -> None:
    _, client = a_world()
    client_instance_id, subscription_id = begun(client)
    asked = {"subscription_id": subscription_id, **wrong}
    assert push(client, client_instance_id, **asked) is error  # type: ignore[arg-type]
    assert get(client, client_instance_id).error is ErrorCode.NONE
    assert get(client, client_instance_id).error is ErrorCode.THROTTLING_QUOTA_EXCEEDED, "once"


def test_a_client_hears_of_changed_subscriptions_at_once() -> None:
    _, client = a_world()
    client_instance_id, before = begun(client)
    subscribe(client, "more", metrics="org.apache.kafka.producer.", interval_ms="500")
    assert push(client, client_instance_id, before) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    answer = get(client, client_instance_id)
    assert answer.error is ErrorCode.NONE and answer.subscription_id != before
    assert set(answer.requested_metrics) == {COORDINATOR, "org.apache.kafka.producer."}
    assert answer.push_interval_ms == 500, "the shortest of all"


def test_all_metrics_take_the_place_of_prefixes() -> None:
    _, client = a_world()
    subscribe(client, "all", metrics="*,a")
    assert list(get(client).requested_metrics) == ["*"]


@pytest.mark.parametrize(
    ("match", "is_asked"),
    [
        ("client_id=tester", True),
        ("client_id=test", False),
        ("client_id=te.*", True),
        ("client_software_name=unknown", True),
        ("client_software_name=apache-kafka-java", False),
        ("client_source_address=10\\.0\\.0\\.1,client_id=tester", True),
        ("client_source_address=10\\.0\\.0\\.1,client_id=other", False),
        ("client_source_port=.*", False),
    ],
)
def test_only_clients_that_match_are_asked(match: str, is_asked: bool) -> None:
    """The whole value must match every pattern; what is not known of a client matches none."""
    client = World(settings=ON).client()
    subscribe(client, match=match)
    assert list(get(client).requested_metrics) == ([COORDINATOR] if is_asked else [])


def test_software_is_known_from_api_versions() -> None:
    client = World(settings=ON).client()
    subscribe(client, match="client_software_name=librdkafka,client_software_version=2\\..*")
    request = api_versions.Request(client_software_name="librdkafka", client_software_version="2.16.0")
    client.ask(api_versions, request)
    assert list(get(client).requested_metrics) == [COORDINATOR]


# --- PushTelemetry ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("client_instance_id", [None, UUID(int=1)])
def test_a_push_needs_the_id_of_an_instance(client_instance_id: UUID | None) -> None:
    world, client = a_world()
    assert push(client, client_instance_id, 0) is ErrorCode.INVALID_REQUEST
    assert not world.node.client_metrics.instances


def test_the_first_push_may_be_early_and_the_next_one_not() -> None:
    """A client waits for half to one and a half of the interval before its first push."""
    world, client = a_world()
    client_instance_id, subscription_id = begun(client)
    world.advance(1)
    assert push(client, client_instance_id, subscription_id) is ErrorCode.NONE
    world.advance(INTERVAL_MS - 1)
    assert push(client, client_instance_id, subscription_id) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    world.advance(1)
    assert push(client, client_instance_id, subscription_id) is ErrorCode.NONE


def test_an_instance_of_another_broker_may_push_at_once() -> None:
    _, client = a_world()
    mine = UUID(int=99)
    subscription_id = subscription_id_of(MetricsSubscribed((COORDINATOR,), INTERVAL_MS), mine)
    assert push(client, mine, subscription_id) is ErrorCode.NONE


def test_the_last_push_may_be_early_and_is_the_last() -> None:
    world, client = a_world()
    client_instance_id, subscription_id = begun(client)
    assert push(client, client_instance_id, subscription_id) is ErrorCode.NONE
    assert push(client, client_instance_id, subscription_id, terminating=True) is ErrorCode.NONE
    world.advance(INTERVAL_MS)
    assert push(client, client_instance_id, subscription_id) is ErrorCode.INVALID_REQUEST
    assert push(client, client_instance_id, subscription_id) is ErrorCode.NONE, "as in Kafka, the refused one undoes it"


def test_the_checks_come_in_kafkas_order() -> None:
    """Terminated, too early, the subscription id, the compression, the size."""
    world, client = a_world(telemetry_max_bytes=10)
    client_instance_id, subscription_id = begun(client)
    large = b"x" * 11
    assert push(client, client_instance_id, 5, large, compression=9) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert push(client, client_instance_id, 5, large, compression=9) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    world.advance(INTERVAL_MS)
    wrong = push(client, client_instance_id, subscription_id, large, compression=9)
    assert wrong is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    world.advance(INTERVAL_MS)
    assert push(client, client_instance_id, subscription_id, large) is ErrorCode.TELEMETRY_TOO_LARGE
    assert push(client, client_instance_id, 5, large, terminating=True) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert push(client, client_instance_id, 5, large, compression=9) is ErrorCode.INVALID_REQUEST, "it had ended"


@pytest.mark.parametrize("compression", Compression)
def test_metrics_may_be_compressed(compression: Compression) -> None:
    world, client = a_world()
    client_instance_id, subscription_id = begun(client)
    metrics = compress(compression, metrics_data({}, gauge(f"{COORDINATOR}assigned.partitions", 3)))
    assert push(client, client_instance_id, subscription_id, metrics, compression=compression) is ErrorCode.NONE
    reports = world.cluster.client_reports
    assert reports is not None
    assert reports.by_instance[client_instance_id].numbers == {"assigned_partitions": 3}


@pytest.mark.parametrize("compression", [one for one in Compression if one])
def test_what_is_too_large_when_decompressed_is_refused(compression: Compression) -> None:
    """Kafka 4.3.1 says INVALID_RECORD, too."""
    _, client = a_world(telemetry_max_bytes=100_000)
    client_instance_id, subscription_id = begun(client)
    bomb = compress(compression, bytes(2_000_000))
    if len(bomb) > 100_000:
        bomb = compress(compression, bytes(1_000_000))
    assert len(bomb) <= 100_000
    assert push(client, client_instance_id, subscription_id, bomb, compression=compression) is ErrorCode.INVALID_RECORD


def malformed() -> Iterator[bytes]:
    whole = metrics_data({"group_id": "g"}, gauge(f"{COORDINATOR}assigned.partitions", 3))
    yield from (whole[:size] for size in range(1, len(whole)))
    yield b"\x0b"  # a group, which protobuf has no more
    yield b"\xff" * 20  # a varint that is too long
    yield b"\x0a\xff\xff\xff\xff\x7f"  # longer than what is left
    yield b"\x0a\x00" * 60_000  # too many fields


def test_metrics_that_cannot_be_read_are_invalid_records_and_nothing_worse() -> None:
    world, client = a_world()
    client_instance_id, subscription_id = begun(client)
    for metrics in malformed():
        world.advance(INTERVAL_MS)
        assert push(client, client_instance_id, subscription_id, metrics) is ErrorCode.INVALID_RECORD, metrics[:40]
    world.advance(INTERVAL_MS)
    assert push(client, client_instance_id, subscription_id) is ErrorCode.NONE


# --- instances are forgotten ------------------------------------------------------------------------------------------


def test_a_silent_instance_is_forgotten_after_a_minute_or_three_intervals() -> None:
    world, client = a_world()
    mine = UUID(int=99)
    get(client, mine)
    world.advance(59_999)
    assert mine in world.node.client_metrics.instances
    world.advance(1)
    assert mine not in world.node.client_metrics.instances
    subscribe(client, interval_ms="30000")
    get(client, mine)
    world.advance(60_000)
    get(client, mine)
    world.advance(89_999)
    assert mine in world.node.client_metrics.instances, "each request begins the time again"
    world.advance(1)
    assert mine not in world.node.client_metrics.instances


def test_an_instance_is_forgotten_with_its_connection() -> None:
    world, client = a_world()
    mine = UUID(int=99)
    other = world.client()
    get(client, mine)
    assert get(other, mine).error is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    world.node.disconnected(other.connection)
    assert mine in world.node.client_metrics.instances, "it came on the first"
    world.node.disconnected(client.connection)
    assert not world.node.client_metrics.instances
    assert get(world.client(), mine).error is ErrorCode.NONE


def test_a_long_name_is_not_kept_whole() -> None:
    """One connection can name thousands of instances, each with another client id of 32 KiB."""
    world, client = a_world()
    client.connection.software = "n" * 30_000, "v" * 30_000
    get(client, UUID(int=99))
    attributes = world.node.client_metrics.instances[UUID(int=99)].attributes
    assert max(len(value or "") for value in attributes.values()) == client_metrics_manager.LONGEST_ATTRIBUTE


def test_there_are_no_more_instances_than_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST_INSTANCES == 16_384
    monkeypatch.setattr(client_metrics_manager, "MOST_INSTANCES", 3)
    world, client = a_world()
    for number in range(2, 6):
        get(client, UUID(int=number))
        get(client, UUID(int=2))  # it is not the one that was silent for longest
    assert [one.int for one in world.node.client_metrics.instances] == [4, 5, 2]


# --- the configs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("configs", "error"),
    [
        ({"metrics": "a,b", "interval.ms": "100", "match": "client_id=x"}, ErrorCode.NONE),
        ({"metrics": ""}, ErrorCode.NONE),
        ({"nonsense": "1"}, ErrorCode.INVALID_REQUEST),
        ({"interval.ms": "x", "nonsense": "1"}, ErrorCode.INVALID_REQUEST),
        ({"interval.ms": "x"}, ErrorCode.INVALID_CONFIG),
        ({"interval.ms": ""}, ErrorCode.INVALID_CONFIG),
        ({"interval.ms": "99"}, ErrorCode.INVALID_REQUEST),
        ({"interval.ms": "3600000"}, ErrorCode.NONE),
        ({"interval.ms": "3600001"}, ErrorCode.INVALID_REQUEST),
        ({"interval.ms": "99", "match": "x"}, ErrorCode.INVALID_REQUEST),
        ({"metrics": "a,,b"}, ErrorCode.INVALID_CONFIG),
        ({"metrics": "x" * 10_001}, ErrorCode.INVALID_CONFIG),
        ({"match": "client_id"}, ErrorCode.INVALID_CONFIG),
        ({"match": "client_id="}, ErrorCode.INVALID_CONFIG),
        ({"match": "client_id=a=b"}, ErrorCode.INVALID_CONFIG),
        ({"match": "client_id=a="}, ErrorCode.NONE),
        ({"match": " client_id = a "}, ErrorCode.NONE),
        ({"match": "=a"}, ErrorCode.INVALID_CONFIG),
        ({"match": "host=a"}, ErrorCode.INVALID_CONFIG),
        ({"match": "client_id=("}, ErrorCode.INVALID_CONFIG),
    ],
)
def test_configs_are_checked_as_in_kafka(configs: Mapping[str, str], error: ErrorCode) -> None:
    """An unknown config and an interval out of bounds are requests that are wrong; other values are wrong configs."""
    found = tidy_client_metrics(NAME, configs)
    assert (found.error if isinstance(found, Refusal) else ErrorCode.NONE) is error


def test_a_pattern_is_one_of_re2() -> None:
    """It takes time linear in the length of the value; Java's expressions have look-ahead."""
    refused = tidy_client_metrics(NAME, {"match": "client_id=(?!x).*"})
    assert isinstance(refused, Refusal) and refused.error is ErrorCode.INVALID_CONFIG
    subscription = subscription_of({"match": "client_id=(a|aa)+b"})
    assert not subscription.matches({"client_id": "a" * 20_000})


def test_a_subscription_needs_a_name() -> None:
    assert altered(World(settings=ON).client(), "", {"interval.ms": "x"}) is ErrorCode.INVALID_REQUEST


def test_a_list_is_set_and_not_appended_to() -> None:
    """Kafka's controller does not know which configs of client metrics are lists."""
    _, client = a_world()
    assert altered(client, NAME, {"metrics": "a"}, AlterConfigOp.APPEND) is ErrorCode.INVALID_CONFIG


def described(client: Client, name: str) -> dict[str, tuple[str | None, int]]:
    resource = describe_configs.Resource(
        resource_type=ResourceType.CLIENT_METRICS, resource_name=name, configuration_keys=None
    )
    request = describe_configs.Request(resources=[resource], include_synonyms=True)
    (result,) = client.ask(describe_configs, request).results
    assert result.error is ErrorCode.NONE
    for config in result.configs:
        own = [(config.name, config.value, config.config_source)]
        is_own = config.config_source == ConfigSource.CLIENT_METRICS
        assert [(one.name, one.value, one.source) for one in config.synonyms] == (own if is_own else [])
    return {config.name: (config.value, config.config_source) for config in result.configs}


def listed(client: Client, version: int) -> list[str]:
    types = [ResourceType.CLIENT_METRICS] if version else []
    request = list_config_resources.Request(resource_types=types)
    answer = client.ask(list_config_resources, request, version)
    return [one.resource_name for one in answer.config_resources]


@pytest.mark.parametrize("settings", [{}, ON])
def test_subscriptions_are_stored_described_listed_and_deleted(settings: Mapping[str, Any]) -> None:
    """Also without the setting, as in Kafka without a plugin."""
    files = MemoryFiles()
    world = World(files, settings)
    client = world.client()
    subscribe(client, "b", match=" client_id=a , client_id=b ")
    subscribe(client, "a")
    world.stop()
    client = World(files, settings).client()
    assert listed(client, 0) == listed(client, 1) == ["a", "b"]
    own = ConfigSource.CLIENT_METRICS
    assert described(client, "b") == {
        "interval.ms": ("1000", own),
        "match": ("client_id=a,client_id=b", own),
        "metrics": (COORDINATOR, own),
    }
    assert described(client, "none")["interval.ms"] == ("300000", ConfigSource.DEFAULT)
    assert altered(client, "b", dict.fromkeys(("metrics", "match"), ""), AlterConfigOp.DELETE) is ErrorCode.NONE
    assert described(client, "b")["metrics"] == ("", ConfigSource.DEFAULT)
    assert altered(client, "b", {"interval.ms": ""}, AlterConfigOp.DELETE) is ErrorCode.NONE
    assert listed(client, 0) == ["a"], "without configs it is no more"


def test_the_older_request_replaces_all_configs() -> None:
    _, client = a_world()
    config = alter_configs.Config(name="interval.ms", value="2000")
    resource = alter_configs.Resource(resource_type=ResourceType.CLIENT_METRICS, resource_name=NAME, configs=[config])
    answer = client.ask(alter_configs, alter_configs.Request(resources=[resource]))
    assert answer.responses[0].error is ErrorCode.NONE
    assert described(client, NAME)["metrics"] == ("", ConfigSource.DEFAULT)
    assert get(client).push_interval_ms == 2_000


def test_configs_that_do_not_change_leave_instances_as_they_are() -> None:
    _, client = a_world()
    client_instance_id, _ = begun(client)
    subscribe(client)
    assert get(client, client_instance_id).error is ErrorCode.THROTTLING_QUOTA_EXCEEDED


def test_a_file_that_is_not_ours_stops_the_start() -> None:
    files = MemoryFiles()
    World(files).stop()
    CLIENT_METRICS_CONFIGS.write(files, b'{"subscriptions": 7}')
    with pytest.raises(CoterieError, match=CLIENT_METRICS_CONFIGS.path):
        World(files)


def test_rights_are_those_of_the_cluster_and_pushing_needs_none() -> None:
    files = MemoryFiles()
    world = World(files, ON)
    subscribe(world.client())
    world.stop()
    secured = {**ON, "authorizer.class.name": "StandardAuthorizer", "super.users": "User:admin"}
    client = World(files, secured).client()
    assert altered(client, NAME, {"interval.ms": "200"}) is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    answer = client.ask(list_config_resources, list_config_resources.Request(), 0)
    assert answer.error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    resource = describe_configs.Resource(
        resource_type=ResourceType.CLIENT_METRICS, resource_name=NAME, configuration_keys=None
    )
    (result,) = client.ask(describe_configs, describe_configs.Request(resources=[resource])).results
    assert result.error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    client_instance_id, subscription_id = begun(client)
    assert push(client, client_instance_id, subscription_id) is ErrorCode.NONE


# --- reports ----------------------------------------------------------------------------------------------------------

LABELS = {"group_id": "g", "group_member_id": "m-1", "client_rack": "r"}


def reported(world: World) -> list[ClientReported]:
    return [fact for fact in world.facts if isinstance(fact, ClientReported)]


def test_a_client_that_has_rebalanced_gives_a_fact_which_is_kept() -> None:
    world, client = a_world()
    client.find_coordinator()
    client.enter("g")
    client_instance_id, subscription_id = begun(client)
    metrics = metrics_data(
        LABELS,
        counter(f"{COORDINATOR}rebalance.total", 2.0),
        counter(f"{COORDINATOR}rebalance.latency.total", 350.4),
        gauge(f"{COORDINATOR}rebalance.latency.max", 300.0),
        gauge(f"{COORDINATOR}rebalance.latency.avg", float("nan")),
        gauge(f"{COORDINATOR}assigned.partitions", 4),
        gauge("org.apache.kafka.consumer.poll.idle.ratio.avg", 0.25),
        gauge("org.apache.kafka.consumer.fetch.manager.bytes", 5.0),
    )
    assert push(client, client_instance_id, subscription_id, metrics) is ErrorCode.NONE
    (fact,) = reported(world)
    assert fact == ClientReported(
        fact.at_ms,
        "g",
        member_id="m-1",
        instance_id=None,
        client_id="tester",
        client_instance_id=id_text(client_instance_id),
        client_host="10.0.0.1",
        rebalances=2,
        rebalance_latency_max_ms=300,
        rebalance_latency_total_ms=351,
        assigned_partitions=4,
        poll_idle_ratio=0.25,
    )
    assert fact.rebalance_latency_avg_ms is None, "it is not a number: unknown, and not 0"
    world.advance(WRITE_EVERY_MS)
    assert fact in kept(world)


def test_a_client_without_rebalances_gives_none() -> None:
    world, client = a_world()
    client.find_coordinator()
    client.enter("g")
    client_instance_id, subscription_id = begun(client)
    metrics = metrics_data(LABELS, counter(f"{COORDINATOR}rebalance.total", 0.0))
    assert push(client, client_instance_id, subscription_id, metrics) is ErrorCode.NONE
    assert not reported(world)


@pytest.mark.parametrize("labels", [{}, {"group_id": ""}, {"group_id": "another"}])
def test_a_client_may_speak_of_a_group_that_there_is(labels: Mapping[str, str]) -> None:
    world, client = a_world()
    client.find_coordinator()
    client.enter("g")
    client_instance_id, subscription_id = begun(client)
    metrics = metrics_data(labels, counter(f"{COORDINATOR}rebalance.total", 1.0))
    assert push(client, client_instance_id, subscription_id, metrics) is ErrorCode.NONE
    assert not reported(world)


def test_a_client_may_not_speak_of_a_group_that_it_may_not_read() -> None:
    files = MemoryFiles()
    world = World(files, ON)
    client = world.client()
    client.find_coordinator()
    client.enter("g")
    subscribe(client)
    world.stop()
    world = World(files, {**ON, "authorizer.class.name": "StandardAuthorizer", "super.users": "User:admin"})
    metrics = metrics_data(LABELS, counter(f"{COORDINATOR}rebalance.total", 1.0))
    for is_allowed in (False, True):
        client = world.client()
        if is_allowed:
            client.connection.principal = "User:admin"
            acl = create_acls.Creation(
                resource_type=AclResourceType.GROUP,
                resource_name="g",
                resource_pattern_type=PatternType.LITERAL,
                principal="User:ANONYMOUS",
                host="*",
                operation=AclOperation.READ,
                permission_type=AclPermissionType.ALLOW,
            )
            (made,) = client.ask(create_acls, create_acls.Request(creations=[acl])).results
            assert made.error is ErrorCode.NONE
            client = world.client()
        client_instance_id, subscription_id = begun(client)
        assert push(client, client_instance_id, subscription_id, metrics) is ErrorCode.NONE, "the push is right"
        assert len(reported(world)) == is_allowed


def receive(reports: ClientReports, at_ms: int, *metrics: bytes, who: int = 7) -> ClientReported | None:
    return reports.receive(UUID(int=who), metrics_data(LABELS, *metrics), "c", "h", at_ms)


def test_sums_since_the_start_count_from_the_second_push_on() -> None:
    """How much of the first was before is not known."""
    reports = ClientReports()
    total = f"{COORDINATOR}rebalance.total"
    assert receive(reports, 1, counter(total, 5.0, is_delta=False)) is None
    assert receive(reports, 2, counter(total, 5.0, is_delta=False)) is None
    fact = receive(reports, 3, counter(total, 7.0, is_delta=False))
    assert fact is not None and fact.rebalances == 2
    fact = receive(reports, 4, counter(total, 1.0, is_delta=False))
    assert fact is not None and fact.rebalances == 1, "the client has begun again"


def test_without_totals_another_latency_says_it() -> None:
    """An average or a maximum stays for a while, and is 0 or NaN if nothing was measured."""
    reports = ClientReports()
    latency = f"{COORDINATOR}rebalance.latency.max"
    assert receive(reports, 1, gauge(latency, 0)) is None
    fact = receive(reports, 2, gauge(latency, 30))
    assert fact is not None and (fact.rebalances, fact.rebalance_latency_max_ms) == (None, 30)
    assert receive(reports, 3, gauge(latency, 30)) is None
    assert receive(reports, 4, gauge(latency, 31)) is not None
    assert not has_rebalanced({}, {})


@pytest.mark.parametrize("value", [-1.0, 1e300, float("inf"), float("nan")])
def test_a_number_that_cannot_be_is_unknown(value: float) -> None:
    reports = ClientReports()
    assert receive(reports, 1, counter(f"{COORDINATOR}rebalance.total", value)) is None
    assert not reports.by_instance


def test_a_latency_of_0_was_not_measured() -> None:
    """Librdkafka sends 0 if there was no rebalance and no commit since its last push. Its label is `member_id`."""
    metrics = metrics_data(
        {"group_id": "g", "member_id": "m"},
        counter(f"{COORDINATOR}rebalance.latency.total", 3004),
        gauge(f"{COORDINATOR}commit.latency.avg", 0.0),
        gauge(f"{COORDINATOR}commit.latency.max", 0),
        gauge(f"{COORDINATOR}assigned.partitions", 0),
    )
    fact = ClientReports().receive(UUID(int=7), metrics, "c", "h", 1)
    assert fact is not None and (fact.member_id, fact.rebalance_latency_total_ms) == ("m", 3004)
    assert (fact.commit_latency_avg_ms, fact.commit_latency_max_ms, fact.rebalances) == (None, None, None)
    assert fact.assigned_partitions == 0, "that is a number that it knows"


def test_numbers_are_kept_of_some_clients_and_for_some_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_reports, "MOST_REPORTS", 2)
    reports = ClientReports()
    partitions = gauge(f"{COORDINATOR}assigned.partitions", 1)
    for number in (1, 2, 1, 3):
        receive(reports, 5, partitions, who=number)
    assert [one.int for one in reports.by_instance] == [1, 3]
    receive(reports, 5 + KEPT_MS, partitions, who=3)
    receive(reports, 6 + KEPT_MS, partitions, who=3)
    assert [one.int for one in reports.by_instance] == [3]
