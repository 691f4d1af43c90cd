"""The positions of a consumer, and the requests to send next. No I/O; the time comes in.

A driver calls `effects` for the requests to send, and brings the answers back. `fetch_collector.py` hands the fetched
records out. The other methods change what is read: assign, seek, pause. The rules:

- A position comes from the group's commits first, then from `auto.offset.reset` (rule M6).
- One fetch at a time is in flight to a node. It names all partitions that are read there, so that an idle partition
  cannot delay the others, and it is sent while records of the last fetch still wait to be taken (prefetch).
- A response counts only for a partition whose assignment and position are still the same. Fetches are full ones,
  without sessions (KIP-227), so a response does not depend on earlier ones.
- A position that has a leader epoch is validated (KIP-320) when it comes from a commit or a seek, and whenever the
  leader or its epoch changes: OffsetForLeaderEpoch shows whether the log was truncated before it. Prefetched records
  are dropped, because the new leader may not have them. As in Java, a fetch has the epoch of the leader and not that
  of the last record: a follower that lags behind would take that for a truncation.
- A topic that was deleted and created again has another id, so old offsets are meaningless: the position is reset.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from coterie.client.consumer.fetch_collector import FetchCollector
from coterie.client.consumer.fetch_requests import (
    ON_ERROR,
    AskCommitted,
    AskEpochEnds,
    AskOffsets,
    Fetch,
    FetchEffect,
    FetchErrorAction,
    Found,
    LeaderOf,
    LogTruncated,
    LogTruncationError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    RefreshLeaders,
    corrupt,
    epoch_ends_from,
    fetch_from,
)
from coterie.client.consumer.subscription_state import (
    LATEST,
    NO_EPOCH,
    NO_RESET,
    Chunk,
    Need,
    PartitionLeader,
    Reset,
    TopicPartitionState,
    parse_reset,
)
from coterie.client.types import OffsetAndMetadata, TopicPartition
from coterie.errors import CoterieError, ErrorCode, KafkaError
from coterie.protocol.apis import fetch
from coterie.protocol.apis import offset_for_leader_epoch as epoch_api
from coterie.settings.consumer_settings import ConsumerSettings

MOST_STALE_EPOCHS = 10
"""The number of times that metadata is refreshed because its leader epoch is older than that of the position. Java has
no limit, but an epoch that never existed, committed by mistake, should not stop a consumer."""
_STANDS = frozenset({Need.NOTHING, Need.VALIDATION})


class NotAssignedError(CoterieError, LookupError):
    """The consumer was asked about a partition it does not read."""


class Fetcher(FetchCollector):
    def __init__(self, settings: ConsumerSettings) -> None:
        super().__init__()
        self._settings = settings
        self._auto_offset_reset = parse_reset(settings.auto_offset_reset)
        self._reads_committed = settings.reads_committed
        self._states: dict[TopicPartition, TopicPartitionState] = {}
        self._fetching: dict[int, Fetch] = {}
        self._stale: set[str] = set()
        self._is_refreshing = False
        self._refresh_not_before_ms = 0
        self._truncations: list[LogTruncated] = []
        self.due_ms: int | None = None
        """The time at which to call `effects` again if nothing happens."""

    # --- what is read -------------------------------------------------------------------------------------------------

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these and no others; those that were read before keep their state."""
        self.settle()
        before = dict(self._states)
        states: dict[
            TopicPartition, TopicPartitionState
        ] = {}  # all at once, since other threads look at the assignment
        for one in partitions:
            state = before.pop(one, None)
            if state is None:
                state = TopicPartitionState(one, Need.RESET if self._settings.group_id is None else Need.COMMITTED)
                state.reset = self._auto_offset_reset
            states[one] = state
            if state.is_held:
                state.is_held = False
                self._offer(state)
        self._states = states
        for state in before.values():
            self._move(state)
            self._handed.pop(state, None)
        self.needs_data = True

    @property
    def assignment(self) -> list[TopicPartition]:
        return list(self._states)

    def state(self, partition: TopicPartition) -> TopicPartitionState:
        self.settle()
        found = self._states.get(partition)
        if found is None:
            raise NotAssignedError(
                f"{partition} is not assigned to this consumer"
                + (f"; assigned are {', '.join(map(str, self._states))}" if self._states else ", and nothing else is")
            )
        return found

    def seek(self, partition: TopicPartition, offset: int, leader_epoch: int = -1) -> None:
        state = self.state(partition)
        self._move(state)
        state.stand_at(offset, leader_epoch)
        self.needs_data = True

    def reset(self, partition: TopicPartition, reset: Reset) -> None:
        """Seek to the start or the end, whose offset is requested."""
        state = self.state(partition)
        self._move(state)
        state.request_offset_reset(reset)
        self.needs_data = True

    def restore(self, partition: TopicPartition) -> None:
        """Seek to the committed offset, which is requested; without one, auto.offset.reset decides."""
        state = self.state(partition)
        self._move(state)
        state.need, state.reset = Need.COMMITTED, self._auto_offset_reset
        self.needs_data = True

    def _move(self, state: TopicPartitionState) -> None:
        state.forget_fetched()
        state.leave()
        self._turn.pop(state, None)

    def pause(self, partition: TopicPartition) -> None:
        """Stop returning records of a partition; those that were fetched wait until `resume`."""
        self.state(partition).is_paused = True

    def hold(self, partitions: Iterable[TopicPartition]) -> None:
        """Return no more records of partitions that are about to be revoked. `assign` ends it."""
        self.settle()
        for one in partitions:
            if one in self._states:
                self._states[one].is_held = True

    def resume(self, partition: TopicPartition) -> None:
        state = self.state(partition)
        state.is_paused = False
        self._offer(state)
        self.needs_data = True

    @property
    def paused(self) -> list[TopicPartition]:
        return [state.partition for state in self._states.values() if state.is_paused]

    # --- how far ------------------------------------------------------------------------------------------------------

    def rewind(self) -> None:
        """Take back the records of the last poll, which did not reach its caller."""
        self.settle()
        handed, self._handed = self._handed, {}
        for state in handed:
            if state.done is not None:
                self.seek(state.partition, state.done.offset, state.done.leader_epoch)

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The positions that a commit without offsets commits: after the last records returned."""
        self.settle()
        return {
            one: OffsetAndMetadata(state.position, leader_epoch=state.epoch)
            for one, state in self._states.items()
            if state.position is not None
        }

    def processed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The positions that an auto-commit may commit now."""
        self.settle()
        return {one: state.done for one, state in self._states.items() if state.done is not None}

    def lag(self, partition: TopicPartition) -> int | None:
        """Records that are in the log and not returned yet; None while no fetch has returned the end of the log."""
        state = self.state(partition)
        end = state.last_stable_offset if self._reads_committed else state.high_watermark
        return None if state.position is None or end < 0 else max(end - state.position, 0)

    def largest_lag(self) -> int | None:
        """Return the largest lag of any partition; None while none is known."""
        self.settle()
        ends = (
            (state.position, state.last_stable_offset if self._reads_committed else state.high_watermark)
            for state in self._states.values()
        )
        return max((max(end - at, 0) for at, end in ends if at is not None and end >= 0), default=None)

    def lead(self, partition: TopicPartition) -> int | None:
        """Records from the start of the log to the position; None while no fetch has returned its start."""
        state = self.state(partition)
        return (
            None
            if state.position is None or state.log_start_offset < 0
            else max(state.position - state.log_start_offset, 0)
        )

    # --- what to ask --------------------------------------------------------------------------------------------------

    def effects(self, leader_of: LeaderOf, now_ms: int) -> list[FetchEffect]:
        self.settle()
        self.needs_data = False
        self.due_ms = None
        found: list[FetchEffect] = []
        committed: list[TopicPartitionState] = []
        offsets: dict[TopicPartitionState, int] = {}
        unvalidated: dict[int, list[tuple[TopicPartitionState, PartitionLeader]]] = {}
        by_node: dict[int, list[tuple[TopicPartitionState, PartitionLeader]]] = {}
        waiting: dict[int, int] = {}
        for state in self._states.values():
            if state.asking is not None or (state.failure is not None and not state.failure_passes):
                continue
            if state.not_before_ms > now_ms:
                self._look_again_at(state.not_before_ms)
                continue
            leader = None
            if state.need in _STANDS and not state.is_held:
                leader = self._follow(state, leader_of(*state.partition), now_ms)
            if state.need is Need.COMMITTED:
                committed.append(state)
            elif state.need is Need.RESET:
                assert state.reset is not None
                offsets[state] = state.reset.timestamp(now_ms)
            elif leader is None:
                continue
            elif state.need is Need.VALIDATION:
                unvalidated.setdefault(leader.node_id, []).append((state, leader))
            elif not state.is_paused and state.next_fetch >= 0:
                node_id = state.node_to_ask(leader.node_id, now_ms)
                by_node.setdefault(node_id, []).append((state, leader))
                waiting[node_id] = waiting.get(node_id, 0) + sum(chunk.size for chunk in state.chunks)
        asks: list[AskCommitted | AskOffsets | AskEpochEnds] = []
        asks += [AskCommitted(committed)] if committed else []
        asks += [AskOffsets(offsets)] if offsets else []
        asks += [epoch_ends_from(node_id, readers) for node_id, readers in unvalidated.items()]
        for ask in asks:
            for state in ask.states:
                state.asking = ask
        found += asks
        for node_id, readers in by_node.items():
            if node_id not in self._fetching and waiting[node_id] <= self._settings.max_partition_fetch_bytes:
                self._fetching[node_id] = fetch_from(node_id, readers, self._settings)
                found.append(self._fetching[node_id])
        found += self._refresh(now_ms)
        found += self._truncations
        self._truncations = []
        return found

    def _follow(
        self, state: TopicPartitionState, leader: PartitionLeader | None, now_ms: int
    ) -> PartitionLeader | None:
        """The leader to ask about the state, if there is one. A new one must validate the position first."""
        before = state.leader
        if leader is None or leader == before:
            if leader is None and not state.is_paused:
                self._stale.add(state.partition.topic)
            return leader
        is_recreated = before is not None and leader.is_of_another_topic(before)
        if NO_EPOCH < leader.epoch < state.epoch and not is_recreated and state.stale_epochs < MOST_STALE_EPOCHS:
            state.stale_epochs += 1
            state.not_before_ms = now_ms + self._settings.retry_backoff_ms
            self._look_again_at(state.not_before_ms)
            self._stale.add(state.partition.topic)
            return None
        state.forget_fetched()
        self._turn.pop(state, None)
        assert state.position is not None
        state.next_fetch = state.position
        state.leader, state.replica = leader, None
        state.need = Need.NOTHING if NO_EPOCH in (state.epoch, leader.epoch) else Need.VALIDATION
        if is_recreated:
            self._truncated(state, None, "the topic was deleted and created again")
        return None if state.failure is not None else leader

    def _look_again_at(self, at_ms: int) -> None:
        self.due_ms = at_ms if self.due_ms is None else min(self.due_ms, at_ms)

    def _refresh(self, now_ms: int) -> list[FetchEffect]:
        if not self._stale or self._is_refreshing:
            return []
        if self._refresh_not_before_ms > now_ms:
            self._look_again_at(self._refresh_not_before_ms)
            return []
        topics = sorted(self._stale)
        self._stale.clear()
        self._is_refreshing = True
        return [RefreshLeaders(topics)]

    # --- answers ------------------------------------------------------------------------------------------------------

    def fetched(self, asked: Fetch, answer: fetch.Response, now_ms: int) -> None:
        self.settle()
        self._ended(asked)
        if answer.error:
            for state, offset, leader in asked.states.values():
                if state.wants(offset, leader):
                    self._handle_error(state, offset, answer.error, now_ms)
            return
        for topic in answer.responses:
            name = topic.topic if topic.topic_id is None else asked.names.get(topic.topic_id, "")
            for one in topic.partitions:
                found = asked.states.get((name, one.partition))
                if found is not None and found[0].wants(*found[1:]):
                    self._take_in(*found[:2], one, now_ms)

    def fetch_failed(self, asked: Fetch, error: KafkaError, now_ms: int) -> None:
        """The node could not be reached, or did not answer: maybe others lead by now."""
        self.settle()
        self._ended(asked)
        for state, _, _ in asked.states.values():
            state.replica = None
            self._answer_failed(state, error, now_ms)
            self._stale.add(state.partition.topic)

    def _ended(self, asked: Fetch) -> None:
        if self._fetching.get(asked.node_id) is asked:
            del self._fetching[asked.node_id]
        self.needs_data = True

    def _take_in(self, state: TopicPartitionState, offset: int, one: fetch.FetchedPartition, now_ms: int) -> None:
        if one.error:
            self._handle_error(state, offset, one.error, now_ms)
            return
        state.high_watermark = max(one.high_watermark, -1)
        state.log_start_offset = one.log_start_offset
        state.last_stable_offset = one.last_stable_offset if one.last_stable_offset >= 0 else one.high_watermark
        if one.preferred_read_replica >= 0:
            state.replica = one.preferred_read_replica
            state.replica_until_ms = now_ms + self._settings.metadata_max_age_ms
        if one.records:
            aborted = (one.aborted_transactions or ()) if self._reads_committed else None
            chunk = Chunk(*state.partition, offset, one.records, aborted, check_crcs=self._settings.check_crcs)
            state.chunks.append(chunk)
            state.next_fetch = chunk.end_offset
            self._turn[state] = None

    def _handle_error(self, state: TopicPartitionState, offset: int, code: ErrorCode, now_ms: int) -> None:
        do = ON_ERROR.get(code, FetchErrorAction.RAISE)
        if do is FetchErrorAction.REFRESH:
            self._stale.add(state.partition.topic)
        if state.replica is not None:
            state.replica = None  # back to the leader, whose word counts (KIP-392)
        elif do is FetchErrorAction.RESET and not state.chunks:
            self._handle_offset_out_of_range(state, offset)
            return
        elif do in {FetchErrorAction.RAISE, FetchErrorAction.RAISE_AND_RETRY} and not state.chunks:
            self._fail(state, self._error(state, offset, code), passes=do is FetchErrorAction.RAISE_AND_RETRY)
        self._back_off(state, now_ms)  # with chunks it is asked again when what lies before the error is taken

    def _error(self, state: TopicPartitionState, offset: int, code: ErrorCode) -> KafkaError:
        if code is ErrorCode.CORRUPT_MESSAGE:
            return corrupt(
                state.partition, offset, "the broker found them corrupt (CORRUPT_MESSAGE), and is asked again"
            )
        return KafkaError.of(code, f"{state.partition} cannot be read at offset {offset}")

    def _handle_offset_out_of_range(self, state: TopicPartitionState, offset: int) -> None:
        if self._auto_offset_reset == NO_RESET:
            error = OffsetOutOfRangeError(
                f"{state.partition} has no offset {offset} (any more), and auto.offset.reset is none: seek to an "
                "offset that is there, or set auto.offset.reset to earliest, latest or by_duration:..."
            )
            self._fail(state, error, passes=False)
            return
        state.leave()
        state.request_offset_reset(self._auto_offset_reset)

    def _truncated(self, state: TopicPartitionState, divergent: OffsetAndMetadata | None, why: str) -> None:
        """The log does not have all that was read. `divergent`: up to where it has, if the leader knows."""
        assert state.position is not None
        position, one = OffsetAndMetadata(state.position, leader_epoch=state.epoch), state.partition
        if self._auto_offset_reset == NO_RESET:
            advice = "an offset that is there" if divergent is None else f"offset {divergent.offset}"
            error = LogTruncationError(
                f"{one}: {why}; the position was {position.offset} (leader epoch {position.leader_epoch}), and "
                f"auto.offset.reset is none: seek to {advice} to go on",
                {one: position},
                {} if divergent is None else {one: divergent},
            )
            self._fail(state, error, passes=False)
            return
        if divergent is None:
            goes_on = f"and is reset to {self._auto_offset_reset.name} (auto.offset.reset)"
            state.leave()
            state.request_offset_reset(self._auto_offset_reset)
        else:
            goes_on = f"and goes back to {divergent.offset} (leader epoch {divergent.leader_epoch})"
            state.stand_at(divergent.offset, divergent.leader_epoch)
            state.need = Need.NOTHING  # the leader has just said so
        self._truncations.append(LogTruncated(one, position, why, goes_on))

    def _back_off(self, state: TopicPartitionState, now_ms: int) -> None:
        state.not_before_ms = now_ms + self._settings.retry_backoff_ms
        self.needs_data = True

    # --- answers about positions --------------------------------------------------------------------------------------

    def committed(
        self, asked: AskCommitted, offsets: Mapping[TopicPartition, OffsetAndMetadata] | KafkaError, now_ms: int
    ) -> None:
        """`offsets`: what the group has committed; a partition that is not there has nothing."""
        self.settle()
        self.needs_data = True
        for state in asked.states:
            if state.asking is not asked:
                continue  # sought elsewhere in the meantime, or gone
            state.asking = None
            if isinstance(offsets, KafkaError):
                self._answer_failed(state, offsets, now_ms)
            elif state.partition in offsets:
                found = offsets[state.partition]
                state.stand_at(found.offset, found.leader_epoch)
            elif self._auto_offset_reset == NO_RESET:
                error = NoOffsetForPartitionError(
                    f"the group has committed no offset for {state.partition}, and auto.offset.reset is none: commit "
                    "or seek to one, or set auto.offset.reset to earliest, latest or by_duration:..."
                )
                self._fail(state, error, passes=False)
            else:
                state.request_offset_reset(self._auto_offset_reset)

    def offsets_found(self, asked: AskOffsets, found: Mapping[TopicPartition, Found], now_ms: int) -> None:
        self.settle()
        self.needs_data = True
        for state in asked.states:
            if state.asking is not asked:
                continue
            state.asking = None
            one = found.get(state.partition)
            if one is None:
                self._back_off(state, now_ms)
            elif one.error is not None:
                self._answer_failed(state, one.error, now_ms)
            elif one.offset < 0:
                state.reset = LATEST  # no record is newer than that time: begin at the end
            else:
                state.stand_at(one.offset)  # as it is in the log now: there is nothing to validate

    def epoch_ends_found(self, asked: AskEpochEnds, answer: epoch_api.Response, now_ms: int) -> None:
        """Take the end offsets of the positions' epochs, as their leaders answered."""
        self.settle()
        self.needs_data = True
        ends = {(topic.topic, one.partition): one for topic in answer.topics for one in topic.partitions}
        for state in asked.states:
            if state.asking is not asked:
                continue  # sought elsewhere in the meantime, or gone
            state.asking = None
            one = ends.get(state.partition)
            if one is None or one.error:
                code = ErrorCode.UNKNOWN_SERVER_ERROR if one is None else one.error
                self._not_validated(state, code, now_ms)
                continue
            assert state.position is not None
            if one.end_offset < 0 or one.leader_epoch < 0:
                self._truncated(state, None, f"its leader knows no leader epoch {state.epoch}: the log was truncated")
            elif one.end_offset < state.position:
                divergent = OffsetAndMetadata(one.end_offset, leader_epoch=one.leader_epoch)
                self._truncated(state, divergent, f"its log was truncated to offset {one.end_offset}")
            else:
                state.need = Need.NOTHING

    def epoch_ends_failed(self, asked: AskEpochEnds, error: KafkaError, now_ms: int) -> None:
        self.settle()
        self.needs_data = True
        for state in asked.states:
            if state.asking is not asked:
                continue
            state.asking = None
            if error.code is ErrorCode.UNSUPPORTED_VERSION:
                state.need = Need.NOTHING  # a broker that old cannot be asked, and Java reads on, too
            else:
                self._stale.add(state.partition.topic)
                self._answer_failed(state, error, now_ms)

    def _not_validated(self, state: TopicPartitionState, code: ErrorCode, now_ms: int) -> None:
        """Raise an authorization error. After any other error, as in Java, the leader is looked up and asked again."""
        if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            self._fail(
                state, KafkaError.of(code, f"the position of {state.partition} cannot be validated"), passes=True
            )
        self._stale.add(state.partition.topic)
        self._back_off(state, now_ms)

    def _answer_failed(self, state: TopicPartitionState, error: KafkaError, now_ms: int) -> None:
        if not error.retriable:
            self._fail(state, error, passes=True)
        self._back_off(state, now_ms)

    def refreshed(self, now_ms: int) -> None:
        """The metadata was asked for, with or without success."""
        self._is_refreshing = False
        self._refresh_not_before_ms = now_ms + self._settings.retry_backoff_ms
        self.needs_data = True
