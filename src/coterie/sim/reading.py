"""The reading half of a consumer: sends what the shipped fetcher wants to ask, and brings the answers back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from coterie.client.consumer.fetch_requests import (
    AskCommitted,
    AskEpochEnds,
    AskOffsets,
    Fetch,
    FetchSettings,
    Found,
    Leader,
    LogTruncated,
    RefreshMetadata,
)
from coterie.client.consumer.fetcher import Fetcher
from coterie.client.network.metadata import NO_LEADER
from coterie.client.network.offset_lookup import answers, questions
from coterie.client.types import TopicPartition
from coterie.errors import ErrorCode, KafkaError
from coterie.protocol.apis import fetch, list_offsets, offset_for_leader_epoch
from coterie.sim.client import Client
from coterie.sim.host import Clock

if TYPE_CHECKING:
    from coterie.sim.world import World

__all__ = ["Reader"]

FETCH_LANE, OFFSETS_LANE = "fetch", "offsets"


class Reader(Client, ABC):
    __slots__ = ("_grant", "fetcher")

    def __init__(
        self, world: World, name: str, clock: Clock, settings: FetchSettings, versions: dict[str, int]
    ) -> None:
        super().__init__(world, name, clock, versions)
        self.fetcher = Fetcher(settings)
        self._grant: Mapping[type, Callable[[Any], None]] = {
            Fetch: self._fetch,
            AskCommitted: self.ask_committed,
            AskOffsets: self._ask_offsets,
            AskEpochEnds: self._ask_epoch_ends,
            LogTruncated: lambda _effect: None,
            RefreshMetadata: self._refresh_leaders,
        }

    # what the other half does

    @abstractmethod
    def wake(self) -> None:
        """There may be records to take."""

    @abstractmethod
    def look_again(self) -> None:
        """The metadata may be news."""

    @abstractmethod
    def ask_committed(self, effect: AskCommitted) -> None:
        """How far has the group come?"""

    # what this half does

    def ask_more(self) -> None:
        effects = self.fetcher.effects(self._leader_of, self.now_ms)
        due_ms = self.fetcher.due_ms
        for effect in effects:
            self._grant[type(effect)](effect)
        if due_ms is not None:
            self.at(due_ms, self._look_for_more, None)

    def _look_for_more(self, _about: object) -> None:
        if self.is_paused:
            self.misses(self._look_for_more, None)
        elif self.is_alive:
            self.fetcher.needs_data = True
            self._go_on()

    def _go_on(self) -> None:
        if self.fetcher.needs_data:
            self.ask_more()
        self.wake()

    def _leader_of(self, topic: str, partition: int) -> Leader | None:
        known = self.metadata.topics.get(topic)
        found = known.partitions.get(partition) if known is not None else None
        if known is None or found is None or found.leader == NO_LEADER:
            return None
        return Leader(found.leader, found.leader_epoch, known.id)

    def _fetch(self, effect: Fetch) -> None:
        timeout_ms = 30_000 + effect.request.max_wait_ms
        self.ask(effect.node_id, FETCH_LANE, fetch, effect.request, timeout_ms, self._fetched, effect)

    def _fetched(self, effect: Fetch, reply: fetch.Response | None, error: KafkaError | None) -> None:
        if error is not None:
            self.fetcher.fetch_failed(effect, error, self.now_ms)
        else:
            assert reply is not None
            self.fetcher.fetched(effect, reply, self.now_ms)
        self._go_on()

    def _ask_offsets(self, effect: AskOffsets) -> None:
        wanted = {state.partition: timestamp for state, timestamp in effect.states.items()}
        asked, unknown = questions(wanted, self._leader_of, read_committed=False, timeout_ms=30_000)
        found: dict[TopicPartition, Found] = {
            one: Found(error=KafkaError.of(ErrorCode.LEADER_NOT_AVAILABLE, "looking for an offset")) for one in unknown
        }
        left = len(asked)

        def done(request: list_offsets.Request, reply: list_offsets.Response | None, error: KafkaError | None) -> None:
            nonlocal left
            left -= 1
            if reply is not None:
                found.update(answers(reply))
            else:
                names = [
                    TopicPartition(topic.name, one.partition) for topic in request.topics for one in topic.partitions
                ]
                found.update(dict.fromkeys(names, Found(error=error)))
            if not left:
                self.fetcher.offsets_found(effect, found, self.now_ms)
                self._go_on()

        if not asked:
            self.fetcher.offsets_found(effect, found, self.now_ms)
        for node_id, request in asked.items():
            self.ask(node_id, OFFSETS_LANE, list_offsets, request, 30_000, done, request)

    def _ask_epoch_ends(self, effect: AskEpochEnds) -> None:
        self.ask(
            effect.node_id,
            OFFSETS_LANE,
            offset_for_leader_epoch,
            effect.request,
            30_000,
            self._epoch_ends_answered,
            effect,
        )

    def _epoch_ends_answered(
        self, effect: AskEpochEnds, reply: offset_for_leader_epoch.Response | None, error: KafkaError | None
    ) -> None:
        if error is not None:
            self.fetcher.epoch_ends_failed(effect, error, self.now_ms)
        else:
            assert reply is not None
            self.fetcher.epoch_ends_found(effect, reply, self.now_ms)
        self._go_on()

    def _refresh_leaders(self, effect: RefreshMetadata) -> None:
        def done(_error: KafkaError | None) -> None:
            self.fetcher.refreshed(self.now_ms)
            self.look_again()
            self._go_on()

        self.refresh(effect.topics, done)
