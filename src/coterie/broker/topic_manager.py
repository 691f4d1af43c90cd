"""Creation, growth and deletion of topics, also automatic creation with the broker's defaults.

Each is one of the `changes` of the data directory: judged in its turn, answered when the disk has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from uuid import UUID

from coterie.broker.broker_effects import DeleteFiles, Effects, Work
from coterie.broker.broker_facts import Reporter
from coterie.broker.calls import Call, Gather
from coterie.broker.config_manager import tidy
from coterie.broker.handlers.fetch import Fetches
from coterie.broker.handlers.refusals import Refusal, TopicError, illegal_name
from coterie.broker.leadership import Leadership
from coterie.broker.maintenance.directory_changes import Changes
from coterie.broker.maintenance.flushing import Flusher
from coterie.broker.metadata_cache import MetadataCache, is_internal
from coterie.broker.placement import Partition, PartitionState
from coterie.coordinator.wall_clock import WallClock
from coterie.errors import ErrorCode
from coterie.ledger.written_facts import FACTS_TOPIC
from coterie.protocol.offsets_topic import OFFSETS_TOPIC
from coterie.protocol.transaction_state import TRANSACTION_STATE_TOPIC
from coterie.settings.broker_settings import BrokerSettings
from coterie.storage import (
    SLICE,
    Creation,
    DataDirectory,
    Files,
    LogError,
    PartitionLog,
    StoredTopic,
    offsets_topic_configs,
    remove_directory,
    transaction_state_topic_configs,
)
from coterie.storage.metadata_files import is_legal_name
from coterie.structs import DataStruct, field, replace

__all__ = ["MAX_PARTITIONS", "NOWHERE", "Made", "TopicManager", "TopicNames", "TopicSpec", "check_partitions"]

MAX_PARTITIONS = 10_000
"""The most partitions of a topic, and of all topics of a request, as in Kafka."""
NOWHERE: Mapping[int, int] = MappingProxyType({})
"""No partition was asked for on a certain node."""
Made = StoredTopic | TopicError
Created = Callable[[Made, int], Effects]
"""Called once, with the time: the topic, when it is there and durable, or why it cannot be."""


def _ignore(_made: Made, _now_ms: int) -> Effects:
    return []


class TopicSpec(DataStruct):
    """A topic that is to be created."""

    name: str
    partitions: int
    done: Created = _ignore
    configs: Mapping[str, str | None] = field(default_factory=dict)
    preferred_leaders: Mapping[int, int] = field(default_factory=lambda: NOWHERE)
    """The preferred leaders that the request names, by partition."""
    may_exist: bool = False


class TopicManager(DataStruct, frozen=True, eq=False):
    files: Files
    directory: DataDirectory
    settings: BrokerSettings
    changes: Changes
    metadata: MetadataCache
    leadership: Leadership
    flusher: Flusher
    fetches: Fetches
    reporter: Reporter
    wall: WallClock
    fresh_id: Callable[[], UUID]
    load: Mapping[str, Callable[[int], Effects]]
    """Called when the topic of a coordinator has been created."""

    # --- creating -----------------------------------------------------------------------------------------------------

    def names(self) -> TopicNames:
        return TopicNames(self.directory, self.settings)

    def by_default(self, name: str, done: Created = _ignore) -> TopicSpec:
        """Return the topic to create for a request. It has the broker's defaults; internal topics have theirs (C2)."""
        settings = self.settings
        ours: Mapping[str, tuple[int, Mapping[str, str]]] = {
            OFFSETS_TOPIC: (settings.offsets_topic_num_partitions, offsets_topic_configs(settings)),
            TRANSACTION_STATE_TOPIC: (
                settings.transaction_state_log_num_partitions,
                transaction_state_topic_configs(settings),
            ),
            FACTS_TOPIC: (1, {}),
        }
        partitions, configs = ours.get(name, (settings.num_partitions, {}))
        return TopicSpec(name, partitions, done, configs, may_exist=True)

    def ensure(self, name: str, done: Created, now_ms: int) -> Effects:
        """Create a topic unless it exists. This is a change: it is called in its turn."""
        return self._create([self.by_default(name, done)], now_ms)

    def ask_to_ensure(self, name: str, done: Created) -> None:
        self.changes.ask(None, partial(self.ensure, name, done))

    def create_each(
        self,
        call: Call,
        wanted: Sequence[TopicSpec],
        timeout_ms: int,
        finish: Callable[[list[Made], int], Effects],
        now_ms: int,
    ) -> Effects:
        """Create topics in slices, each a change of the directory; topics not begun within the timeout are refused."""
        if not wanted:
            return finish([], now_ms)
        gather = Gather(call, len(wanted), finish)
        until_ms = now_ms + timeout_ms
        for index, one in enumerate(wanted):
            one.done = partial(gather.put, index)

        def judge(some: Sequence[TopicSpec], at_ms: int) -> Effects:
            refusal: TopicError | None = None
            if self.changes.is_closing:
                refusal = _closing()
            elif at_ms > until_ms and some[0] is not wanted[0]:
                refusal = TopicError(
                    ErrorCode.REQUEST_TIMED_OUT,
                    f"not created within {timeout_ms} ms, the timeout of the request: ask again, for fewer at a time",
                )
            if refusal is None:
                return self._create(some, at_ms)
            return [effect for one in some for effect in one.done(refusal, at_ms)]

        for some in _slices(wanted):
            self.changes.ask(call, partial(judge, some))
        return []

    def _create(self, wanted: Sequence[TopicSpec], now_ms: int) -> Effects:
        """Create topics with one write of the topics' file. If it is that of a coordinator, it is served then."""
        names = self.names()
        topics: list[StoredTopic] = []
        accepted: list[TopicSpec] = []
        states: dict[Partition, PartitionState] = {}
        effects: Effects = []
        for one in wanted:
            existing = self.directory.topics.get(one.name)
            if existing is not None and one.may_exist:
                effects += one.done(existing, now_ms)
                continue
            try:
                kept = names.check_new(one.name, one.partitions, one.configs)
            except TopicError as error:
                effects += one.done(error, now_ms)
                continue
            names.add(one.name, one.partitions)
            topics.append(StoredTopic(one.name, self.fresh_id(), one.partitions, kept))
            accepted.append(one)
            states |= self.leadership.new_states(one.name, range(one.partitions), one.preferred_leaders)
        if not topics:
            return effects

        def then(outcome: LogError | TopicError | None, at_ms: int) -> Effects:
            if outcome is not None:
                error = TopicError(outcome.code, str(outcome))
                return [effect for one in accepted for effect in one.done(error, at_ms)]
            self.leadership.created(states)
            followed: Effects = []
            for topic in topics:
                self.metadata.topic_names[topic.id] = topic.name
                self.metadata.version += 1
                if topic.name in self.load:
                    followed += self.load[topic.name](at_ms)
            for one, topic in zip(accepted, topics, strict=True):
                followed += one.done(topic, at_ms)
            return followed

        creation = self.directory.create(topics, self.wall.at(now_ms))
        return [*effects, self._leaders_first(topics, states, creation, then)]

    def _leaders_first(
        self,
        topics: Sequence[StoredTopic],
        states: Mapping[Partition, PartitionState],
        creation: Creation,
        then: Callable[[LogError | TopicError | None, int], Effects],
    ) -> Work:
        """Write down who leads the new partitions before they are created, if it is not the default."""

        def ended(outcome: LogError | None, now_ms: int) -> Effects:
            if outcome is not None or creation.is_done:
                return then(outcome, now_ms)
            if self.changes.is_closing:
                return [Work(creation.undo(), lambda _outcome, at_ms: then(_closing(), at_ms))]
            return [Work(creation.next(), ended)]

        keeping = self.leadership.keeping(topics, states)
        return Work(creation.next() if keeping is None else keeping, ended)

    def grow(
        self,
        topic: StoredTopic,
        count: int,
        preferred_leaders: Mapping[int, int],
        done: Callable[[TopicError | LogError | None, int], Effects],
        now_ms: int,
    ) -> Effects:
        """Give a topic more partitions, `count` in all."""
        states = self.leadership.new_states(topic.name, range(topic.partitions, count), preferred_leaders)

        def then(outcome: TopicError | LogError | None, at_ms: int) -> Effects:
            if outcome is None:
                self.metadata.version += 1
                self.leadership.created(states)
            return done(outcome, at_ms)

        grown = replace(topic, partitions=count)
        creation = self.directory.create([grown], self.wall.at(now_ms))
        return [self._leaders_first([grown], states, creation, then)]

    # --- deleting -----------------------------------------------------------------------------------------------------

    def delete(self, topic: StoredTopic, done: Callable[[LogError | None, int], Effects]) -> Effects:
        def then(outcome: list[PartitionLog] | LogError, now_ms: int) -> Effects:
            if isinstance(outcome, LogError):
                return done(outcome, now_ms)
            del self.metadata.topic_names[topic.id]
            self.metadata.version += 1
            self.leadership.deleted(topic)
            effects: Effects = []
            for log in outcome:
                effects += self.flusher.forget(log, now_ms)
                effects += self.fetches.look_again(log, now_ms)
            effects += done(None, now_ms)
            return [*effects, Work(self.directory.clear_away(topic, outcome), self._cleared_away)]

        return [Work(self.directory.delete_topic(topic.name), then)]

    def _cleared_away(self, outcome: list[str] | LogError, now_ms: int) -> Effects:
        if isinstance(outcome, LogError):
            return [self.reporter.trouble(str(outcome), now_ms)]
        return [
            DeleteFiles(f"files of a deleted topic, {path}", partial(remove_directory, self.files, path))
            for path in outcome
        ]


def _closing() -> TopicError:
    """A client asks again then, here or elsewhere."""
    return TopicError(ErrorCode.NOT_CONTROLLER, "the broker is being stopped")


def _slices(wanted: Sequence[TopicSpec]) -> Iterator[Sequence[TopicSpec]]:
    """Split new partitions into slices that are created at once."""
    some: list[TopicSpec] = []
    partitions = 0
    for one in wanted:
        if some and partitions + one.partitions > SLICE:
            yield some
            some, partitions = [], 0
        some.append(one)
        partitions += one.partitions
    yield some


class TopicNames:
    """The topics there are, and those that are about to be created together."""

    def __init__(self, directory: DataDirectory, settings: BrokerSettings) -> None:
        self._topics = directory.topics
        self.settings = settings
        self._flat: dict[str, str] | None = None
        self._new: set[str] = set()
        self._partitions = len(directory.logs)

    def add(self, name: str, partitions: int) -> None:
        self._new.add(name)
        self._partitions += partitions
        if self._flat is not None and _mixes(name):
            self._flat[_flat(name)] = name

    def check_new(self, name: str, partitions: int, configs: Mapping[str, str | None]) -> dict[str, str]:
        """Return the configs of a new topic as they are kept; raise if there cannot be such a topic."""
        if not is_legal_name(name):
            raise TopicError(*illegal_name(name))
        if name in self._topics or name in self._new:
            raise TopicError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        clash = self._clash(name)
        if clash is not None:
            raise TopicError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"{name!r} and {clash!r} differ only in '.' and '_', which metrics mix up",
            )
        check_partitions(partitions)
        kept = tidy(configs, self.settings)
        if isinstance(kept, Refusal):
            raise TopicError(kept.error, kept.message)
        if not is_internal(name):
            self.check_room(partitions)
        return kept

    def check_room(self, partitions: int) -> None:
        """Raise if this many more partitions would exceed the limit."""
        most = self.settings.coterie_max_partitions
        if self._partitions + partitions > most:
            raise TopicError(
                ErrorCode.POLICY_VIOLATION,
                f"there are {self._partitions} partitions, and with {partitions} more there would be more than {most} "
                "(coterie.max.partitions). Delete topics, or raise it",
            )

    def _clash(self, name: str) -> str | None:
        """Return the topic whose name clashes with this one: Kafka's metrics write dots as underscores."""
        if not _mixes(name):
            return None
        if self._flat is None:
            names = (*self._topics, *self._new)
            self._flat = {_flat(other): other for other in names if _mixes(other)}
        return self._flat.get(_flat(name))


def _mixes(name: str) -> bool:
    return "." in name or "_" in name


def _flat(name: str) -> str:
    return name.replace(".", "_")


def check_partitions(partitions: int) -> None:
    if partitions < 1:
        raise TopicError(ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0.")
    if partitions > MAX_PARTITIONS:
        raise TopicError(
            ErrorCode.INVALID_PARTITIONS,
            f"{partitions} partitions; a topic has at most {MAX_PARTITIONS} of them",
        )
