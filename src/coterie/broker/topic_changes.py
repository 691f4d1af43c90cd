"""Topics come and go: CreateTopics, CreatePartitions, DeleteTopics, and topics that are made when somebody asks.

Each is one of the node's `changes`: judged in its turn, answered when the disk has it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from coterie.apis import create_partitions, create_topics, delete_topics
from coterie.apis.describe_configs import Resource
from coterie.broker.alter_configs import tidy
from coterie.broker.calls import Call
from coterie.broker.changes import Step
from coterie.broker.configs import TOPIC, Refusal, describe
from coterie.broker.groups import OFFSETS_TOPIC
from coterie.errors import ErrorCode
from coterie.ledger.written_facts import FACTS_TOPIC
from coterie.log import LogError, PartitionLog, Topic, remove_directory
from coterie.log.topics import is_legal_name
from coterie.messages import TopicsDeleted

if TYPE_CHECKING:
    from coterie.broker.node import Node

__all__ = ["FACTS_TOPIC", "HANDLERS", "Made", "TopicError", "check_name", "create", "ensure", "is_internal"]

MAX_PARTITIONS = 10_000
"""Of one topic: each has files open; a mistyped number must not bring the broker down."""


class TopicError(Exception):
    """Why something cannot be done to a topic, as a client is told."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


Made = Topic | TopicError


def is_internal(name: str) -> bool:
    return name in {OFFSETS_TOPIC, FACTS_TOPIC}


# --- creating ---------------------------------------------------------------------------------------------------------


def check_name(name: str) -> None:
    if not is_legal_name(name):
        raise TopicError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"{name!r} is no name for a topic: letters, digits, '.', '_' and '-', at most 249, not '.' or '..'",
        )


def create(
    node: Node, name: str, partitions: int, configs: Mapping[str, str | None], done: Callable[[Made], None], now_ms: int
) -> Step | None:
    """`done` hears when the topic is there, and durable; if it is that of the groups, they are served from then on."""
    try:
        topic = Topic(name, node.fresh_id(), partitions, check_new(node, name, partitions, configs))
    except TopicError as error:
        done(error)
        return None

    def then(outcome: LogError | None, at_ms: int) -> None:
        if outcome is not None:
            done(TopicError(outcome.code, str(outcome)))
            return
        node.topic_names[topic.id] = name
        if name == OFFSETS_TOPIC:
            node.group_logs.load(at_ms)
        done(topic)

    return Step(node.directory.create_topic(topic, now_ms), then)


def ensure(node: Node, name: str, done: Callable[[Made], None], now_ms: int) -> Step | None:
    """A topic somebody spoke of, with the broker's defaults; `__consumer_offsets` and our own with theirs (C2)."""
    topic = node.directory.topics.get(name)
    if topic is not None:
        done(topic)
        return None
    settings = node.settings
    if name == OFFSETS_TOPIC:
        return create(node, name, settings.offsets_topic_num_partitions, settings.offsets_topic_configs, done, now_ms)
    if name == FACTS_TOPIC:
        return create(node, name, 1, {}, done, now_ms)
    return create(node, name, settings.num_partitions, {}, done, now_ms)


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


def _create_topics(node: Node, call: Call, frame: bytes, at: int, _now_ms: int) -> None:
    request = create_topics.read_request(frame, at, call.version)
    named = Counter(topic.name for topic in request.topics)
    asked = list({topic.name: topic for topic in request.topics}.values())  # of those named twice, one answer

    def change(
        node: Node, topic: create_topics.NewTopic, done: Callable[[create_topics.CreatedTopic], None], now_ms: int
    ) -> Step | None:
        if named[topic.name] > 1:
            error = TopicError(ErrorCode.INVALID_REQUEST, "the request names this topic twice")
            done(_refused(topic, error))
            return None
        return _create_one(node, topic, done, now_ms, validate_only=request.validate_only)

    node.change_each(call, asked, change, lambda answers: create_topics.Response(topics=answers))


def _refused(asked: create_topics.NewTopic, error: TopicError) -> create_topics.CreatedTopic:
    return create_topics.CreatedTopic(name=asked.name, error=error.code, message=str(error))


def _create_one(
    node: Node,
    asked: create_topics.NewTopic,
    done: Callable[[create_topics.CreatedTopic], None],
    now_ms: int,
    *,
    validate_only: bool,
) -> Step | None:
    configs = {config.name: config.value for config in asked.configs}
    try:
        partitions = _partitions_of(node, asked)
        kept = check_new(node, asked.name, partitions, configs)
    except TopicError as error:
        done(_refused(asked, error))
        return None

    def answer(made: Made | None) -> None:
        if isinstance(made, TopicError):
            done(_refused(asked, made))
            return
        answer = create_topics.CreatedTopic(
            name=asked.name,
            topic_id=made.id if made is not None else None,
            num_partitions=partitions,
            replication_factor=1,
            configs=_created_configs(node, asked.name, kept),
        )
        done(answer)

    if validate_only:
        answer(None)
        return None
    return create(node, asked.name, partitions, configs, answer, now_ms)


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


def _create_partitions(node: Node, call: Call, frame: bytes, at: int, _now_ms: int) -> None:
    request = create_partitions.read_request(frame, at, call.version)
    change = partial(_grow, validate_only=request.validate_only)
    node.change_each(call, request.topics, change, lambda results: create_partitions.Response(results=results))


def _grow(
    node: Node,
    asked: create_partitions.Topic,
    done: Callable[[create_partitions.Result], None],
    now_ms: int,
    *,
    validate_only: bool,
) -> Step | None:
    def then(outcome: TopicError | LogError | None, _at_ms: int) -> None:
        result = create_partitions.Result(name=asked.name)
        if outcome is not None:
            result.error, result.message = outcome.code, str(outcome)
        done(result)

    try:
        _check_growth(node, asked)
    except TopicError as error:
        then(error, now_ms)
        return None
    if validate_only:
        then(None, now_ms)
        return None
    return Step(node.directory.add_partitions(asked.name, asked.count, now_ms), then)


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


def _delete_topics(node: Node, call: Call, frame: bytes, at: int, _now_ms: int) -> None:
    request = delete_topics.read_request(frame, at, call.version)

    def finish(answers: list[delete_topics.DeletedTopic]) -> delete_topics.Response:
        gone = frozenset(answer.name for answer in answers if not answer.error and answer.name is not None)
        if gone:
            node.ask(TopicsDeleted(gone), node.now_ms)
        return delete_topics.Response(responses=answers)

    node.change_each(call, request.topics, _delete_one, finish)


def _delete_one(
    node: Node, asked: delete_topics.Topic, done: Callable[[delete_topics.DeletedTopic], None], _now_ms: int
) -> Step | None:
    name = asked.name if asked.topic_id is None else node.topic_names.get(asked.topic_id)
    topic = node.directory.topics.get(name) if name is not None else None
    if topic is None:
        by_id = asked.topic_id is not None
        code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        done(delete_topics.DeletedTopic(name=asked.name, topic_id=asked.topic_id, error=code))
        return None
    answer = delete_topics.DeletedTopic(name=topic.name, topic_id=topic.id)
    if not node.settings.delete_topic_enable:
        answer.error, answer.message = ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false"
    elif is_internal(topic.name):
        answer.error, answer.message = ErrorCode.INVALID_REQUEST, f"{topic.name} is where the groups are kept"
    if answer.error:
        done(answer)
        return None

    def then(outcome: list[PartitionLog] | LogError, at_ms: int) -> Step | None:
        if isinstance(outcome, LogError):
            answer.error, answer.message = outcome.code, str(outcome)
            done(answer)
            return None
        del node.topic_names[topic.id]
        for log in outcome:
            node.flusher.forget(log, at_ms)
            node.fetches.log_deleted(log)
        done(answer)
        return Step(node.directory.clear_away(topic, outcome), partial(_cleared_away, node))

    return Step(node.directory.delete_topic(topic.name), then)


def _cleared_away(node: Node, outcome: list[str] | LogError, now_ms: int) -> None:
    if isinstance(outcome, LogError):
        node.tell_trouble(str(outcome), now_ms)
        return
    for path in outcome:
        node.do_later(f"files of a deleted topic, {path}", partial(remove_directory, node.files, path))


HANDLERS = {
    create_topics.API.key: _create_topics,
    create_partitions.API.key: _create_partitions,
    delete_topics.API.key: _delete_topics,
}
