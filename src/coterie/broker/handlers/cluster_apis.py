"""What there is: ApiVersions, FindCoordinator, DescribeCluster, DescribeLogDirs, InitProducerId, no reassignments."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from coterie.broker.broker_facts import TransactionRefused
from coterie.broker.calls import Call
from coterie.broker.handlers.refusals import TopicError
from coterie.broker.handlers.topic_changes import Made, ensure_from
from coterie.broker.maintenance.directory_changes import Step
from coterie.broker.placement import NOBODY
from coterie.coordinator.runtime import find_coordinator as node_for
from coterie.errors import ErrorCode
from coterie.protocol.apis import (
    api_versions,
    describe_cluster,
    describe_log_dirs,
    find_coordinator,
    init_producer_id,
    list_partition_reassignments,
)
from coterie.protocol.frames import client_id_of
from coterie.protocol.offsets_topic import OFFSETS_TOPIC
from coterie.storage import LogError

if TYPE_CHECKING:
    from coterie.broker.node import Node

__all__ = ["HANDLERS"]

NO_TRANSACTIONS = "this broker does not do transactions yet: use a producer without transactional.id"
BROKER_ENDPOINT = 1


def _api_versions(node: Node, call: Call, frame: bytes, at: int, _now_ms: int) -> None:
    request = api_versions.read_request(frame, at, call.version)
    if not api_versions.names_its_client(request, call.version):
        node.answer(call, api_versions.Response(error=ErrorCode.INVALID_REQUEST))
        return
    node.answer(call, api_versions.Response(api_keys=api_versions.ADVERTISED))


def _find_coordinator(node: Node, call: Call, frame: bytes, at: int, now_ms: int) -> None:
    request = find_coordinator.read_request(frame, at, call.version)
    if request.key_type == find_coordinator.TRANSACTION:
        found = [_no_transactions(node, client_id_of(frame), key, now_ms) for key in request.keys]
        node.answer(call, find_coordinator.Response(coordinators=found))
        return
    is_missing = request.key_type == find_coordinator.GROUP and OFFSETS_TOPIC not in node.directory.topics
    missing = [OFFSETS_TOPIC] if is_missing else []  # it is made when somebody first asks for a coordinator (C2)
    node.change_each(call, missing, ensure_from, lambda made: _coordinators(node, request, made, node.cluster.now_ms))


def _coordinators(
    node: Node, request: find_coordinator.Request, made: list[Made], now_ms: int
) -> find_coordinator.Response:
    for trouble in made:
        if isinstance(trouble, TopicError):
            node.tell_trouble(f"the topic of the groups cannot be created: {trouble}", now_ms)
    found = [_coordinator(node, request.key_type, key) for key in request.keys]
    return find_coordinator.Response(coordinators=found)


def _no_transactions(node: Node, client_id: str, key: str, now_ms: int) -> find_coordinator.Coordinator:
    """The code is the one at which every client gives up at once; others are retried for ever."""
    node.tell(TransactionRefused(now_ms, "", client_id, key, NO_TRANSACTIONS))
    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return find_coordinator.Coordinator(key=key, error=code, message=NO_TRANSACTIONS)


def _coordinator(node: Node, key_type: int, key: str) -> find_coordinator.Coordinator:
    def leader_of(partition: int) -> int | None:
        leader = node.cluster.leadership.leader_of((OFFSETS_TOPIC, partition))
        return None if leader == NOBODY else leader

    topic = node.directory.topics.get(OFFSETS_TOPIC)
    error, node_id = node_for(key_type, key, topic.partitions if topic is not None else 1, leader_of)
    if error:
        return find_coordinator.Coordinator(key=key, error=error, message=_why(error))
    host, port = node.cluster.nodes[node_id].endpoint
    return find_coordinator.Coordinator(key=key, node_id=node_id, host=host, port=port)


def _why(error: ErrorCode) -> str:
    if error is ErrorCode.INVALID_REQUEST:
        return "a coordinator is looked for by group (key type 0)"
    return "the topic of the groups is not there"


def _describe_cluster(node: Node, call: Call, frame: bytes, at: int, _now_ms: int) -> None:
    request = describe_cluster.read_request(frame, at, call.version)
    if request.endpoint_type != BROKER_ENDPOINT:
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE if request.endpoint_type == 2 else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        answer = describe_cluster.Response(
            error=code, message="this is a broker's endpoint", cluster_id="", endpoint_type=request.endpoint_type
        )
    else:
        up = node.cluster.leadership.up
        answer = describe_cluster.Response(
            cluster_id=node.cluster.cluster_id,
            controller_id=node.cluster.leadership.controller,
            brokers=[
                describe_cluster.Broker(node_id=number, host=host, port=port, is_fenced=number not in up)
                for number, (host, port) in ((each.node_id, each.endpoint) for each in node.cluster.nodes.values())
                if number in up or request.include_fenced_brokers
            ],
        )
    node.answer(call, answer)


def _describe_log_dirs(node: Node, call: Call, frame: bytes, at: int, _now_ms: int) -> None:
    request = describe_log_dirs.read_request(frame, at, call.version)
    wanted = (
        None
        if request.topics is None
        else {(topic.topic, partition) for topic in request.topics for partition in topic.partitions}
    )
    sizes: dict[str, list[describe_log_dirs.DescribedPartition]] = {}
    for (topic, partition), log in node.led.items():
        if wanted is None or (topic, partition) in wanted:
            described = describe_log_dirs.DescribedPartition(partition=partition, size=log.size)
            sizes.setdefault(topic, []).append(described)
    topics = [describe_log_dirs.DescribedTopic(name=name, partitions=found) for name, found in sizes.items()]
    directory = describe_log_dirs.LogDir(path=node.cluster.data_path, topics=topics)
    node.answer(call, describe_log_dirs.Response(results=[directory]))


def _init_producer_id(node: Node, call: Call, frame: bytes, at: int, _now_ms: int) -> None:
    request = init_producer_id.read_request(frame, at, call.version)
    if request.transactional_id is not None:
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        node.answer(call, init_producer_id.Response(error=code))
        return
    producer_id = node.producer_ids.next()
    if producer_id is not None:
        node.answer(call, init_producer_id.Response(producer_id=producer_id))
    else:
        node.change_each(call, [None], _next_producer_id, lambda answers: answers[0])


def _next_producer_id(
    node: Node, _: None, done: Callable[[init_producer_id.Response], None], now_ms: int
) -> Step | None:
    def then(outcome: LogError | None, at_ms: int) -> None:
        if outcome is not None:
            node.tell_trouble(str(outcome), at_ms)
            done(init_producer_id.Response(error=ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        producer_id = node.producer_ids.next()
        assert producer_id is not None, "a block has a thousand"
        done(init_producer_id.Response(producer_id=producer_id))

    if node.producer_ids.is_empty:
        return Step(node.producer_ids.another_block(), then)
    then(None, now_ms)  # somebody before us has asked for a block
    return None


def _list_partition_reassignments(node: Node, call: Call, frame: bytes, at: int, _now_ms: int) -> None:
    """A partition moves at once: there is nothing to copy."""
    list_partition_reassignments.read_request(frame, at, call.version)
    node.answer(call, list_partition_reassignments.Response())


HANDLERS = {
    api_versions.API.key: _api_versions,
    find_coordinator.API.key: _find_coordinator,
    describe_cluster.API.key: _describe_cluster,
    describe_log_dirs.API.key: _describe_log_dirs,
    init_producer_id.API.key: _init_producer_id,
    list_partition_reassignments.API.key: _list_partition_reassignments,
}
