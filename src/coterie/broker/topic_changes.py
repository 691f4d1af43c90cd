"""Topics come and go: CreateTopics, CreatePartitions, DeleteTopics, and topics that are made when somebody asks.

Each is one of the node's `changes`: judged in its turn, answered when the disk has it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from coterie.apis import create_partitions, create_topics, delete_topics
from coterie.apis.describe_configs import Resource
from coterie.apis.values import ResourceType
from coterie.broker.alter_configs import tidy
from coterie.broker.calls import Call
from coterie.broker.changes import Step
from coterie.broker.configs import describe
from coterie.broker.placement import Partition, Place
from coterie.broker.refusals import Refusal, TopicError, illegal_name, no_such_topic
from coterie.broker.replicas import check_replication_factor, replica_home
from coterie.errors import ErrorCode
from coterie.ledger.written_facts import FACTS_TOPIC
from coterie.log import LogError, PartitionLog, Topic, remove_directory
from coterie.log.topics import is_legal_name
from coterie.messages import TopicsDeleted
from coterie.wire.offsets_topic import OFFSETS_TOPIC

if TYPE_CHECKING:
    from coterie.broker.cluster import Cluster
    from coterie.broker.node import Node

__all__ = [
    "HANDLERS",
    "Made",
    "ensure",
    "ensure_from",
    "is_internal",
]

MAX_PARTITIONS = 10_000
"""Of one topic: each has files open; a mistyped number must not bring the broker down."""


NOWHERE: Mapping[int, int] = MappingProxyType({})
"""No partition was asked for on a certain node."""
Made = Topic | TopicError


def is_internal(name: str) -> bool:
    return name in {OFFSETS_TOPIC, FACTS_TOPIC}


# --- creating ---------------------------------------------------------------------------------------------------------


def create(
    cluster: Cluster,
    name: str,
    partitions: int,
    configs: Mapping[str, str | None],
    done: Callable[[Made], None],
    now_ms: int,
    homes: Mapping[int, int] = NOWHERE,
) -> Step | None:
    """`done` hears when the topic is there, and durable; if it is that of the groups, they are served from then on.

    `homes` are the nodes that partitions were asked for on.
    """
    try:
        topic = Topic(name, cluster.fresh_id(), partitions, check_new(cluster, name, partitions, configs))
    except TopicError as error:
        done(error)
        return None
    places = cluster.leadership.new_places(name, range(partitions), homes)

    def then(outcome: LogError | None, at_ms: int) -> None:
        if outcome is not None:
            done(TopicError(outcome.code, str(outcome)))
            return
        cluster.topic_names[topic.id] = name
        cluster.leadership.created(places)
        if name == OFFSETS_TOPIC:
            cluster.load_groups(at_ms)
        done(topic)

    return _kept_first(cluster, topic, places, Step(cluster.directory.create_topic(topic, now_ms), then))


def _kept_first(cluster: Cluster, topic: Topic, places: Mapping[Partition, Place], creation: Step) -> Step:
    """Before partitions are created it is kept who leads them, if that is not to be expected."""
    keeping = cluster.leadership.keeping(topic, places)
    if keeping is None:
        return creation

    def then(outcome: LogError | None, now_ms: int) -> Step | None:
        return creation if outcome is None else creation.then(outcome, now_ms)

    return Step(keeping, then)


def ensure(cluster: Cluster, name: str, done: Callable[[Made], None], now_ms: int) -> Step | None:
    """A topic somebody spoke of, with the broker's defaults; `__consumer_offsets` and our own with theirs (C2)."""
    topic = cluster.directory.topics.get(name)
    if topic is not None:
        done(topic)
        return None
    settings = cluster.settings
    if name == OFFSETS_TOPIC:
        number = settings.offsets_topic_num_partitions
        return create(cluster, name, number, settings.offsets_topic_configs, done, now_ms)
    if name == FACTS_TOPIC:
        return create(cluster, name, 1, {}, done, now_ms)
    return create(cluster, name, settings.num_partitions, {}, done, now_ms)


def ensure_from(node: Node, name: str, done: Callable[[Made], None], now_ms: int) -> Step | None:
    """For a client of this node."""
    return ensure(node.cluster, name, done, now_ms)


def check_new(cluster: Cluster, name: str, partitions: int, configs: Mapping[str, str | None]) -> dict[str, str]:
    """Whether there can be such a topic; its configs as they are kept."""
    if not is_legal_name(name):
        raise TopicError(*illegal_name(name))
    if name in cluster.directory.topics:
        raise TopicError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    clash = _clash(cluster, name)
    if clash is not None:
        raise TopicError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"{name!r} and {clash!r} differ only in '.' and '_', which metrics mix up",
        )
    check_count(partitions)
    kept = tidy(configs, cluster.settings)
    if isinstance(kept, Refusal):
        raise TopicError(kept.error, kept.message)
    return kept


def _clash(cluster: Cluster, name: str) -> str | None:
    """Kafka's metrics write dots as underscores, so two such topics would be one to them."""
    if "." not in name and "_" not in name:
        return None
    flat = name.replace(".", "_")
    return next((other for other in cluster.directory.topics if other.replace(".", "_") == flat), None)


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
        partitions, homes = _partitions_of(node, asked)
        kept = check_new(node.cluster, asked.name, partitions, configs)
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
    return create(node.cluster, asked.name, partitions, configs, answer, now_ms, homes)


def _created_configs(node: Node, name: str, kept: dict[str, str]) -> list[create_topics.CreatedConfig]:
    described = describe(Resource(resource_type=ResourceType.TOPIC, resource_name=name), kept, node.settings)
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


def _partitions_of(node: Node, asked: create_topics.NewTopic) -> tuple[int, Mapping[int, int]]:
    """How many, and on which nodes if that was said."""
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
        return len(numbers), {one.partition: replica_home(node, one.broker_ids) for one in asked.assignments}
    check_replication_factor(node, asked.replication_factor)
    if asked.num_partitions == -1:
        return node.settings.num_partitions, NOWHERE
    if asked.num_partitions < 1:
        raise TopicError(
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        )
    return asked.num_partitions, NOWHERE


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
    cluster = node.cluster
    places: Mapping[Partition, Place] = {}

    def then(outcome: TopicError | LogError | None, _at_ms: int) -> None:
        result = create_partitions.Result(name=asked.name)
        if outcome is not None:
            result.error, result.message = outcome.code, str(outcome)
        else:
            cluster.leadership.created(places)
        done(result)

    try:
        homes = _check_growth(node, asked)
    except TopicError as error:
        then(error, now_ms)
        return None
    if validate_only:
        then(None, now_ms)
        return None
    topic = cluster.directory.topics[asked.name]
    places = cluster.leadership.new_places(asked.name, range(topic.partitions, asked.count), homes)
    growth = Step(cluster.directory.add_partitions(asked.name, asked.count, now_ms), then)
    return _kept_first(cluster, replace(topic, partitions=asked.count), places, growth)


def _check_growth(node: Node, asked: create_partitions.Topic) -> Mapping[int, int]:
    """The nodes that new partitions were asked for on, if that was said."""
    topic = node.directory.topics.get(asked.name)
    if topic is None:
        raise TopicError(*no_such_topic(asked.name))
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
        return NOWHERE
    new = asked.count - topic.partitions
    if len(asked.assignments) != new:
        raise TopicError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{new} new partitions, but {len(asked.assignments)} assignments"
        )
    homes = [replica_home(node, one.broker_ids) for one in asked.assignments]
    return dict(enumerate(homes, topic.partitions))


# --- deleting ---------------------------------------------------------------------------------------------------------


def _delete_topics(node: Node, call: Call, frame: bytes, at: int, _now_ms: int) -> None:
    request = delete_topics.read_request(frame, at, call.version)

    def finish(answers: list[delete_topics.DeletedTopic]) -> delete_topics.Response:
        gone = frozenset(answer.name for answer in answers if not answer.error and answer.name is not None)
        if gone:
            for each in node.cluster.nodes.values():
                each.ask(TopicsDeleted(gone), node.cluster.now_ms)
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
        node.cluster.leadership.deleted(topic)
        for log in outcome:
            node.flusher.forget(log, at_ms)
            node.fetches.look_again(log)
        done(answer)
        return Step(node.directory.clear_away(topic, outcome), partial(_cleared_away, node))

    return Step(node.directory.delete_topic(topic.name), then)


def _cleared_away(node: Node, outcome: list[str] | LogError, now_ms: int) -> None:
    if isinstance(outcome, LogError):
        node.tell_trouble(str(outcome), now_ms)
        return
    for path in outcome:
        node.do_later(f"files of a deleted topic, {path}", partial(remove_directory, node.cluster.files, path))


HANDLERS = {
    create_topics.API.key: _create_topics,
    create_partitions.API.key: _create_partitions,
    delete_topics.API.key: _delete_topics,
}
