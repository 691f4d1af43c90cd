"""The world of a story: one coordinator shard, a clock that is moved by hand, and a log in memory.

It performs the shard's effects and keeps every reply by its token. A token that is answered twice is an error.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from coterie.coordinator.classic import Group
from coterie.coordinator.classic.effects import ComputeTarget, Reply
from coterie.coordinator.consumer import ConsumerGroup, TopicsImage
from coterie.coordinator.runtime import Append, AppendBatch, Replay, Shard, Timers
from coterie.errors import CoterieError, ErrorCode
from coterie.facts import Emit, Fact
from coterie.ledger import Ledger
from coterie.settings.group_coordinator_settings import GroupCoordinatorSettings


@dataclass(slots=True)
class LogEntry:
    """A record of the log or, with a marker, the end of a transaction."""

    key: bytes
    value: bytes | None
    producer_id: int | None
    marker: bool | None
    at_ms: int
    """The time at which it was appended."""


@dataclass
class StoryTopic:
    id: UUID
    partitions: int


@dataclass
class StoryTopics:
    """The topics that consumer groups know, each with an id: 1 for the first, 2 for the second."""

    topics: dict[str, StoryTopic] = field(default_factory=dict)
    version: int = 0
    created: int = 0

    @property
    def topic_names(self) -> dict[UUID, str]:
        return {topic.id: name for name, topic in self.topics.items()}

    def create(self, name: str, partitions: int) -> None:
        """Create a topic, or give it another number of partitions."""
        known = self.topics.get(name)
        self.created += known is None
        self.topics[name] = StoryTopic(UUID(int=self.created) if known is None else known.id, partitions)
        self.version += 1

    def delete(self, name: str) -> None:
        del self.topics[name]
        self.version += 1


@dataclass
class StoryWorld:
    settings: GroupCoordinatorSettings = field(default_factory=GroupCoordinatorSettings)
    now_ms: int = 0
    holds_writes: bool = False
    """True if appends wait for `end_writes`; otherwise they are durable at once."""
    image: TopicsImage | None = None
    """The topics that consumer groups know."""
    group_configs: dict[str, dict[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.log: list[LogEntry] = []
        self.facts: list[Fact] = []
        self.ledger = Ledger()
        self.replies: dict[int, Any] = {}
        self.computations: list[ComputeTarget] = []
        """The targets that are to be computed. A story ends a computation by sending its `then`."""
        self._appends: deque[AppendBatch] = deque()
        self._tokens = 0
        self.timers: Timers[Any] = Timers()
        self.shard = self._new_shard()
        self._perform(self.shard.load([], self.now_ms))

    def _new_shard(self) -> Shard:
        return Shard(0, self.settings, self.timers, image=self.image, group_configs=self.group_configs)

    def token(self) -> int:
        self._tokens += 1
        return self._tokens

    def send(self, event: Any) -> None:
        self._perform(self.shard.handle(event, self.now_ms))

    def group(self, group_id: str) -> Group | None:
        found = self.shard.groups.get(group_id)
        return found if isinstance(found, Group) else None

    def consumer_group(self, group_id: str) -> ConsumerGroup | None:
        found = self.shard.groups.get(group_id)
        return found if isinstance(found, ConsumerGroup) else None

    def advance(self, ms: int) -> None:
        """Let time pass. Every timer on the way fires at its own time."""
        until_ms = self.now_ms + ms
        while (next_ms := self.timers.next_ms()) is not None and next_ms <= until_ms:
            self.now_ms = max(self.now_ms, next_ms)
            for event in self.timers.due(self.now_ms):
                self.send(event)
        self.now_ms = until_ms

    @property
    def writes_under_way(self) -> int:
        return len(self._appends)

    def end_writes(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """Make all pending writes durable, or fail them, together with the writes that they cause."""
        while self._appends:
            self.end_write(error)

    def end_write(self, error: ErrorCode = ErrorCode.NONE) -> None:
        batch = self._appends.popleft()
        batch.then.error = error
        if not error:
            batch.then.base_offset = len(self.log)
            entries = [
                LogEntry(key, value, batch.producer_id, batch.marker, self.now_ms) for key, value in batch.records
            ]
            self.log += entries
        self._perform(self.shard.handle(batch.then, self.now_ms))

    def move_coordinator(self) -> None:
        """Unload the partition, which answers all waiting requests, and load it again from the log (C4)."""
        self._perform(self.shard.unload(self.now_ms))
        self._appends.clear()
        self._load()

    def crash(self) -> None:
        """Load the log again, as after a crash: waiting requests are not answered."""
        self._appends.clear()
        self.timers = Timers()
        self._load()

    def _load(self) -> None:
        self.shard = self._new_shard()
        groups = self.replay().groups(
            self.settings,
            self.now_ms,
            held_in_all=self.shard.held_in_all,
            image=self.image,
            group_configs=self.group_configs,
        )
        self._perform(self.shard.load(groups, self.now_ms))

    def replay(self) -> Replay:
        replay = Replay()
        for position, entry in enumerate(self.log):
            if entry.marker is not None:
                assert entry.producer_id is not None
                replay.marker(entry.producer_id, committed=entry.marker)
            else:
                replay.record(position, entry.key, entry.value, entry.producer_id)
        return replay

    def _perform(self, effects: list[Any]) -> None:
        for effect in effects:
            if isinstance(effect, Reply):
                self._deliver(effect)
            elif isinstance(effect, Emit):
                self.facts.append(effect.fact)
                self.ledger.add(effect.fact)
            elif isinstance(effect, ComputeTarget):
                self.computations.append(effect)
            else:
                assert isinstance(effect, Append)
                batch = effect.batch()
                assert batch is not None
                self._appends.append(batch)
        if not self.holds_writes:
            self.end_writes()

    def _deliver(self, reply: Reply) -> None:
        if not isinstance(reply.token, int) or reply.token in self.replies:
            raise CoterieError(f"token {reply.token!r} was answered twice: {reply.answer!r}")
        self.replies[reply.token] = reply.answer
