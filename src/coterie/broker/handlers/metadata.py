"""Topics as they are: Metadata, DescribeTopicPartitions. Made in `topic_changes.py`, led as `leadership.py` says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.broker.calls import Call
from coterie.broker.handlers.refusals import TopicError
from coterie.broker.handlers.topic_changes import Made, by_default, create_each, is_internal
from coterie.broker.placement import NOBODY, Place
from coterie.errors import ErrorCode
from coterie.protocol.apis import describe_topic_partitions, metadata
from coterie.storage import Topic
from coterie.storage.topics_file import is_legal_name

if TYPE_CHECKING:
    from coterie.broker.node import Node

__all__ = ["HANDLERS"]


CREATED_WITHIN_MS = 10_000
"""Topics that are created because somebody asks: who asks for more at a time is told of the others later."""
LATER = frozenset({ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT})
"""Who asked for a topic asks again: then it is made, or there."""


# --- Metadata ---------------------------------------------------------------------------------------------------------


def _metadata(node: Node, call: Call, frame: bytes, at: int, _now_ms: int) -> None:
    """Names that are missing may be created on the spot (rule D3); then it is answered when they are there."""
    request = metadata.read_request(frame, at, call.version)
    if call.version < metadata.API.by_id and any(
        one.name is None or one.topic_id is not None for one in request.topics or ()
    ):
        node.answer(call, _refused_for_ids(request))
        return
    if request.topics is not None:  # asked for twice is answered once, as in Kafka
        request.topics = list({(one.name, one.topic_id): one for one in request.topics}.values())
    missing: list[str] = []
    if request.topics is not None and request.allow_auto_topic_creation and node.settings.auto_create_topics_enable:
        known = node.directory.topics
        missing = [asked.name for asked in request.topics if asked.name is not None and asked.name not in known]
    wanted = [by_default(node.cluster, name) for name in missing]
    create_each(
        node,
        call,
        wanted,
        CREATED_WITHIN_MS,
        lambda made: _answer(node, request, dict(zip(missing, made, strict=True))),
    )


def _refused_for_ids(request: metadata.Request) -> metadata.Response:
    """Versions 10 and 11 have a field for ids and no use for it; the whole request is refused, as in Kafka."""
    topics = [
        metadata.DescribedTopic(error=ErrorCode.INVALID_REQUEST, name=one.name or "", topic_id=one.topic_id)
        for one in request.topics or ()
    ]
    return metadata.Response(brokers=(), cluster_id=None, controller_id=-1, topics=topics)


def _answer(node: Node, request: metadata.Request, made: dict[str, Made]) -> metadata.Response:
    if request.topics is None:
        topics = [_described(node, topic) for topic in node.directory.topics.values()]
    else:
        topics = [_asked(node, topic, made) for topic in request.topics]
    cluster = node.cluster
    return metadata.Response(
        brokers=[
            metadata.Broker(node_id=one.node_id, host=one.endpoint[0], port=one.endpoint[1]) for one in cluster.nodes_up
        ],
        cluster_id=cluster.cluster_id,
        controller_id=cluster.leadership.controller,
        topics=topics,
    )


def _asked(node: Node, asked: metadata.Topic, made: dict[str, Made]) -> metadata.DescribedTopic:
    """By name, or by id."""
    if asked.name is None:
        name = node.topic_names.get(asked.topic_id) if asked.topic_id is not None else None
        if name is None:
            return metadata.DescribedTopic(error=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=asked.topic_id)
        return _described(node, node.directory.topics[name])
    topic = node.directory.topics.get(asked.name)
    if topic is not None:
        return _described(node, topic)
    if not is_legal_name(asked.name):
        return metadata.DescribedTopic(error=ErrorCode.INVALID_TOPIC_EXCEPTION, name=asked.name)
    refused = made.get(asked.name)
    error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if isinstance(refused, TopicError) and refused.code not in LATER:
        error_code = refused.code
    return metadata.DescribedTopic(error=error_code, name=asked.name)


def _described(node: Node, topic: Topic) -> metadata.DescribedTopic:
    places = node.cluster.leadership.places
    return metadata.DescribedTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=is_internal(topic.name),
        partitions=[_partition(number, places[topic.name, number]) for number in range(topic.partitions)],
    )


def _partition(number: int, place: Place) -> metadata.DescribedPartition:
    """The one replica there is goes with the leadership; only if no node is up is it nowhere."""
    if place.leader == NOBODY:
        error = ErrorCode.LEADER_NOT_AVAILABLE
        home = (place.home,)
        return metadata.DescribedPartition(
            error=error,
            partition=number,
            leader_id=NOBODY,
            leader_epoch=place.epoch,
            replicas=home,
            isr=(),
            offline_replicas=home,
        )
    here = (place.leader,)
    return metadata.DescribedPartition(
        partition=number, leader_id=place.leader, leader_epoch=place.epoch, replicas=here, isr=here
    )


# --- DescribeTopicPartitions (KIP-966) --------------------------------------------------------------------------------


def _describe_topic_partitions(node: Node, call: Call, frame: bytes, at: int, _now_ms: int) -> None:
    """In order of name, page by page; asked for none in particular, all of them."""
    request = describe_topic_partitions.read_request(frame, at, call.version)
    asked = {topic.name for topic in request.topics} or set(node.directory.topics)
    first, start = "", 0
    if request.cursor is not None:
        first, start = request.cursor.topic, request.cursor.partition
    left = min(max(request.response_partition_limit, 1), 2_000)
    topics: list[describe_topic_partitions.DescribedTopic] = []
    cursor: describe_topic_partitions.Cursor | None = None
    places = node.cluster.leadership.places
    for name in sorted(name for name in asked if name >= first):
        topic = node.directory.topics.get(name)
        if topic is None:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_legal_name(name) else ErrorCode.INVALID_TOPIC_EXCEPTION
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
                        leader_id=place.leader,
                        leader_epoch=place.epoch,
                        replicas=(place.home if place.leader == NOBODY else place.leader,),
                        isr=() if place.leader == NOBODY else (place.leader,),
                        eligible_leader_replicas=(),
                        last_known_elr=(),
                    )
                    for number, place in ((number, places[name, number]) for number in numbers)
                ],
            )
        )
        if numbers.stop < topic.partitions:
            cursor = describe_topic_partitions.Cursor(topic=name, partition=numbers.stop)
            break
    node.answer(call, describe_topic_partitions.Response(topics=topics, next_cursor=cursor))


HANDLERS = {
    metadata.API.key: _metadata,
    describe_topic_partitions.API.key: _describe_topic_partitions,
}
