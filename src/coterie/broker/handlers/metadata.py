"""Metadata and DescribeTopicPartitions: the topics and who leads their partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from coterie.broker.broker_effects import Effects
from coterie.broker.calls import Call, Handler, Responses
from coterie.broker.handlers.refusals import TopicError
from coterie.broker.metadata_cache import MetadataCache, is_internal
from coterie.broker.placement import NO_LEADER, PartitionState
from coterie.broker.security.auth_helper import AuthHelper
from coterie.broker.topic_manager import Made, TopicManager
from coterie.errors import ErrorCode
from coterie.protocol.acls import AclOperation, AclResourceType
from coterie.protocol.apis import describe_topic_partitions, metadata
from coterie.settings.broker_settings import BrokerSettings
from coterie.storage import StoredTopic
from coterie.storage.metadata_files import is_legal_name
from coterie.structs import DataStruct

__all__ = ["MetadataApis"]

DESCRIBE, TOPIC = AclOperation.DESCRIBE, AclResourceType.TOPIC
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
CREATED_WITHIN_MS = 10_000
"""The time that one request may spend on creating missing topics; the next request creates the others."""
LATER = frozenset({ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT})
"""Errors that clients get as a missing topic: they ask again, and then the topic exists or is created."""


class MetadataApis(DataStruct, frozen=True, eq=False):
    responses: Responses
    auth: AuthHelper
    cache: MetadataCache
    topics: TopicManager
    settings: BrokerSettings

    def handlers(self) -> Mapping[int, Handler]:
        return {
            metadata.API.key: self._metadata,
            describe_topic_partitions.API.key: self._describe_topic_partitions,
        }

    # --- Metadata -----------------------------------------------------------------------------------------------------

    def _metadata(self, call: Call, frame: bytes, at: int, now_ms: int) -> Effects:
        """Names that are missing may be created on the spot (rule D3); then it is answered when they are there."""
        request = metadata.read_request(frame, at, call.version)
        if call.version < metadata.API.by_id and any(
            one.name is None or one.topic_id is not None for one in request.topics or ()
        ):
            return self.responses.answer(call, _refused_for_ids(request), now_ms)
        if request.topics is not None:  # asked for twice is answered once, as in Kafka
            request.topics = list({(one.name, one.topic_id): one for one in request.topics}.values())
        denied = self._denied(call, request.topics or ())
        missing: list[str] = []
        may_create = request.allow_auto_topic_creation and self.settings.auto_create_topics_enable
        if request.topics is not None and may_create:
            known = self.cache.topics
            missing = [
                asked.name
                for asked in request.topics
                if asked.name is not None and asked.name not in known and asked.name not in denied
            ]
            uncreatable = self._uncreatable(call, missing)
            denied |= uncreatable
            missing = [name for name in missing if name not in uncreatable]
        wanted = [self.topics.by_default(name) for name in missing]

        def finish(made: list[Made], at_ms: int) -> Effects:
            response = self._response(call, request, denied, dict(zip(missing, made, strict=True)))
            return self.responses.answer(call, response, at_ms)

        return self.topics.create_each(call, wanted, CREATED_WITHIN_MS, finish, now_ms)

    def _denied(self, call: Call, topics: Iterable[metadata.Topic]) -> frozenset[str]:
        """Return the names of topics that are asked for, by name or id, and that the client may not describe."""
        ids = self.cache.topic_names
        names = [
            topic.name if topic.name is not None else ids.get(topic.topic_id) if topic.topic_id is not None else None
            for topic in topics
        ]
        return self.auth.denied(call, DESCRIBE, TOPIC, filter(None, names))

    def _uncreatable(self, call: Call, missing: Sequence[str]) -> frozenset[str]:
        """Return the topics that the client may not have created by asking for them."""
        if not missing or self.auth.authorize(call, AclOperation.CREATE, AclResourceType.CLUSTER, logs=False):
            return frozenset()
        return self.auth.denied(call, AclOperation.CREATE, TOPIC, missing)

    def _response(
        self, call: Call, request: metadata.Request, denied: frozenset[str], made: dict[str, Made]
    ) -> metadata.Response:
        cache, auth = self.cache, self.auth
        if request.topics is None:
            topics = [
                self._described(topic)
                for topic in cache.topics.values()
                if auth.authorize(call, DESCRIBE, TOPIC, topic.name, logs=False)
            ]
        else:
            topics = [self._asked(topic, denied, made) for topic in request.topics]
        if request.include_topic_authorized_operations:
            for topic in topics:
                if topic.name is not None and topic.error is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    topic.authorized_operations = auth.authorized_operations(call, TOPIC, topic.name)
        response = metadata.Response(
            brokers=[
                metadata.Broker(node_id=number, host=host, port=port)
                for number, (host, port) in cache.endpoints[call.connection.listener].items()
                if number in cache.nodes_up
            ],
            cluster_id=cache.cluster_id,
            controller_id=cache.controller,
            topics=topics,
        )
        if request.include_cluster_authorized_operations:
            response.cluster_authorized_operations = auth.cluster_operations(call)
        return response

    def _asked(self, asked: metadata.Topic, denied: frozenset[str], made: dict[str, Made]) -> metadata.DescribedTopic:
        """Describe a topic that was asked for by name, or by id."""
        if asked.name is None:
            topic = self.cache.topic_by_id(asked.topic_id)
            if topic is None:
                return metadata.DescribedTopic(error=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=asked.topic_id)
            if topic.name in denied:
                return metadata.DescribedTopic(error=DENIED, name=None, topic_id=asked.topic_id)
            return self._described(topic)
        if asked.name in denied:
            return metadata.DescribedTopic(error=DENIED, name=asked.name)
        topic = self.cache.topics.get(asked.name)
        if topic is not None:
            return self._described(topic)
        if not is_legal_name(asked.name):
            return metadata.DescribedTopic(error=ErrorCode.INVALID_TOPIC_EXCEPTION, name=asked.name)
        refused = made.get(asked.name)
        error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if isinstance(refused, TopicError) and refused.code not in LATER:
            error_code = refused.code
        return metadata.DescribedTopic(error=error_code, name=asked.name)

    def _described(self, topic: StoredTopic) -> metadata.DescribedTopic:
        states = self.cache.partition_states
        return metadata.DescribedTopic(
            name=topic.name,
            topic_id=topic.id,
            is_internal=is_internal(topic.name),
            partitions=[_partition(number, states[topic.name, number]) for number in range(topic.partitions)],
        )

    # --- DescribeTopicPartitions (KIP-966) ----------------------------------------------------------------------------

    def _describe_topic_partitions(self, call: Call, frame: bytes, at: int, now_ms: int) -> Effects:
        """Describe topics in order of name, page by page; all of them if none is named."""
        request = describe_topic_partitions.read_request(frame, at, call.version)
        asked = {topic.name for topic in request.topics}
        denied = self.auth.denied(call, DESCRIBE, TOPIC, sorted(asked))
        if not asked:
            asked = {name for name in self.cache.topics if self.auth.authorize(call, DESCRIBE, TOPIC, name, logs=False)}
        first, start = "", 0
        if request.cursor is not None:
            first, start = request.cursor.topic, request.cursor.partition
        left = min(max(request.response_partition_limit, 1), 2_000)
        topics: list[describe_topic_partitions.DescribedTopic] = []
        cursor: describe_topic_partitions.Cursor | None = None
        states = self.cache.partition_states
        for name in sorted(name for name in asked if name >= first and name not in denied):
            topic = self.cache.topics.get(name)
            if topic is None:
                code = (
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_legal_name(name) else ErrorCode.INVALID_TOPIC_EXCEPTION
                )
                topics.append(describe_topic_partitions.DescribedTopic(name=name, error=code))
                continue
            if not left:
                cursor = describe_topic_partitions.Cursor(topic=name, partition=0)
                break
            begin = max(start, 0) if name == first else 0
            numbers = range(begin, min(topic.partitions, begin + left))
            left -= len(numbers)
            topics.append(
                describe_topic_partitions.DescribedTopic(
                    name=name,
                    topic_id=topic.id,
                    is_internal=is_internal(name),
                    partitions=[
                        describe_topic_partitions.DescribedPartition(
                            partition=number,
                            leader_id=state.leader,
                            leader_epoch=state.leader_epoch,
                            replicas=(state.preferred_leader if state.leader == NO_LEADER else state.leader,),
                            isr=() if state.leader == NO_LEADER else (state.leader,),
                            eligible_leader_replicas=(),
                            last_known_elr=(),
                        )
                        for number, state in ((number, states[name, number]) for number in numbers)
                    ],
                )
            )
            if numbers.stop < topic.partitions:
                cursor = describe_topic_partitions.Cursor(topic=name, partition=numbers.stop)
                break
        for described in topics:
            described.authorized_operations = self.auth.authorized_operations(call, TOPIC, described.name or "")
        topics += [describe_topic_partitions.DescribedTopic(name=name, error=DENIED) for name in sorted(denied)]
        response = describe_topic_partitions.Response(topics=topics, next_cursor=cursor)
        return self.responses.answer(call, response, now_ms)


def _refused_for_ids(request: metadata.Request) -> metadata.Response:
    """Versions 10 and 11 have a field for ids and no use for it; the whole request is refused, as in Kafka."""
    topics = [
        metadata.DescribedTopic(error=ErrorCode.INVALID_REQUEST, name=one.name or "", topic_id=one.topic_id)
        for one in request.topics or ()
    ]
    return metadata.Response(brokers=(), cluster_id=None, controller_id=-1, topics=topics)


def _partition(number: int, state: PartitionState) -> metadata.DescribedPartition:
    """The one replica there is goes with the leadership; only if no node is up is it nowhere."""
    if state.leader == NO_LEADER:
        error = ErrorCode.LEADER_NOT_AVAILABLE
        preferred_leader = (state.preferred_leader,)
        return metadata.DescribedPartition(
            error=error,
            partition=number,
            leader_id=NO_LEADER,
            leader_epoch=state.leader_epoch,
            replicas=preferred_leader,
            isr=(),
            offline_replicas=preferred_leader,
        )
    here = (state.leader,)
    return metadata.DescribedPartition(
        partition=number, leader_id=state.leader, leader_epoch=state.leader_epoch, replicas=here, isr=here
    )
