"""ApiVersions, FindCoordinator, DescribeCluster, DescribeLogDirs, InitProducerId and ListPartitionReassignments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from coterie.broker.broker_effects import Effects, Work
from coterie.broker.broker_facts import Reporter, TransactionRefused
from coterie.broker.calls import Call, Handler, Responses
from coterie.broker.handlers.refusals import TopicError
from coterie.broker.maintenance.directory_changes import Changes
from coterie.broker.maintenance.producer_ids import ProducerIds
from coterie.broker.metadata_cache import MetadataCache
from coterie.broker.placement import NOBODY
from coterie.broker.replica_manager import ReplicaManager
from coterie.broker.topic_manager import Made, TopicManager
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

__all__ = ["ClusterApis"]

NO_TRANSACTIONS = "this broker does not do transactions yet: use a producer without transactional.id"
BROKER_ENDPOINT = 1


@dataclass(frozen=True, slots=True, eq=False)
class ClusterApis:
    responses: Responses
    replicas: ReplicaManager
    metadata: MetadataCache
    topics: TopicManager
    changes: Changes
    producer_ids: ProducerIds
    reporter: Reporter
    data_path: Callable[[], str]

    def handlers(self) -> Mapping[int, Handler]:
        return {
            api_versions.API.key: self._api_versions,
            find_coordinator.API.key: self._find_coordinator,
            describe_cluster.API.key: self._describe_cluster,
            describe_log_dirs.API.key: self._describe_log_dirs,
            init_producer_id.API.key: self._init_producer_id,
            list_partition_reassignments.API.key: self._list_partition_reassignments,
        }

    def _api_versions(self, call: Call, frame: bytes, at: int, now_ms: int) -> Effects:
        request = api_versions.read_request(frame, at, call.version)
        if api_versions.names_its_client(request, call.version):
            answer = api_versions.Response(api_keys=api_versions.ADVERTISED)
        else:
            answer = api_versions.Response(error=ErrorCode.INVALID_REQUEST)
        return self.responses.answer(call, answer, now_ms)

    # --- FindCoordinator ----------------------------------------------------------------------------------------------

    def _find_coordinator(self, call: Call, frame: bytes, at: int, now_ms: int) -> Effects:
        request = find_coordinator.read_request(frame, at, call.version)
        if request.key_type == find_coordinator.TRANSACTION:
            return self._no_transactions(call, client_id_of(frame), request, now_ms)
        is_missing = request.key_type == find_coordinator.GROUP and OFFSETS_TOPIC not in self.metadata.topics
        missing = [OFFSETS_TOPIC] if is_missing else []  # it is made when a client first asks for a coordinator (C2)

        def finish(made: list[Made], at_ms: int) -> tuple[find_coordinator.Response, Effects]:
            effects: Effects = [
                self.reporter.trouble(f"the topic of the groups cannot be created: {error}", at_ms)
                for error in made
                if isinstance(error, TopicError)
            ]
            found = [self._coordinator(request.key_type, key) for key in request.keys]
            return find_coordinator.Response(coordinators=found), effects

        return self.changes.ask_each(call, missing, self.topics.ensure, finish, now_ms)

    def _no_transactions(self, call: Call, client_id: str, request: find_coordinator.Request, now_ms: int) -> Effects:
        """The code is the one at which every client gives up at once; others are retried for ever."""
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        found = [find_coordinator.Coordinator(key=key, error=code, message=NO_TRANSACTIONS) for key in request.keys]
        return [
            *(
                self.reporter.fact(TransactionRefused(now_ms, "", client_id, key, NO_TRANSACTIONS))
                for key in request.keys
            ),
            *self.responses.answer(call, find_coordinator.Response(coordinators=found), now_ms),
        ]

    def _coordinator(self, key_type: int, key: str) -> find_coordinator.Coordinator:
        def leader_of(partition: int) -> int | None:
            place = self.metadata.places.get((OFFSETS_TOPIC, partition))
            return None if place is None or place.leader == NOBODY else place.leader

        topic = self.metadata.topics.get(OFFSETS_TOPIC)
        error, node_id = node_for(key_type, key, topic.partitions if topic is not None else 1, leader_of)
        if error:
            return find_coordinator.Coordinator(key=key, error=error, message=_why(error))
        host, port = self.metadata.endpoints[node_id]
        return find_coordinator.Coordinator(key=key, node_id=node_id, host=host, port=port)

    # --- the cluster and its directory --------------------------------------------------------------------------------

    def _describe_cluster(self, call: Call, frame: bytes, at: int, now_ms: int) -> Effects:
        request = describe_cluster.read_request(frame, at, call.version)
        metadata, asked = self.metadata, request.endpoint_type
        if asked != BROKER_ENDPOINT:
            code = ErrorCode.MISMATCHED_ENDPOINT_TYPE if asked == 2 else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
            answer = describe_cluster.Response(
                error=code, message="this is a broker's endpoint", cluster_id="", endpoint_type=asked
            )
        else:
            answer = describe_cluster.Response(
                cluster_id=metadata.cluster_id,
                controller_id=metadata.controller,
                brokers=[
                    describe_cluster.Broker(
                        node_id=number, host=host, port=port, is_fenced=number not in metadata.nodes_up
                    )
                    for number, (host, port) in metadata.endpoints.items()
                    if number in metadata.nodes_up or request.include_fenced_brokers
                ],
            )
        return self.responses.answer(call, answer, now_ms)

    def _describe_log_dirs(self, call: Call, frame: bytes, at: int, now_ms: int) -> Effects:
        request = describe_log_dirs.read_request(frame, at, call.version)
        wanted = (
            None
            if request.topics is None
            else {(topic.topic, partition) for topic in request.topics for partition in topic.partitions}
        )
        sizes: dict[str, list[describe_log_dirs.DescribedPartition]] = {}
        for (topic, partition), log in self.replicas.led.items():
            if wanted is None or (topic, partition) in wanted:
                described = describe_log_dirs.DescribedPartition(partition=partition, size=log.size)
                sizes.setdefault(topic, []).append(described)
        topics = [describe_log_dirs.DescribedTopic(name=name, partitions=found) for name, found in sizes.items()]
        directory = describe_log_dirs.LogDir(path=self.data_path(), topics=topics)
        return self.responses.answer(call, describe_log_dirs.Response(results=[directory]), now_ms)

    def _list_partition_reassignments(self, call: Call, frame: bytes, at: int, now_ms: int) -> Effects:
        """A partition moves at once: there is nothing to copy."""
        list_partition_reassignments.read_request(frame, at, call.version)
        return self.responses.answer(call, list_partition_reassignments.Response(), now_ms)

    # --- InitProducerId -----------------------------------------------------------------------------------------------

    def _init_producer_id(self, call: Call, frame: bytes, at: int, now_ms: int) -> Effects:
        request = init_producer_id.read_request(frame, at, call.version)
        if request.transactional_id is not None:
            code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            return self.responses.answer(call, init_producer_id.Response(error=code), now_ms)
        producer_id = self.producer_ids.next()
        if producer_id is not None:
            return self.responses.answer(call, init_producer_id.Response(producer_id=producer_id), now_ms)
        return self.changes.ask_each(
            call, [None], self._next_producer_id, lambda answers, _at_ms: (answers[0], []), now_ms
        )

    def _next_producer_id(
        self, _: None, done: Callable[[init_producer_id.Response, int], Effects], now_ms: int
    ) -> Effects:
        def then(outcome: LogError | None, at_ms: int) -> Effects:
            if outcome is not None:
                refused = init_producer_id.Response(error=ErrorCode.COORDINATOR_NOT_AVAILABLE)
                return [self.reporter.trouble(str(outcome), at_ms), *done(refused, at_ms)]
            producer_id = self.producer_ids.next()
            assert producer_id is not None, "a block has a thousand"
            return done(init_producer_id.Response(producer_id=producer_id), at_ms)

        if self.producer_ids.is_empty:
            return [Work(self.producer_ids.another_block(), then)]
        return then(None, now_ms)  # an earlier request has asked for a block


def _why(error: ErrorCode) -> str:
    if error is ErrorCode.INVALID_REQUEST:
        return "a coordinator is looked for by group (key type 0)"
    return "the topic of the groups is not there"
