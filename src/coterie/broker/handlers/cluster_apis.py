"""ApiVersions, FindCoordinator, DescribeCluster, DescribeLogDirs and DescribeQuorum."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from coterie.broker.broker_effects import Effects, Work
from coterie.broker.broker_facts import Reporter
from coterie.broker.calls import Call, Handler, Responses
from coterie.broker.handlers.refusals import CLUSTER_DENIED, TopicError
from coterie.broker.maintenance.directory_changes import Changes
from coterie.broker.metadata_cache import MetadataCache
from coterie.broker.placement import NO_LEADER
from coterie.broker.replica_manager import ReplicaManager
from coterie.broker.security.auth_helper import AuthHelper
from coterie.broker.topic_manager import Made, TopicManager
from coterie.coordinator.runtime import find_coordinator as node_for
from coterie.coordinator.wall_clock import WallClock
from coterie.errors import ErrorCode
from coterie.protocol.acls import AclOperation, AclResourceType
from coterie.protocol.apis import (
    api_versions,
    describe_cluster,
    describe_log_dirs,
    describe_quorum,
    find_coordinator,
)
from coterie.protocol.offsets_topic import OFFSETS_TOPIC
from coterie.protocol.transaction_state import TRANSACTION_STATE_TOPIC
from coterie.storage import DiskChange
from coterie.storage.files import Space
from coterie.structs import DataStruct

__all__ = ["ClusterApis"]

BROKER_ENDPOINT = 1
THE_QUORUM = [(describe_quorum.METADATA_TOPIC, [0])]
"""The only quorum there is, by topic and partitions."""
KEY_RIGHTS = {
    find_coordinator.GROUP: (
        AclOperation.DESCRIBE,
        AclResourceType.GROUP,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        "Group authorization failed.",
    ),
    find_coordinator.TRANSACTION: (
        AclOperation.DESCRIBE,
        AclResourceType.TRANSACTIONAL_ID,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        "Transactional Id authorization failed.",
    ),
    find_coordinator.SHARE: (
        AclOperation.CLUSTER_ACTION,
        AclResourceType.CLUSTER,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        "Cluster authorization failed.",
    ),
}
"""The right that FindCoordinator needs for each type of key, and the error without it."""
_THINGS = {find_coordinator.GROUP: "the groups", find_coordinator.TRANSACTION: "the transactions"}
INTERNAL_TOPICS = {find_coordinator.GROUP: OFFSETS_TOPIC, find_coordinator.TRANSACTION: TRANSACTION_STATE_TOPIC}
"""The topic whose leaders are the coordinators, for each type of key."""


class ClusterApis(DataStruct, frozen=True, eq=False):
    responses: Responses
    auth: AuthHelper
    replicas: ReplicaManager
    metadata: MetadataCache
    topics: TopicManager
    changes: Changes
    reporter: Reporter
    data_path: Callable[[], str]
    wall: WallClock
    space: Callable[[], Space | None]
    receives_telemetry: bool

    def handlers(self) -> Mapping[int, Handler]:
        return {
            api_versions.API.key: self._api_versions,
            find_coordinator.API.key: self._find_coordinator,
            describe_cluster.API.key: self._describe_cluster,
            describe_log_dirs.API.key: self._describe_log_dirs,
            describe_quorum.API.key: self._describe_quorum,
        }

    def _api_versions(self, call: Call, frame: bytes, at: int, now_ms: int) -> Effects:
        request = api_versions.read_request(frame, at, call.version)
        if api_versions.names_its_client(request, call.version):
            if request.client_software_name:
                call.connection.software = request.client_software_name, request.client_software_version
            answer = api_versions.Response(
                api_keys=api_versions.ADVERTISED_WITH_TELEMETRY if self.receives_telemetry else api_versions.ADVERTISED,
                supported_features=api_versions.SUPPORTED,
                finalized_features_epoch=0,
                finalized_features=api_versions.FINALIZED,
            )
        else:
            answer = api_versions.Response(error=ErrorCode.INVALID_REQUEST)
        return self.responses.answer(call, answer, now_ms)

    # --- FindCoordinator ----------------------------------------------------------------------------------------------

    def _find_coordinator(self, call: Call, frame: bytes, at: int, now_ms: int) -> Effects:
        request = find_coordinator.read_request(frame, at, call.version)
        denied = self._denied_keys(call, request)
        topic = INTERNAL_TOPICS.get(request.key_type)
        is_missing = topic not in self.metadata.topics and not denied.keys() >= set(request.keys)
        # It is made when a client first asks for a coordinator (C2, TF2).
        missing = [topic] if topic is not None and is_missing else []

        def finish(made: list[Made], at_ms: int) -> tuple[find_coordinator.Response, Effects]:
            effects: Effects = [
                self.reporter.trouble(f"the topic of {_THINGS[request.key_type]} cannot be created: {error}", at_ms)
                for error in made
                if isinstance(error, TopicError)
            ]
            listener = call.connection.listener
            found = [denied.get(key) or self._coordinator(request.key_type, key, listener) for key in request.keys]
            return find_coordinator.Response(coordinators=found), effects

        return self.changes.ask_each(call, missing, self.topics.ensure, finish, now_ms)

    def _denied_keys(self, call: Call, request: find_coordinator.Request) -> Mapping[str, find_coordinator.Coordinator]:
        """Return the answers for keys that the client may not ask for."""
        if request.key_type not in KEY_RIGHTS:
            return {}
        operation, resource_type, error, message = KEY_RIGHTS[request.key_type]
        if resource_type is AclResourceType.CLUSTER:
            denied = frozenset() if self.auth.authorize(call, operation, resource_type) else frozenset(request.keys)
        else:
            denied = self.auth.denied(call, operation, resource_type, request.keys)
            message = "" if call.version >= find_coordinator.MANY else message
        return {key: find_coordinator.Coordinator(key=key, error=error, message=message) for key in denied}

    def _coordinator(self, key_type: int, key: str, listener: str) -> find_coordinator.Coordinator:
        name = INTERNAL_TOPICS.get(key_type, "")

        def leader_of(partition: int) -> int | None:
            state = self.metadata.partition_states.get((name, partition))
            return None if state is None or state.leader == NO_LEADER else state.leader

        topic = self.metadata.topics.get(name)
        error, node_id = node_for(key_type, key, topic.partitions if topic is not None else 1, leader_of)
        if error:
            return find_coordinator.Coordinator(key=key, error=error, message=_why(error))
        host, port = self.metadata.endpoints[listener][node_id]
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
                    for number, (host, port) in metadata.endpoints[call.connection.listener].items()
                    if number in metadata.nodes_up or request.include_fenced_brokers
                ],
            )
            if request.include_authorized_operations:
                answer.authorized_operations = self.auth.cluster_operations(call)
        return self.responses.answer(call, answer, now_ms)

    def _describe_log_dirs(self, call: Call, frame: bytes, at: int, now_ms: int) -> Effects:
        request = describe_log_dirs.read_request(frame, at, call.version)
        if not self.auth.authorize(call, AclOperation.DESCRIBE, AclResourceType.CLUSTER):
            refused = describe_log_dirs.Response(error=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, results=())
            return self.responses.answer(call, refused, now_ms)
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

        def finish(spaces: list[Space | None], _at_ms: int) -> tuple[describe_log_dirs.Response, Effects]:
            if spaces[0] is not None:
                directory.total_bytes, directory.usable_bytes = spaces[0]
            return describe_log_dirs.Response(results=[directory]), []

        return self.changes.ask_each(call, [None], self._ask_space, finish, now_ms)

    def _ask_space(self, _: None, done: Callable[[Space | None, int], Effects], _now_ms: int) -> Effects:
        """Ask the disk how much space there is, away from the loop: a disk that hangs holds up no heartbeat."""

        def look() -> Space | None:
            try:
                return self.space()
            except OSError:
                return None

        return [Work(DiskChange(look, lambda found: found), done)]

    def _describe_quorum(self, call: Call, frame: bytes, at: int, now_ms: int) -> Effects:
        """Each node can be the controller. They share their state, so none is behind, and there is no log."""
        request = describe_quorum.read_request(frame, at, call.version)
        if not self.auth.authorize(call, AclOperation.DESCRIBE, AclResourceType.CLUSTER):
            refused = describe_quorum.Response(error=CLUSTER_DENIED.error, message=CLUSTER_DENIED.message)
            return self.responses.answer(call, refused, now_ms)
        metadata, wall_ms = self.metadata, self.wall.at(now_ms)
        if [(topic.topic, [each.partition for each in topic.partitions]) for topic in request.topics] != THE_QUORUM:
            unknown = describe_quorum.Response(topics=[_no_quorum(topic) for topic in request.topics])
            return self.responses.answer(call, unknown, now_ms)
        voters = [
            describe_quorum.Replica(
                replica_id=number,
                log_end_offset=0,
                last_fetch_timestamp=wall_ms if number in metadata.nodes_up else -1,
                last_caught_up_timestamp=wall_ms if number in metadata.nodes_up else -1,
            )
            for number in metadata.nodes
        ]
        described = describe_quorum.DescribedPartition(
            partition=0, leader_id=metadata.controller, current_voters=voters
        )
        listener = call.connection.listener
        nodes = [
            describe_quorum.Node(
                node_id=number, listeners=[describe_quorum.Listener(name=listener, host=host, port=port)]
            )
            for number, (host, port) in metadata.endpoints[listener].items()
        ]
        topic = describe_quorum.DescribedTopic(topic=describe_quorum.METADATA_TOPIC, partitions=[described])
        return self.responses.answer(call, describe_quorum.Response(topics=[topic], nodes=nodes), now_ms)


def _why(error: ErrorCode) -> str:
    if error is ErrorCode.INVALID_REQUEST:
        return "a coordinator is looked for by group (key type 0) or transactional id (key type 1)"
    return "the topic of the coordinators is not there"


def _no_quorum(topic: describe_quorum.Topic) -> describe_quorum.DescribedTopic:
    return describe_quorum.DescribedTopic(
        topic=topic.topic,
        partitions=[
            describe_quorum.DescribedPartition(
                partition=each.partition,
                error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                message="This server does not host this topic-partition.",
            )
            for each in topic.partitions
        ],
    )
