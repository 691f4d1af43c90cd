"""Topics: Metadata, CreateTopics, CreatePartitions, DeleteTopics, DescribeTopicPartitions. One node leads them all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from coterie.apis import create_partitions, create_topics, delete_topics, describe_topic_partitions, metadata
from coterie.apis.describe_configs import Resource
from coterie.broker.alter_configs import tidy
from coterie.broker.calls import Call
from coterie.broker.configs import TOPIC, Refusal, describe
from coterie.broker.fetch import LEADER_EPOCH
from coterie.broker.groups import OFFSETS_TOPIC
from coterie.errors import ErrorCode
from coterie.log import LogError, Topic, remove_directory
from coterie.log.topics import is_legal_name
from coterie.messages import TopicsDeleted

if TYPE_CHECKING:
    from coterie.broker.node import Node

__all__ = ["HANDLERS", "TopicError", "create", "create_offsets_topic", "is_internal"]

MAX_PARTITIONS = 10_000
"""Of one topic: each has files open; a mistyped number must not bring the broker down."""


class TopicError(Exception):
    """Why something cannot be done to a topic, as a client is told."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


def is_internal(name: str) -> bool:
    return name == OFFSETS_TOPIC


# --- Metadata ---------------------------------------------------------------------------------------------------------


def _metadata(node: Node, call: Call, frame: bytes, at: int, now_ms: int) -> None:
    request = metadata.read_request(frame, at, call.version)
    if request.topics is None:
        topics = [_described(node, topic) for topic in node.directory.topics.values()]
    else:
        create_missing = request.allow_auto_topic_creation and node.settings.auto_create_topics_enable
        topics = [_asked(node, topic, now_ms, create_missing=create_missing) for topic in request.topics]
    host, port = node.endpoint
    answer = metadata.Response(
        brokers=[metadata.Broker(node_id=node.node_id, host=host, port=port)],
        cluster_id=node.cluster_id,
        controller_id=node.node_id,
        topics=topics,
    )
    node.answer(call, answer)


def _asked(node: Node, asked: metadata.Topic, now_ms: int, *, create_missing: bool) -> metadata.DescribedTopic:
    """By name, or by id; a missing name may be created on the spot (rule D3)."""
    if asked.name is None:
        name = node.topic_names.get(asked.topic_id) if asked.topic_id is not None else None
        if name is None:
            return metadata.DescribedTopic(error=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=asked.topic_id)
        return _described(node, node.directory.topics[name])
    topic = node.directory.topics.get(asked.name)
    if topic is not None:
        return _described(node, topic)
    try:
        if not create_missing:
            check_name(asked.name)
            return metadata.DescribedTopic(error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=asked.name)
        if is_internal(asked.name):
            return _described(node, create_offsets_topic(node, now_ms))
        return _described(node, create(node, asked.name, node.settings.num_partitions, {}, now_ms))
    except TopicError as error:
        return metadata.DescribedTopic(error=error.code, name=asked.name)


def _described(node: Node, topic: Topic) -> metadata.DescribedTopic:
    here = (node.node_id,)
    return metadata.DescribedTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=is_internal(topic.name),
        partitions=[
            metadata.DescribedPartition(
                partition=number, leader_id=node.node_id, leader_epoch=LEADER_EPOCH, replicas=here, isr=here
            )
            for number in range(topic.partitions)
        ],
    )


# --- creating ---------------------------------------------------------------------------------------------------------


def check_name(name: str) -> None:
    if not is_legal_name(name):
        raise TopicError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"{name!r} is no name for a topic: letters, digits, '.', '_' and '-', at most 249, not '.' or '..'",
        )


def create(node: Node, name: str, partitions: int, configs: Mapping[str, str | None], now_ms: int) -> Topic:
    """The topic is there, and durable, when this returns; if it is that of the groups, they are served from now on."""
    topic = Topic(name, node.fresh_id(), partitions, check_new(node, name, partitions, configs))
    try:
        node.directory.create_topic(topic, now_ms)
    except LogError as error:
        raise TopicError(error.code, str(error)) from None
    node.topic_names[topic.id] = name
    if is_internal(name):
        node.group_logs.load(now_ms)
    return topic


def check_new(node: Node, name: str, partitions: int, configs: Mapping[str, str | None]) -> dict[str, str]:
    """Whether there can be such a topic; its configs as they are kept."""
    check_name(name)
    if name in node.directory.topics:
        raise TopicError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    clash = _clash(node, name)
    if clash is not None:
        raise TopicError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"{name!r} and {clash!r} differ only in '.' and '_', which metrics mix up",
        )
    check_count(partitions)
    kept = tidy(configs, node.settings)
    if isinstance(kept, Refusal):
        raise TopicError(kept.error, kept.message)
    return kept


def _clash(node: Node, name: str) -> str | None:
    """Kafka's metrics write dots as underscores, so two such topics would be one to them."""
    if "." not in name and "_" not in name:
        return None
    flat = name.replace(".", "_")
    return next((other for other in node.directory.topics if other.replace(".", "_") == flat), None)


def check_count(partitions: int) -> None:
    if partitions < 1:
        raise TopicError(ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0.")
    if partitions > MAX_PARTITIONS:
        raise TopicError(
            ErrorCode.INVALID_PARTITIONS,
            f"{partitions} partitions; this broker opens at most {MAX_PARTITIONS} of a topic",
        )


def create_offsets_topic(node: Node, now_ms: int) -> Topic:
    """`__consumer_offsets`, when somebody first asks for a coordinator (C2); its groups are served at once."""
    topic = node.directory.topics.get(OFFSETS_TOPIC)
    if topic is not None:
        return topic
    configs = node.settings.offsets_topic_configs
    return create(node, OFFSETS_TOPIC, node.settings.offsets_topic_num_partitions, configs, now_ms)


def _create_topics(node: Node, call: Call, frame: bytes, at: int, now_ms: int) -> None:
    request = create_topics.read_request(frame, at, call.version)
    named = Counter(topic.name for topic in request.topics)
    answers: list[create_topics.CreatedTopic] = []
    for topic in request.topics:
        if named[topic.name] != 1:
            if named.pop(topic.name, None):  # of those named twice, one answer
                answers.append(
                    create_topics.CreatedTopic(
                        name=topic.name, error=ErrorCode.INVALID_REQUEST, message="the request names this topic twice"
                    )
                )
            continue
        answers.append(_create_one(node, topic, now_ms, validate_only=request.validate_only))
    node.answer(call, create_topics.Response(topics=answers))


def _create_one(
    node: Node, asked: create_topics.NewTopic, now_ms: int, *, validate_only: bool
) -> create_topics.CreatedTopic:
    try:
        partitions = _partitions_of(node, asked)
        configs = {config.name: config.value for config in asked.configs}
        topic_id: UUID | None = None
        if validate_only:
            kept = check_new(node, asked.name, partitions, configs)
        else:
            topic = create(node, asked.name, partitions, configs, now_ms)
            topic_id, kept = topic.id, topic.configs
    except TopicError as error:
        return create_topics.CreatedTopic(name=asked.name, error=error.code, message=str(error))
    return create_topics.CreatedTopic(
        name=asked.name,
        topic_id=topic_id,
        num_partitions=partitions,
        replication_factor=1,
        configs=_created_configs(node, asked.name, kept),
    )


def _created_configs(node: Node, name: str, kept: dict[str, str]) -> list[create_topics.CreatedConfig]:
    described = describe(Resource(resource_type=TOPIC, resource_name=name), kept, node.settings)
    return [
        create_topics.CreatedConfig(
            name=config.name,
            value=config.value,
            read_only=config.read_only,
            config_source=config.config_source,
            is_sensitive=config.is_sensitive,
        )
        for config in described.configs
    ]


def _partitions_of(node: Node, asked: create_topics.NewTopic) -> int:
    if asked.assignments:
        if asked.num_partitions != -1 or asked.replication_factor != -1:
            raise TopicError(
                ErrorCode.INVALID_REQUEST,
                "an assignment is given, so the numbers of partitions and replicas must be -1",
            )
        numbers = sorted(one.partition for one in asked.assignments)
        if numbers != list(range(len(numbers))):
            raise TopicError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"an assignment names partitions 0, 1, 2, ...; this one: {numbers}",
            )
        _check_replicas(node, [one.broker_ids for one in asked.assignments])
        return len(numbers)
    if asked.replication_factor not in (-1, 1):
        raise TopicError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {asked.replication_factor}: this broker keeps one replica; give 1, or -1",
        )
    if asked.num_partitions == -1:
        return node.settings.num_partitions
    if asked.num_partitions < 1:
        raise TopicError(
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        )
    return asked.num_partitions


def _check_replicas(node: Node, lists: Sequence[Sequence[int]]) -> None:
    for replicas in lists:
        if list(replicas) != [node.node_id]:
            raise TopicError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"replicas {list(replicas)}: the only broker there is has id {node.node_id}",
            )


def _create_partitions(node: Node, call: Call, frame: bytes, at: int, now_ms: int) -> None:
    request = create_partitions.read_request(frame, at, call.version)
    results = [_grow(node, topic, now_ms, validate_only=request.validate_only) for topic in request.topics]
    node.answer(call, create_partitions.Response(results=results))


def _grow(node: Node, asked: create_partitions.Topic, now_ms: int, *, validate_only: bool) -> create_partitions.Result:
    try:
        _check_growth(node, asked)
        if not validate_only:
            node.directory.add_partitions(asked.name, asked.count, now_ms)
    except (TopicError, LogError) as error:
        return create_partitions.Result(name=asked.name, error=error.code, message=str(error))
    return create_partitions.Result(name=asked.name)


def _check_growth(node: Node, asked: create_partitions.Topic) -> None:
    topic = node.directory.topics.get(asked.name)
    if topic is None:
        raise TopicError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {asked.name!r}")
    if asked.count <= topic.partitions:
        raise TopicError(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {asked.name!r} has {topic.partitions} partitions; {asked.count} would not be more",
        )
    check_count(asked.count)
    if is_internal(asked.name):
        raise TopicError(
            ErrorCode.INVALID_REQUEST, f"{asked.name} cannot grow: groups would be looked for where they are not"
        )
    if asked.assignments is None:
        return
    new = asked.count - topic.partitions
    if len(asked.assignments) != new:
        raise TopicError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{new} new partitions, but {len(asked.assignments)} assignments"
        )
    _check_replicas(node, [one.broker_ids for one in asked.assignments])


# --- deleting ---------------------------------------------------------------------------------------------------------


def _delete_topics(node: Node, call: Call, frame: bytes, at: int, now_ms: int) -> None:
    request = delete_topics.read_request(frame, at, call.version)
    answers = [_delete_one(node, topic, now_ms) for topic in request.topics]
    gone = frozenset(answer.name for answer in answers if not answer.error and answer.name is not None)
    if gone:
        node.ask(TopicsDeleted(gone), now_ms)
    node.answer(call, delete_topics.Response(responses=answers))


def _delete_one(node: Node, asked: delete_topics.Topic, now_ms: int) -> delete_topics.DeletedTopic:
    name = asked.name if asked.topic_id is None else node.topic_names.get(asked.topic_id)
    topic = node.directory.topics.get(name) if name is not None else None
    if topic is None:
        by_id = asked.topic_id is not None
        code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return delete_topics.DeletedTopic(name=asked.name, topic_id=asked.topic_id, error=code)
    refusal: tuple[ErrorCode, str] | None = None
    if not node.settings.delete_topic_enable:
        refusal = (ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false")
    elif is_internal(topic.name):
        refusal = (ErrorCode.INVALID_REQUEST, f"{topic.name} is where the groups are kept")
    if refusal is not None:
        code, message = refusal
        return delete_topics.DeletedTopic(name=topic.name, topic_id=topic.id, error=code, message=message)
    logs = [node.directory.logs[topic.name, partition] for partition in range(topic.partitions)]
    try:
        paths = node.directory.delete_topic(topic.name)
    except LogError as error:
        return delete_topics.DeletedTopic(name=topic.name, topic_id=topic.id, error=error.code, message=str(error))
    del node.topic_names[topic.id]
    for log in logs:
        node.flusher.forget(log, now_ms)
        node.fetches.log_deleted(log)
    for path in paths:
        node.do_later(f"files of {topic.name}", partial(remove_directory, node.files, path))
    return delete_topics.DeletedTopic(name=topic.name, topic_id=topic.id)


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
    here = (node.node_id,)
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
                        leader_id=node.node_id,
                        leader_epoch=LEADER_EPOCH,
                        replicas=here,
                        isr=here,
                        eligible_leader_replicas=(),
                        last_known_elr=(),
                    )
                    for number in numbers
                ],
            )
        )
        if numbers.stop < topic.partitions:
            cursor = describe_topic_partitions.Cursor(topic=name, partition=numbers.stop)
            break
    node.answer(call, describe_topic_partitions.Response(topics=topics, next_cursor=cursor))


HANDLERS = {
    metadata.API.key: _metadata,
    create_topics.API.key: _create_topics,
    create_partitions.API.key: _create_partitions,
    delete_topics.API.key: _delete_topics,
    describe_topic_partitions.API.key: _describe_topic_partitions,
}
