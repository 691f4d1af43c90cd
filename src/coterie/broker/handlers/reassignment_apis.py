"""AlterPartitionReassignments, ListPartitionReassignments, ElectLeaders and AlterReplicaLogDirs.

The rules are in `broker/reassignment.py`. What changes leaders is one of the changes of the data directory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from coterie.broker.broker_effects import Effects
from coterie.broker.calls import Call, Handler, Responses
from coterie.broker.handlers.refusals import CLUSTER_DENIED
from coterie.broker.leadership import Leadership
from coterie.broker.metadata_cache import MetadataCache
from coterie.broker.placement import Partition, PartitionState
from coterie.broker.reassignment import elect, reassign
from coterie.broker.replica_manager import ReplicaManager
from coterie.broker.security.auth_helper import AuthHelper
from coterie.errors import CoterieError, ErrorCode
from coterie.protocol.acls import AclOperation, AclResourceType
from coterie.protocol.apis import (
    alter_partition_reassignments,
    alter_replica_log_dirs,
    elect_leaders,
    list_partition_reassignments,
)
from coterie.settings.broker_settings import BrokerSettings
from coterie.storage import LogError
from coterie.structs import DataStruct

T = TypeVar("T")


class ReassignmentApis(DataStruct, frozen=True, eq=False):
    responses: Responses
    auth: AuthHelper
    replicas: ReplicaManager
    metadata: MetadataCache
    leadership: Leadership
    settings: BrokerSettings
    data_path: Callable[[], str]

    def handlers(self) -> Mapping[int, Handler]:
        return {
            alter_partition_reassignments.API.key: self._alter_partition_reassignments,
            list_partition_reassignments.API.key: self._list_partition_reassignments,
            elect_leaders.API.key: self._elect_leaders,
            alter_replica_log_dirs.API.key: self._alter_replica_log_dirs,
        }

    # --- leaders change -----------------------------------------------------------------------------------------------

    def _may(self, call: Call, operation: AclOperation) -> bool:
        return self.auth.authorize(call, operation, AclResourceType.CLUSTER)

    def _alter_partition_reassignments(self, call: Call, frame: bytes, at: int, received_ms: int) -> Effects:
        request = alter_partition_reassignments.read_request(frame, at, call.version)
        if not self._may(call, AclOperation.ALTER):
            return self.responses.answer(call, _reassignments_denied(request), received_ms)
        metadata, as_one = self.metadata, self.settings.coterie_replicas_as_one
        return self._change_leaders(
            call,
            lambda: reassign(
                request, metadata.topics, metadata.partition_states, metadata.nodes_up, replicas_as_one=as_one
            ),
            lambda response: ((topic.name, topic.partitions) for topic in response.responses),
            "partitions are reassigned",
        )

    def _elect_leaders(self, call: Call, frame: bytes, at: int, received_ms: int) -> Effects:
        request = elect_leaders.read_request(frame, at, call.version)
        if not self._may(call, AclOperation.ALTER):
            return self.responses.answer(call, _elections_denied(request), received_ms)
        metadata = self.metadata
        return self._change_leaders(
            call,
            lambda: elect(request, metadata.topics, metadata.partition_states, metadata.nodes_up),
            lambda response: ((topic.topic, topic.partitions) for topic in response.results),
            "preferred leaders are elected",
        )

    def _change_leaders(
        self,
        call: Call,
        decide: Callable[[], tuple[T, Mapping[Partition, PartitionState]]],
        answers: Callable[[T], Iterable[tuple[str, Sequence[Any]]]],
        why: str,
    ) -> Effects:
        """Decide in the request's turn, change the leaders, then answer."""
        decided: list[tuple[T, Mapping[Partition, PartitionState]]] = []

        def plan() -> tuple[frozenset[int], Mapping[Partition, PartitionState]]:
            decided.append(decide())
            return self.metadata.nodes_up, decided[0][1]

        def done(error: CoterieError | None, now_ms: int) -> Effects:
            response, changes = decided[0]
            if error is not None:
                code = error.code if isinstance(error, LogError) else ErrorCode.UNKNOWN_SERVER_ERROR
                for topic, partitions in answers(response):
                    for one in partitions:
                        if (topic, one.partition) in changes and not one.error:
                            one.error, one.message = code, str(error)
            return self.responses.answer(call, response, now_ms)

        return self.leadership.change(call, plan, why, done)

    # --- what is answered as it is ------------------------------------------------------------------------------------

    def _list_partition_reassignments(self, call: Call, frame: bytes, at: int, now_ms: int) -> Effects:
        """A partition moves at once: there is nothing to copy."""
        list_partition_reassignments.read_request(frame, at, call.version)
        answer = list_partition_reassignments.Response()
        if not self._may(call, AclOperation.DESCRIBE):
            answer.error, answer.message = CLUSTER_DENIED
        return self.responses.answer(call, answer, now_ms)

    def _alter_replica_log_dirs(self, call: Call, frame: bytes, at: int, now_ms: int) -> Effects:
        """Answer AlterReplicaLogDirs. There is one log directory: a replica is there already, and there is no other."""
        request = alter_replica_log_dirs.read_request(frame, at, call.version)
        is_allowed = self._may(call, AclOperation.ALTER)
        wanted: dict[str, dict[int, str]] = {}
        for directory in request.dirs:
            for topic in directory.topics:
                if topic.partitions:
                    wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partitions, directory.path))
        results = [
            alter_replica_log_dirs.AlteredTopic(
                topic=name,
                partitions=[
                    alter_replica_log_dirs.AlteredPartition(
                        partition=number,
                        error=self._log_dir_error((name, number), path) if is_allowed else CLUSTER_DENIED.error,
                    )
                    for number, path in paths.items()
                ],
            )
            for name, paths in wanted.items()
        ]
        return self.responses.answer(call, alter_replica_log_dirs.Response(results=results), now_ms)

    def _log_dir_error(self, key: Partition, path: str) -> ErrorCode:
        if path != self.data_path():
            return ErrorCode.LOG_DIR_NOT_FOUND
        if key not in self.metadata.partition_states:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NONE if key in self.replicas.led else ErrorCode.REPLICA_NOT_AVAILABLE


def _reassignments_denied(request: alter_partition_reassignments.Request) -> alter_partition_reassignments.Response:
    error, message = CLUSTER_DENIED
    return alter_partition_reassignments.Response(
        error=error,
        message=message,
        responses=[
            alter_partition_reassignments.AlteredTopic(
                name=topic.name,
                partitions=[
                    alter_partition_reassignments.AlteredPartition(
                        partition=one.partition, error=error, message=message
                    )
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def _elections_denied(request: elect_leaders.Request) -> elect_leaders.Response:
    error, message = CLUSTER_DENIED
    return elect_leaders.Response(
        error=error,
        results=[
            elect_leaders.ElectedTopic(
                topic=topic.topic,
                partitions=[
                    elect_leaders.ElectedPartition(partition=number, error=error, message=message)
                    for number in topic.partitions
                ],
            )
            for topic in request.topic_partitions or ()
        ],
    )
