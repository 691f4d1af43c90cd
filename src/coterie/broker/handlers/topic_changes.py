"""Topics come and go: CreateTopics, CreatePartitions, DeleteTopics, and topics that are made when somebody asks.

Each is one of the node's `changes`: judged in its turn, answered when the disk has it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from uuid import UUID

from coterie.broker.calls import Call, Gather
from coterie.broker.configs.alter_configs import tidy
from coterie.broker.configs.describe_configs import describe
from coterie.broker.handlers.refusals import Refusal, TopicError, illegal_name, no_such_topic
from coterie.broker.handlers.replicas import check_replication_factor, replica_home
from coterie.broker.maintenance.directory_changes import Step
from coterie.broker.placement import Partition, Place
from coterie.errors import ErrorCode
from coterie.ledger.written_facts import FACTS_TOPIC
from coterie.protocol.api_values import ResourceType
from coterie.protocol.apis import create_partitions, create_topics, delete_topics
from coterie.protocol.apis.describe_configs import Resource
from coterie.protocol.messages import TopicsDeleted
from coterie.protocol.offsets_topic import OFFSETS_TOPIC
from coterie.storage import SLICE, Creation, LogError, PartitionLog, Topic, offsets_topic_configs, remove_directory
from coterie.storage.topics_file import is_legal_name

if TYPE_CHECKING:
    from coterie.broker.cluster import Cluster
    from coterie.broker.node import Node

__all__ = [
    "HANDLERS",
    "Made",
    "Wanted",
    "by_default",
    "create_each",
    "ensure",
    "ensure_from",
    "is_internal",
]

MAX_PARTITIONS = 10_000
"""Of one topic, and of all that one request creates: as in Kafka."""
NO_ID = UUID(int=0)
"""Of a topic that is not created."""


NOWHERE: Mapping[int, int] = MappingProxyType({})
"""No partition was asked for on a certain node."""
Made = Topic | TopicError


def is_internal(name: str) -> bool:
    return name in {OFFSETS_TOPIC, FACTS_TOPIC}


# --- creating ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Wanted:
    """A topic that is to be created."""

    name: str
    partitions: int
    done: Callable[[Made], None]
    """Told once: the topic, when it is there and durable, or why it cannot be."""
    configs: Mapping[str, str | None] = field(default_factory=dict)
    homes: Mapping[int, int] = field(default_factory=lambda: NOWHERE)
    """Nodes that partitions were asked for on."""
    may_exist: bool = False


def create(cluster: Cluster, wanted: Sequence[Wanted], now_ms: int) -> Step | None:
    """Create topics with one write of the topics' file. If it is the topic of the groups, they are served then."""
    names = Names(cluster)
    topics: list[Topic] = []
    accepted: list[Wanted] = []
    places: dict[Partition, Place] = {}
    for one in wanted:
        existing = cluster.directory.topics.get(one.name)
        if existing is not None and one.may_exist:
            one.done(existing)
            continue
        try:
            kept = names.check_new(one.name, one.partitions, one.configs)
        except TopicError as error:
            one.done(error)
            continue
        names.add(one.name, one.partitions)
        topics.append(Topic(one.name, cluster.fresh_id(), one.partitions, kept))
        accepted.append(one)
        places |= cluster.leadership.new_places(one.name, range(one.partitions), one.homes)
    if not topics:
        return None

    def then(outcome: LogError | TopicError | None, at_ms: int) -> None:
        if outcome is not None:
            for one in accepted:
                one.done(TopicError(outcome.code, str(outcome)))
            return
        cluster.leadership.created(places)
        for topic in topics:
            cluster.topic_names[topic.id] = topic.name
            if topic.name == OFFSETS_TOPIC:
                cluster.load_groups(at_ms)
        for one, topic in zip(accepted, topics, strict=True):
            one.done(topic)

    return _kept_first(cluster, topics, places, cluster.directory.create(topics, cluster.wall.at(now_ms)), then)


def _kept_first(
    cluster: Cluster,
    topics: Sequence[Topic],
    places: Mapping[Partition, Place],
    creation: Creation,
    then: Callable[[LogError | TopicError | None, int], None],
) -> Step:
    """Before partitions are created it is kept who leads them, if that is not to be expected."""

    def ended(outcome: LogError | None, now_ms: int) -> Step | None:
        if outcome is not None or creation.is_done:
            then(outcome, now_ms)
            return None
        if cluster.changes.is_closing:
            return Step(creation.undo(), lambda _outcome, at_ms: then(_closing(), at_ms))
        return Step(creation.next(), ended)

    keeping = cluster.leadership.keeping(topics, places)
    return Step(creation.next() if keeping is None else keeping, ended)


def _closing() -> TopicError:
    """A client asks again then, here or elsewhere."""
    return TopicError(ErrorCode.NOT_CONTROLLER, "the broker is being stopped")


def create_each(
    node: Node, call: Call, wanted: Sequence[Wanted], timeout_ms: int, finish: Callable[[list[Made]], Any]
) -> None:
    """Create topics in slices, each one of the changes; what has not begun when the time is over is refused."""
    if not wanted:
        node.answer(call, finish([]))
        return
    cluster = node.cluster
    gather = Gather(call, len(wanted), finish)
    until_ms = cluster.now_ms + timeout_ms
    for index, one in enumerate(wanted):
        one.done = partial(node.gather, gather, index)

    def judge(some: Sequence[Wanted], now_ms: int) -> Step | None:
        refusal: TopicError | None = None
        if cluster.changes.is_closing:
            refusal = _closing()
        elif now_ms > until_ms and some[0] is not wanted[0]:
            refusal = TopicError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"not created within {timeout_ms} ms, the timeout of the request: ask again, for fewer at a time",
            )
        if refusal is None:
            return create(cluster, some, now_ms)
        for one in some:
            one.done(refusal)
        return None

    for some in _slices(wanted):
        cluster.changes.ask(call, partial(judge, some))


def _slices(wanted: Sequence[Wanted]) -> Iterator[Sequence[Wanted]]:
    """Split new partitions into slices that are created at once."""
    some: list[Wanted] = []
    partitions = 0
    for one in wanted:
        if some and partitions + one.partitions > SLICE:
            yield some
            some, partitions = [], 0
        some.append(one)
        partitions += one.partitions
    yield some


def _nobody(_made: Made) -> None:
    """Waits for it."""


def by_default(cluster: Cluster, name: str, done: Callable[[Made], None] = _nobody) -> Wanted:
    """Return the topic to create for a request. It has the broker's defaults; internal topics have theirs (C2)."""
    settings = cluster.settings
    ours: Mapping[str, tuple[int, Mapping[str, str]]] = {
        OFFSETS_TOPIC: (settings.offsets_topic_num_partitions, offsets_topic_configs(settings)),
        FACTS_TOPIC: (1, {}),
    }
    partitions, configs = ours.get(name, (settings.num_partitions, {}))
    return Wanted(name, partitions, done, configs, may_exist=True)


def ensure(cluster: Cluster, name: str, done: Callable[[Made], None], now_ms: int) -> Step | None:
    """A topic somebody spoke of."""
    return create(cluster, [by_default(cluster, name, done)], now_ms)


def ensure_from(node: Node, name: str, done: Callable[[Made], None], now_ms: int) -> Step | None:
    """For a client of this node."""
    return ensure(node.cluster, name, done, now_ms)


class Names:
    """The topics there are, and those that are about to be created with one that is looked at."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._flat: dict[str, str] | None = None
        self._new: set[str] = set()
        self._partitions = len(cluster.directory.logs)

    def add(self, name: str, partitions: int) -> None:
        self._new.add(name)
        self._partitions += partitions
        if self._flat is not None and _mixes(name):
            self._flat[_flat(name)] = name

    def check_new(self, name: str, partitions: int, configs: Mapping[str, str | None]) -> dict[str, str]:
        """Whether there can be such a topic; its configs as they are kept."""
        if not is_legal_name(name):
            raise TopicError(*illegal_name(name))
        if name in self._cluster.directory.topics or name in self._new:
            raise TopicError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        clash = self._clash(name)
        if clash is not None:
            raise TopicError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"{name!r} and {clash!r} differ only in '.' and '_', which metrics mix up",
            )
        check_count(partitions)
        kept = tidy(configs, self._cluster.settings)
        if isinstance(kept, Refusal):
            raise TopicError(kept.error, kept.message)
        if not is_internal(name):
            check_room(self._cluster, partitions, self._partitions)
        return kept

    def _clash(self, name: str) -> str | None:
        """Kafka's metrics write dots as underscores, so two such topics would be one to them."""
        if not _mixes(name):
            return None
        if self._flat is None:
            names = (*self._cluster.directory.topics, *self._new)
            self._flat = {_flat(other): other for other in names if _mixes(other)}
        return self._flat.get(_flat(name))


def _mixes(name: str) -> bool:
    return "." in name or "_" in name


def _flat(name: str) -> str:
    return name.replace(".", "_")


def check_room(cluster: Cluster, partitions: int, existing: int) -> None:
    """Whether there may be so many more partitions."""
    most = cluster.settings.coterie_max_partitions
    if existing + partitions > most:
        raise TopicError(
            ErrorCode.POLICY_VIOLATION,
            f"there are {existing} partitions, and with {partitions} more there would be more than {most} "
            "(coterie.max.partitions). Delete topics, or raise it",
        )


def check_count(partitions: int) -> None:
    if partitions < 1:
        raise TopicError(ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0.")
    if partitions > MAX_PARTITIONS:
        raise TopicError(
            ErrorCode.INVALID_PARTITIONS,
            f"{partitions} partitions; a topic has at most {MAX_PARTITIONS} of them",
        )


def _create_topics(node: Node, call: Call, frame: bytes, at: int, _now_ms: int) -> None:
    request = create_topics.read_request(frame, at, call.version)
    named = Counter(topic.name for topic in request.topics)
    asked = list({topic.name: topic for topic in request.topics}.values())  # of those named twice, one answer
    too_many = _check_request(sum(_count(node, topic) for topic in request.topics))
    if too_many is not None:
        node.answer(call, create_topics.Response(topics=[_refused(topic, too_many) for topic in asked]))
        return
    by_name = {topic.name: topic for topic in asked}
    configs_of = ConfigsOf(node)
    answers: dict[str, create_topics.CreatedTopic] = {}
    wanted: list[Wanted] = []
    for topic in asked:
        if named[topic.name] > 1:
            error = TopicError(ErrorCode.INVALID_REQUEST, "the request names this topic twice")
            answers[topic.name] = _refused(topic, error)
            continue
        configs = {config.name: config.value for config in topic.configs}
        try:
            partitions, homes = _partitions_of(node, topic)
            if request.validate_only:
                kept = Names(node.cluster).check_new(topic.name, partitions, configs)
                answers[topic.name] = _created(configs_of, Topic(topic.name, NO_ID, partitions, kept))
        except TopicError as error:
            answers[topic.name] = _refused(topic, error)
            continue
        if not request.validate_only:
            wanted.append(Wanted(topic.name, partitions, _nobody, configs, homes))

    def finish(made: list[Made]) -> create_topics.Response:
        for one, outcome in zip(wanted, made, strict=True):
            topic = by_name[one.name]
            if isinstance(outcome, TopicError):
                answers[one.name] = _refused(topic, outcome)
            else:
                answers[one.name] = _created(configs_of, outcome)
        return create_topics.Response(topics=[answers[topic.name] for topic in asked])

    create_each(node, call, wanted, request.timeout_ms, finish)


def _count(node: Node, asked: create_topics.NewTopic) -> int:
    """Partitions as Kafka counts them before it looks at anything else."""
    if asked.assignments:
        return len(asked.assignments)
    return node.settings.num_partitions if asked.num_partitions == -1 else max(asked.num_partitions, 0)


def _check_request(partitions: int) -> TopicError | None:
    if partitions <= MAX_PARTITIONS:
        return None
    return TopicError(
        ErrorCode.POLICY_VIOLATION,
        f"{partitions} partitions in one request; as in Kafka {MAX_PARTITIONS} are the most",
    )


def _refused(asked: create_topics.NewTopic, error: TopicError) -> create_topics.CreatedTopic:
    return create_topics.CreatedTopic(name=asked.name, error=error.code, message=str(error))


def _created(configs_of: ConfigsOf, topic: Topic) -> create_topics.CreatedTopic:
    return create_topics.CreatedTopic(
        name=topic.name,
        topic_id=None if topic.id == NO_ID else topic.id,
        num_partitions=topic.partitions,
        replication_factor=1,
        configs=configs_of(topic),
    )


class ConfigsOf:
    """The configs that a new topic is answered with; the topics of one request mostly have the same."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._known: dict[tuple[tuple[str, str], ...], list[create_topics.CreatedConfig]] = {}

    def __call__(self, topic: Topic) -> list[create_topics.CreatedConfig]:
        key = tuple(sorted(topic.configs.items()))
        if key not in self._known:
            self._known[key] = self._described(topic)
        return self._known[key]

    def _described(self, topic: Topic) -> list[create_topics.CreatedConfig]:
        resource = Resource(resource_type=ResourceType.TOPIC, resource_name=topic.name)
        described = describe(resource, topic.configs, self._node.settings)
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
    grown = replace(topic, partitions=asked.count)
    return _kept_first(cluster, [grown], places, cluster.directory.create([grown], cluster.wall.at(now_ms)), then)


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
    check_room(node.cluster, asked.count - topic.partitions, len(node.directory.logs))
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
