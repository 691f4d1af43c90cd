"""A consumer's process: the shipped `AsyncConsumer`, and a user who polls, works, commits and closes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from coterie.assignors import Assignor, Range
from coterie.client.consumer.async_consumer import AsyncConsumer
from coterie.client.consumer.engine import Engine, WakeupError
from coterie.client.consumer.fetcher import Fetcher
from coterie.client.member import ConsumerMembership, Membership, effects
from coterie.client.member.consumer_protocol.states import ConsumerMemberState
from coterie.client.member.states import MemberState
from coterie.client.types import SubscriptionPattern, TopicPartition
from coterie.errors import CoterieError
from coterie.protocol.apis import consumer_group_heartbeat
from coterie.protocol.messages import OffsetCommit
from coterie.settings.consumer_settings import ConsumerSettings
from coterie.settings.producer_settings import ProducerSettings
from coterie.sim.clients import Client
from coterie.sim.schedule import HostClock

if TYPE_CHECKING:
    from coterie.sim.world import World

AFTER_AN_ERROR_S = 0.5
LOOK_AGAIN_MS = 50


class User(Enum):
    """The state of the code that uses the consumer."""

    AWAY = "does something else"
    POLLING = "waits inside poll"
    LISTENING = "is in a listener's call"
    WORKING = "processes records"
    COMMITTING = "waits for its commit"
    CLOSING = "closes the consumer"
    GONE = "has ended"


_DEFAULTS = ConsumerSettings()


@dataclass(slots=True)
class Habits:
    """The settings of a consumer and the way it is used; a workload chooses them."""

    group_id: str = "g"
    group_protocol: str = _DEFAULTS.group_protocol
    topics: Sequence[str] = ("t",)
    pattern: str | None = None
    """Subscribe to all topics that match it, instead of to names."""
    assignors: Sequence[Assignor] = field(default_factory=lambda: (Range(),))
    remote_assignor: str | None = None
    """The assignor of the broker, in a consumer group."""
    instance_id: str | None = None
    session_timeout_ms: int = _DEFAULTS.session_timeout_ms
    heartbeat_interval_ms: int = _DEFAULTS.heartbeat_interval_ms
    max_poll_interval_ms: int = _DEFAULTS.max_poll_interval_ms
    auto_commit: bool = _DEFAULTS.enable_auto_commit
    auto_commit_interval_ms: int = _DEFAULTS.auto_commit_interval_ms
    poll_ms: int = 30_000
    max_poll_records: int = _DEFAULTS.max_poll_records
    work_ms: int = 5
    """The processing time of each poll that returns records."""
    listener_ms: int = 0
    fetch_max_wait_ms: int = _DEFAULTS.fetch_max_wait_ms
    metadata_max_age_ms: int = _DEFAULTS.metadata_max_age_ms
    isolation_level: str = _DEFAULTS.isolation_level
    transactional_id: str | None = None
    """If it is given, the process writes output in transactions, which have the offsets, too."""
    transaction_timeout_ms: int = ProducerSettings().transaction_timeout_ms
    abort_share: float = 0.0
    """The share of transactions that the process aborts."""
    slow_share: float = 0.0
    """The share of transactions that take longer than their timeout."""
    outputs: Sequence[tuple[str, int]] = ()
    """The topics of the output, with their number of partitions."""
    versions: dict[str, int] = field(default_factory=dict)

    @property
    def is_consumer_protocol(self) -> bool:
        return self.group_protocol == "consumer"

    def subscribed(self, topics: Iterable[str]) -> list[str]:
        """Return those of the topics that it subscribes to."""
        if self.pattern is None:
            return [topic for topic in topics if topic in self.topics]
        return [topic for topic in topics if re.fullmatch(self.pattern, topic)]


class _ObservedMember(Membership):
    """The shipped member. It reports its effects to the world before they are performed."""

    def __init__(self, process: ConsumerProcess, member: Membership) -> None:
        super().__init__(member.settings)
        self._process = process

    def handle(self, event: Any, now_ms: int) -> effects.Effects:
        wanted = super().handle(event, now_ms)
        if wanted or self.assigned is not self._process.owned:
            self._process.observe(self, wanted)
        return wanted


class _ObservedConsumerMember(ConsumerMembership):
    """The shipped member of a consumer group. It reports its effects, too."""

    def __init__(self, process: ConsumerProcess, member: ConsumerMembership) -> None:
        super().__init__(member.settings)
        self._process = process

    def handle(self, event: Any, now_ms: int) -> effects.Effects:
        wanted = super().handle(event, now_ms)
        if wanted or self.assigned is not self._process.owned:
            self._process.observe(self, wanted)
        return wanted


class _ShippedConsumer(AsyncConsumer):
    """The shipped consumer with the world's clock, random numbers and connections."""

    def __init__(self, process: ConsumerProcess, settings: dict[str, object]) -> None:
        self._runtime = process.runtime
        super().__init__(settings)
        member = self.engine.member
        if isinstance(member, ConsumerMembership):
            self.engine.member = _ObservedConsumerMember(process, member)
        else:
            assert member is not None
            self.engine.member = _ObservedMember(process, member)

    @property
    def engine(self) -> Engine:
        return self._made or self._engine  # also when it is closed


class ConsumerProcess(Client):
    def __init__(self, world: World, name: str, clock: HostClock, habits: Habits) -> None:
        super().__init__(world, name, clock, habits.versions)
        self.habits = habits
        self.group_id = habits.group_id
        self.user = User.AWAY
        self.announced: set[TopicPartition] = set()
        """The partitions that the listener was called for: assigned and not revoked since."""
        self.errors: list[Exception] = []
        self.owned: frozenset[TopicPartition] = frozenset()
        self.slot = name
        self._closing: tuple[int, bool | None] | None = None
        """The timeout of the close, and whether the member leaves; None if no close was requested."""
        self._work: asyncio.Future[None] | None = None
        self.loop.run(self._make)

    def _make(self) -> None:
        habits = self.habits
        self._client = _ShippedConsumer(
            self,
            self.settings(
                group_id=habits.group_id,
                group_instance_id=habits.instance_id,
                group_protocol=habits.group_protocol,
                **self._settings_of_protocol(),
                max_poll_interval_ms=habits.max_poll_interval_ms,
                enable_auto_commit=habits.auto_commit,
                auto_commit_interval_ms=habits.auto_commit_interval_ms,
                max_poll_records=habits.max_poll_records,
                fetch_max_wait_ms=habits.fetch_max_wait_ms,
                metadata_max_age_ms=habits.metadata_max_age_ms,
                isolation_level=habits.isolation_level,
                auto_offset_reset="earliest",
                allow_auto_create_topics=False,
            ),
        )

    def _settings_of_protocol(self) -> dict[str, object]:
        habits = self.habits
        if habits.is_consumer_protocol:
            return {"group_remote_assignor": habits.remote_assignor}
        return {
            "partition_assignment_strategy": list(habits.assignors),
            "session_timeout_ms": habits.session_timeout_ms,
            "heartbeat_interval_ms": habits.heartbeat_interval_ms,
        }

    @property
    def member(self) -> Membership | ConsumerMembership:
        member = self._client.engine.member
        assert member is not None
        return member

    @property
    def keeps_reading(self) -> bool:
        """Return whether it reads on in a rebalance what it keeps: cooperative members, and those of KIP-848."""
        return self.habits.is_consumer_protocol or self.member.settings.is_cooperative

    def observe(self, member: Membership | ConsumerMembership, wanted: effects.Effects) -> None:
        """Report to the world what the member does."""
        world = self.world
        if not self.is_alive:
            return
        for effect in wanted:
            kind = type(effect)
            if kind is effects.SendRequest:
                request = effect.request  # type: ignore[union-attr]
                if type(request) is OffsetCommit:
                    world.commit_sent(self, request)
                elif type(request) is consumer_group_heartbeat.Request:
                    world.heartbeat_sent(self, request)
            elif kind is effects.HoldPartitions:
                world.held(self, effect.partitions)  # type: ignore[union-attr]
            elif kind is effects.SetAssignment:
                world.assigned(self, effect)  # type: ignore[arg-type]
        if member.assigned is not self.owned:
            self.owned = member.assigned
            world.ownership_changed(self)

    @property
    def fetcher(self) -> Fetcher:
        return self._client.engine.reading.fetcher

    # --- the user -----------------------------------------------------------------------------------------------------

    async def live(self) -> None:
        client = self._client
        self._subscribe()
        while self._closing is None:
            self.user = User.POLLING
            try:
                records = await client.poll(self._poll_ms() / 1000)
            except WakeupError:
                continue
            except CoterieError as error:
                if self.member.state is MemberState.FENCED:
                    self.later(0, lambda _: self.world.fenced(self), None)
                    return
                if self.member.state is ConsumerMemberState.FATAL:
                    self.later(0, self._fails, error)
                    return
                await self._failed(error)
                continue
            await self._polled(records)
        await self._close(*self._closing)

    def _poll_ms(self) -> int:
        """Return for how long the next poll waits at most."""
        return self.habits.poll_ms

    async def _polled(self, records: Sequence[Any]) -> None:
        if records:
            await self._process(records)

    def _fails(self, error: CoterieError) -> None:
        self.world.failed(self, error)

    async def _failed(self, error: Exception) -> None:
        self.user = User.AWAY
        self.errors.append(error)
        self.world.read_failed(self, error)
        await asyncio.sleep(AFTER_AN_ERROR_S)

    async def _process(self, records: Sequence[Any]) -> None:
        self.user = User.WORKING
        self.world.took(self, records)
        self._work = asyncio.ensure_future(asyncio.sleep(self.habits.work_ms / 1000))
        await asyncio.wait([self._work])
        if self._work.cancelled():  # it has failed, as `__aexit__` sees it: what it was given is not processed
            self.fetcher.rewind()
            return
        self.world.processed(self, records)
        if not self.habits.auto_commit:
            self.user = User.COMMITTING
            try:
                await self._client.commit()
            except CoterieError as error:
                self.errors.append(error)
        self.user = User.AWAY

    def _subscribe(self) -> None:
        habits = self.habits
        self._client.subscribe(
            habits.topics if habits.pattern is None else SubscriptionPattern(habits.pattern),
            on_assigned=self._listener(effects.Listened.ASSIGNED),
            on_revoked=self._listener(effects.Listened.REVOKED),
            on_lost=self._listener(effects.Listened.LOST),
        )

    def _listener(self, kind: effects.Listened) -> Callable[[Collection[TopicPartition]], Awaitable[None]]:
        async def listen(partitions: Collection[TopicPartition]) -> None:
            before, self.user = self.user, User.LISTENING
            self.world.listened(self, kind, partitions)
            await asyncio.sleep(self.habits.listener_ms / 1000)
            self.user = before

        return listen

    def behave(self) -> None:
        """The run does not wait for it from now on."""
        self.habits.work_ms = min(self.habits.work_ms, 200)
        self.habits.listener_ms = min(self.habits.listener_ms, 1_000)

    def subscribe(self, topics: Sequence[str], pattern: str | None) -> None:
        self.habits.topics, self.habits.pattern = topics, pattern
        if self._closing is None:
            self.loop.run(self._subscribe)

    def close(self, within_ms: int = 30_000, *, leave: bool | None = None) -> None:
        if not self.is_alive or self._closing is not None:
            return
        if self.is_paused:
            self.later(LOOK_AGAIN_MS, lambda _: self.close(within_ms, leave=leave), None)
            return
        self._closing = (within_ms, leave)
        if self.user is User.WORKING and self._work is not None:
            self.loop.run(self._work.cancel)
        elif self.user in {User.POLLING, User.LISTENING}:
            self.loop.run(self._client.wakeup)

    async def _close(self, within_ms: int, leave: bool | None) -> None:
        self.user = User.CLOSING
        try:
            await self._client.close(within_ms / 1000, leave=leave)
        except CoterieError as error:
            self.errors.append(error)
        self.user = User.GONE
        self.later(0, self._closed, None)

    def _closed(self, _about: object) -> None:
        if self.is_alive:
            self.ends()
            self.world.closed(self)
