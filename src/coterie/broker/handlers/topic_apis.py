"""CreateTopics, CreatePartitions and DeleteTopics. `topic_manager.py` does what is asked.

There is one replica of each partition, in the one data directory. Asking for more is refused, unless
`coterie.replicas.as.one` is set.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from uuid import UUID

from coterie.broker.broker_effects import Effects
from coterie.broker.calls import Call, Handler, Responses
from coterie.broker.config_manager import describe
from coterie.broker.handlers.refusals import TopicError, no_such_topic
from coterie.broker.maintenance.directory_changes import Changes
from coterie.broker.metadata_cache import MetadataCache, is_internal
from coterie.broker.security.auth_helper import AuthHelper
from coterie.broker.topic_manager import MAX_PARTITIONS, NOWHERE, Made, TopicManager, TopicSpec, check_partitions
from coterie.errors import ErrorCode
from coterie.protocol.acls import AclOperation, AclResourceType
from coterie.protocol.api import ResourceType
from coterie.protocol.apis import create_partitions, create_topics, delete_topics
from coterie.protocol.apis.describe_configs import Resource
from coterie.settings.broker_settings import BrokerSettings
from coterie.storage import LogError, StoredTopic
from coterie.structs import DataStruct

__all__ = ["TopicApis"]

TOPIC = AclResourceType.TOPIC
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
TOPIC_DENIED = "Topic authorization failed."
NO_ID = UUID(int=0)
"""The id of a topic that is not created."""


class TopicApis(DataStruct, frozen=True, eq=False):
    responses: Responses
    auth: AuthHelper
    topics: TopicManager
    changes: Changes
    metadata: MetadataCache
    settings: BrokerSettings
    forget_offsets: Callable[[frozenset[str], int], Effects]
    """Has all groups delete their offsets of topics that were deleted."""

    def handlers(self) -> Mapping[int, Handler]:
        return {
            create_topics.API.key: self._create_topics,
            create_partitions.API.key: self._create_partitions,
            delete_topics.API.key: self._delete_topics,
        }

    # --- CreateTopics -------------------------------------------------------------------------------------------------

    def _create_topics(self, call: Call, frame: bytes, at: int, now_ms: int) -> Effects:
        request = create_topics.read_request(frame, at, call.version)
        named = Counter(topic.name for topic in request.topics)
        asked = list({topic.name: topic for topic in request.topics}.values())  # of those named twice, one answer
        by_name = {topic.name: topic for topic in asked}
        denied = self._uncreatable(call, [name for name in by_name if named[name] == 1])
        too_many = _check_request(sum(self._count(topic) for topic in request.topics if topic.name not in denied))
        if too_many is not None:
            topics = [_refused(topic, _denied() if topic.name in denied else too_many) for topic in asked]
            return self.responses.answer(call, create_topics.Response(topics=topics), now_ms)
        configs_of = ConfigsOf(self.settings)
        answers: dict[str, create_topics.CreatedTopic] = {}
        wanted: list[TopicSpec] = []
        for topic in asked:
            if named[topic.name] > 1:
                error = TopicError(ErrorCode.INVALID_REQUEST, "the request names this topic twice")
                answers[topic.name] = _refused(topic, error)
                continue
            if topic.name in denied:
                answers[topic.name] = _refused(topic, _denied())
                continue
            configs = {config.name: config.value for config in topic.configs}
            try:
                partitions, preferred_leaders = self._partitions_of(topic)
                if request.validate_only:
                    kept = self.topics.names().check_new(topic.name, partitions, configs)
                    answers[topic.name] = _created(configs_of, StoredTopic(topic.name, NO_ID, partitions, kept))
            except TopicError as error:
                answers[topic.name] = _refused(topic, error)
                continue
            if not request.validate_only:
                wanted.append(TopicSpec(topic.name, partitions, configs=configs, preferred_leaders=preferred_leaders))

        def finish(made: list[Made], at_ms: int) -> Effects:
            for one, outcome in zip(wanted, made, strict=True):
                if isinstance(outcome, TopicError):
                    answers[one.name] = _refused(by_name[one.name], outcome)
                else:
                    answers[one.name] = _created(configs_of, outcome)
            self._hide_configs(call, answers.values())
            response = create_topics.Response(topics=[answers[topic.name] for topic in asked])
            return self.responses.answer(call, response, at_ms)

        return self.topics.create_each(call, wanted, request.timeout_ms, finish, now_ms)

    def _uncreatable(self, call: Call, names: Sequence[str]) -> frozenset[str]:
        """Return the topics that the client may not create. CREATE on the cluster allows all of them."""
        if self.auth.authorize(call, AclOperation.CREATE, AclResourceType.CLUSTER, logs=False):
            return frozenset()
        return self.auth.denied(call, AclOperation.CREATE, TOPIC, names)

    def _hide_configs(self, call: Call, answers: Iterable[create_topics.CreatedTopic]) -> None:
        """Leave out the configs of a created topic that DescribeConfigs would not return to the client."""
        if self.auth.authorizer is None:
            return
        for answer in answers:
            if not answer.error and not self.auth.authorize(
                call, AclOperation.DESCRIBE_CONFIGS, TOPIC, answer.name, logs=False
            ):
                answer.num_partitions = answer.replication_factor = -1
                answer.configs = ()
                answer.topic_config_error = DENIED

    def _count(self, asked: create_topics.NewTopic) -> int:
        """Return the number of partitions as Kafka counts them before it looks at anything else."""
        if asked.assignments:
            return len(asked.assignments)
        return self.settings.num_partitions if asked.num_partitions == -1 else max(asked.num_partitions, 0)

    def _partitions_of(self, asked: create_topics.NewTopic) -> tuple[int, Mapping[int, int]]:
        """Return how many partitions a topic is to have, and the nodes it wants them on."""
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
            return len(numbers), {one.partition: self._preferred_leader(one.broker_ids) for one in asked.assignments}
        self._check_replication_factor(asked.replication_factor)
        if asked.num_partitions == -1:
            return self.settings.num_partitions, NOWHERE
        if asked.num_partitions < 1:
            raise TopicError(
                ErrorCode.INVALID_PARTITIONS,
                "Number of partitions was set to an invalid non-positive value.",
            )
        return asked.num_partitions, NOWHERE

    # --- replicas -----------------------------------------------------------------------------------------------------

    def _check_replication_factor(self, factor: int) -> None:
        """Refuse in Kafka's words where Kafka would refuse as well; it would not if it had as many brokers."""
        if factor in (-1, 1):
            return
        if factor < 1:
            raise TopicError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                "Replication factor must be larger than 0, or -1 to use the default value.",
            )
        if self.settings.coterie_replicas_as_one:
            return
        count = len(self.metadata.nodes)
        why = f"only {count} broker(s) are registered."
        if factor <= count:
            why = (
                f"the {count} nodes of this broker share one copy of each log. Give 1, or set coterie.replicas.as.one."
            )
        raise TopicError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {factor} time(s): The target replication factor of {factor} cannot be "
            f"reached because {why}",
        )

    def _preferred_leader(self, replicas: Sequence[int]) -> int:
        """Return the node a partition is asked for on: of one replica, or of several the first if all are one."""
        up = self.metadata.nodes_up
        most = len(self.metadata.nodes) if self.settings.coterie_replicas_as_one else 1
        if 1 <= len(replicas) <= most and len(set(replicas)) == len(replicas) and up.issuperset(replicas):
            return replicas[0]
        raise TopicError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"replicas {list(replicas)}: a partition has one, on one of the nodes {', '.join(map(str, sorted(up)))}",
        )

    # --- CreatePartitions ---------------------------------------------------------------------------------------------

    def _create_partitions(self, call: Call, frame: bytes, at: int, now_ms: int) -> Effects:
        request = create_partitions.read_request(frame, at, call.version)
        denied = self.auth.denied(call, AclOperation.ALTER, TOPIC, (topic.name for topic in request.topics))
        grow = partial(self._grow, denied=denied, validate_only=request.validate_only)
        return self.changes.ask_each(
            call,
            request.topics,
            grow,
            lambda results, _at_ms: (create_partitions.Response(results=results), []),
            now_ms,
        )

    def _grow(
        self,
        asked: create_partitions.Topic,
        done: Callable[[create_partitions.Result, int], Effects],
        now_ms: int,
        *,
        denied: frozenset[str],
        validate_only: bool,
    ) -> Effects:
        if asked.name in denied:
            return done(create_partitions.Result(name=asked.name, error=DENIED), now_ms)

        def then(outcome: TopicError | LogError | None, at_ms: int) -> Effects:
            result = create_partitions.Result(name=asked.name)
            if outcome is not None:
                result.error, result.message = outcome.code, str(outcome)
            return done(result, at_ms)

        try:
            topic, preferred_leaders = self._check_growth(asked)
        except TopicError as error:
            return then(error, now_ms)
        if validate_only:
            return then(None, now_ms)
        return self.topics.grow(topic, asked.count, preferred_leaders, then, now_ms)

    def _check_growth(self, asked: create_partitions.Topic) -> tuple[StoredTopic, Mapping[int, int]]:
        """Return the topic, and the nodes that new partitions were asked for on."""
        topic = self.metadata.topics.get(asked.name)
        if topic is None:
            raise TopicError(*no_such_topic(asked.name))
        new = asked.count - topic.partitions
        if new <= 0:
            raise TopicError(
                ErrorCode.INVALID_PARTITIONS,
                f"topic {asked.name!r} has {topic.partitions} partitions; {asked.count} would not be more",
            )
        check_partitions(asked.count)
        self.topics.names().check_room(new)
        if is_internal(asked.name):
            raise TopicError(
                ErrorCode.INVALID_REQUEST, f"{asked.name} cannot grow: groups would be looked for where they are not"
            )
        if asked.assignments is None:
            return topic, NOWHERE
        if len(asked.assignments) != new:
            raise TopicError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{new} new partitions, but {len(asked.assignments)} assignments"
            )
        preferred_leaders = [self._preferred_leader(one.broker_ids) for one in asked.assignments]
        return topic, dict(enumerate(preferred_leaders, topic.partitions))

    # --- DeleteTopics -------------------------------------------------------------------------------------------------

    def _delete_topics(self, call: Call, frame: bytes, at: int, now_ms: int) -> Effects:
        request = delete_topics.read_request(frame, at, call.version)
        may_delete_all = self.auth.authorize(call, AclOperation.DELETE, AclResourceType.CLUSTER, logs=False)

        def finish(answers: list[delete_topics.DeletedTopic], at_ms: int) -> tuple[delete_topics.Response, Effects]:
            gone = frozenset(answer.name for answer in answers if not answer.error and answer.name is not None)
            return delete_topics.Response(responses=answers), self.forget_offsets(gone, at_ms) if gone else []

        delete = partial(self._delete, None if may_delete_all else call)
        return self.changes.ask_each(call, request.topics, delete, finish, now_ms)

    def _refusal_to_delete(
        self, call: Call, asked: delete_topics.Topic, topic: StoredTopic | None
    ) -> delete_topics.DeletedTopic | None:
        """Return the answer if the client may not delete a topic, or may not even know that it exists."""
        if asked.topic_id is None:
            name = asked.name or ""
            is_shown = self.auth.authorize(call, AclOperation.DESCRIBE, TOPIC, name)
            if is_shown and (topic is None or self.auth.authorize(call, AclOperation.DELETE, TOPIC, name)):
                return None
            return delete_topics.DeletedTopic(name=name, error=DENIED, message=TOPIC_DENIED)
        if topic is None or self.auth.authorize(call, AclOperation.DELETE, TOPIC, topic.name):
            return None
        is_shown = self.auth.authorize(call, AclOperation.DESCRIBE, TOPIC, topic.name, logs=False)
        shown = topic.name if is_shown else None
        return delete_topics.DeletedTopic(name=shown, topic_id=topic.id, error=DENIED, message=TOPIC_DENIED)

    def _delete(
        self,
        call: Call | None,
        asked: delete_topics.Topic,
        done: Callable[[delete_topics.DeletedTopic, int], Effects],
        now_ms: int,
    ) -> Effects:
        """Delete a topic. `call` is None if its client may delete all of them."""
        metadata, by_id = self.metadata, asked.topic_id is not None
        topic = metadata.topic_by_id(asked.topic_id) if by_id else metadata.topics.get(asked.name or "")
        refused = None if call is None else self._refusal_to_delete(call, asked, topic)
        if refused is not None:
            return done(refused, now_ms)
        if topic is None:
            code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return done(delete_topics.DeletedTopic(name=asked.name, topic_id=asked.topic_id, error=code), now_ms)
        answer = delete_topics.DeletedTopic(name=topic.name, topic_id=topic.id)
        if not self.settings.delete_topic_enable:
            answer.error, answer.message = ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false"
        elif is_internal(topic.name):
            answer.error, answer.message = ErrorCode.INVALID_REQUEST, f"{topic.name} is where the groups are kept"
        if answer.error:
            return done(answer, now_ms)

        def then(outcome: LogError | None, at_ms: int) -> Effects:
            if outcome is not None:
                answer.error, answer.message = outcome.code, str(outcome)
            return done(answer, at_ms)

        return self.topics.delete(topic, then)


def _check_request(partitions: int) -> TopicError | None:
    if partitions <= MAX_PARTITIONS:
        return None
    return TopicError(
        ErrorCode.POLICY_VIOLATION,
        f"{partitions} partitions in one request; as in Kafka {MAX_PARTITIONS} are the most",
    )


def _denied() -> TopicError:
    return TopicError(DENIED, "Authorization failed.")


def _refused(asked: create_topics.NewTopic, error: TopicError) -> create_topics.CreatedTopic:
    return create_topics.CreatedTopic(name=asked.name, error=error.code, message=str(error))


def _created(configs_of: ConfigsOf, topic: StoredTopic) -> create_topics.CreatedTopic:
    return create_topics.CreatedTopic(
        name=topic.name,
        topic_id=None if topic.id == NO_ID else topic.id,
        num_partitions=topic.partitions,
        replication_factor=1,
        configs=configs_of(topic),
    )


class ConfigsOf:
    """The configs that a new topic is answered with; the topics of one request mostly have the same."""

    def __init__(self, settings: BrokerSettings) -> None:
        self.settings = settings
        self._known: dict[tuple[tuple[str, str], ...], list[create_topics.CreatedConfig]] = {}

    def __call__(self, topic: StoredTopic) -> list[create_topics.CreatedConfig]:
        key = tuple(sorted(topic.configs.items()))
        if key not in self._known:
            self._known[key] = self._described(topic)
        return self._known[key]

    def _described(self, topic: StoredTopic) -> list[create_topics.CreatedConfig]:
        resource = Resource(resource_type=ResourceType.TOPIC, resource_name=topic.name)
        described = describe(resource, topic.configs, self.settings)
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
