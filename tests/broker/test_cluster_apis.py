"""FindCoordinator, InitProducerId, DescribeCluster, DescribeLogDirs."""

from __future__ import annotations

import pytest

from broker.driver import Client, World
from coterie.errors import ErrorCode
from coterie.protocol.apis import (
    api_versions,
    describe_cluster,
    describe_log_dirs,
    find_coordinator,
    init_producer_id,
    list_partition_reassignments,
)


@pytest.fixture
def client() -> Client:
    return World().client()


def test_every_group_is_coordinated_here(client: Client) -> None:
    """C2: the first who asks creates the topic; the empty key is served; many keys from version 4 on."""
    for version in (0, 1, 3):
        (found,) = client.ask(find_coordinator, find_coordinator.Request(keys=["g"]), version).coordinators
        assert (found.error, found.node_id, found.host, found.port) == (ErrorCode.NONE, 1, "broker.test", 9092)
    found = client.ask(find_coordinator, find_coordinator.Request(keys=["a", "", "b"]), 6).coordinators
    assert [(one.key, one.error, one.node_id) for one in found] == [(key, ErrorCode.NONE, 1) for key in ("a", "", "b")]


@pytest.mark.parametrize(
    ("key_type", "error"),
    [
        (find_coordinator.SHARE, ErrorCode.INVALID_REQUEST),
        (9, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_coordinator_of_anything_else_is_not_here_and_it_says_why(
    client: Client, key_type: int, error: ErrorCode
) -> None:
    """C2, C7: an error per key, node -1."""
    request = find_coordinator.Request(keys=["x", "y"], key_type=key_type)
    for found in client.ask(find_coordinator, request, 6).coordinators:
        assert (found.error, found.node_id, found.host, found.port) == (error, -1, "", -1)
        assert found.message


def test_groups_are_not_served_before_somebody_asked_for_a_coordinator(client: Client) -> None:
    """C3."""
    client.create("t")
    assert client.commit("g", {("t", 0): 1}) == [ErrorCode.NOT_COORDINATOR]


def test_no_producer_id_is_given_out_twice_not_even_after_a_crash() -> None:
    """D1."""
    files, seen = None, set()
    for life in range(3):
        world = World(files, now_ms=1_000_000 * (life + 1))
        client = world.client()
        for _ in range(1_500):
            answer = client.ask(
                init_producer_id, init_producer_id.Request(transactional_id=None, transaction_timeout_ms=1)
            )
            assert (answer.error, answer.producer_epoch) == (ErrorCode.NONE, 0)
            assert answer.producer_id not in seen
            seen.add(answer.producer_id)
        files = world.files
        world.cluster.directory.release()


def test_the_cluster_is_this_one_node_and_keeps_its_id() -> None:
    world = World()
    answer = world.client().ask(describe_cluster, describe_cluster.Request())
    assert (answer.controller_id, [(one.node_id, one.port) for one in answer.brokers]) == (1, [(1, 9092)])
    world.stop()
    again = World(world.files, now_ms=2_000_000).client().ask(describe_cluster, describe_cluster.Request())
    assert again.cluster_id == answer.cluster_id


@pytest.mark.parametrize(
    ("endpoint", "error"), [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (7, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)]
)
def test_this_is_a_brokers_endpoint(client: Client, endpoint: int, error: ErrorCode) -> None:
    """KIP-919."""
    assert client.ask(describe_cluster, describe_cluster.Request(endpoint_type=endpoint)).error is error


def test_the_one_directory_tells_the_size_of_its_logs(client: Client) -> None:
    client.create("t", 2)
    client.produce("t", b"a" * 100)
    (directory,) = client.ask(describe_log_dirs, describe_log_dirs.Request(topics=None)).results
    sizes = {(t.name, p.partition): p.size for t in directory.topics for p in t.partitions}
    assert sizes["t", 0] > 100 and sizes["t", 1] == 0
    asked = [describe_log_dirs.Topic(topic="t", partitions=[1])]
    (directory,) = client.ask(describe_log_dirs, describe_log_dirs.Request(topics=asked)).results
    assert [(t.name, [p.partition for p in t.partitions]) for t in directory.topics] == [("t", [1])]


def test_nothing_is_ever_reassigned(client: Client) -> None:
    answer = client.ask(list_partition_reassignments, list_partition_reassignments.Request(topics=None))
    assert (answer.error, answer.topics) == (ErrorCode.NONE, [])


def test_what_is_advertised_is_answered(client: Client) -> None:
    answer = client.ask(
        api_versions, api_versions.Request(client_software_name="tester", client_software_version="1"), 4
    )
    assert {one.api_key for one in answer.api_keys} <= set(client.world.node._routes)
