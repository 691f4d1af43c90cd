"""The fetched records of a consumer on their way to its user: by polls, or one by one. No I/O; the time comes in.

`Fetcher` is one of these; it puts fetched bytes into the states of partitions, and says where they begin. The rules:

- Partitions are served in turn: every poll begins with another one.
- The position of a partition is behind the last record that was handed out, and behind what lies there and is not
  shown: control batches, aborted records, offsets that compaction has removed at the end of a batch.
- The records of a poll count as processed when the next poll begins: `done` is what auto-commit may commit.
- An error of a partition is raised when the records before it are handed out.

An iteration takes records of opened batches from `buffer`, without a lock and without a call of anything here. Nobody
counts these records while they are taken. `settle` stops the buffer and counts them, as if each had been a poll of its
own. Whatever reads or changes positions calls it first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from coterie.client.consumer.fetch_requests import corrupt
from coterie.client.consumer.subscription_state import Chunk, TopicPartitionState
from coterie.client.types import OffsetAndMetadata
from coterie.errors import KafkaError, MalformedError
from coterie.protocol.fetched import NO_PROGRESS
from coterie.protocol.records import Record, RecordBuffer


class FetchCollector:
    def __init__(self) -> None:
        self._turn: OrderedDict[TopicPartitionState, None] = OrderedDict()
        """The partitions with fetched records or an error, in the order in which polls return them."""
        self._handed: dict[TopicPartitionState, None] = {}
        """The partitions of the last poll, whose records may not be processed yet."""
        self.buffer = RecordBuffer()
        """Records of opened batches, which an iteration takes without asking."""
        self._buffered: TopicPartitionState | None = None
        """The partition of the buffer; None if nothing is to be counted."""
        self.needs_data = True
        """True if more may be fetched now. Every change sets it."""
        self.turns = 0
        """The number of times that records were asked for."""
        self.records_taken = 0
        self.bytes_taken = 0

    @property
    def has_something(self) -> bool:
        """A poll need not wait: there are bytes to unpack, or an error to raise."""
        return bool(self._turn)

    def begin_poll(self) -> None:
        """The caller has come back for more: it is done with what it was given."""
        self.settle()
        for state in self._handed:
            state.done = (
                OffsetAndMetadata(state.position, leader_epoch=state.epoch) if state.position is not None else None
            )
        self._handed.clear()

    def take(self, limit: int) -> list[Record]:
        """The next records, of as many partitions as it takes; empty if none are there.

        Every poll begins with another partition, so that a full one does not keep the others waiting.
        """
        self.settle()
        if self._handed:
            self.begin_poll()
        self.turns += 1
        records: list[Record] = []
        turn = self._turn
        while turn and len(records) < limit:
            state = next(iter(turn))
            if state.failure is not None and not state.chunks and not state.is_held:
                if records:
                    break
                turn.move_to_end(state)  # the next poll gives the records of others, if there are any
                raise self._failure_of(state)
            if state.is_paused or state.is_held or not state.chunks:
                del turn[state]
                continue
            self._take_from(state, limit, records)
        if limit > 1 and turn:
            turn.move_to_end(next(iter(turn)))
        return records

    def take_one(self, for_ms: int = 0, clock_ms: Callable[[], int] = int, *, is_system: bool = False) -> Record | None:
        """The same as `take(1)`. For `for_ms`, those that follow can be taken from `buffer`; see `RecordBuffer`."""
        records = self.take(1)
        if not records:
            return None
        state = next(reversed(self._handed))
        if for_ms > 0 and state.chunks:
            chunk = state.chunks[0]
            chunk.read_ahead()
            opened, taken = chunk.opened
            if 0 < taken < len(opened) and opened[taken - 1] is records[0]:
                self.buffer.start(opened, taken, for_ms, clock_ms, is_system)
                self._buffered = state
        return records[0]

    def settle(self) -> None:
        """Stop the buffer and count what was taken from it, as if by as many calls of `take_one`."""
        state, self._buffered = self._buffered, None
        if state is None:
            return
        self.buffer.stop()
        count = self.buffer.count
        if count > 1:
            self._take_from(state, count - 1, [])
        if count:
            self.begin_poll()
            self._take_from(state, 1, [])

    def _take_from(self, state: TopicPartitionState, limit: int, records: list[Record]) -> None:
        chunk = state.chunks[0]
        before = chunk.next_offset
        try:
            taken = chunk.take(limit - len(records))
        except MalformedError as error:
            self._unreadable(state, chunk, str(error))
            return
        if not taken and chunk.end_offset == NO_PROGRESS:
            self._unreadable(state, chunk, "the broker's answer ends before that offset, which it was asked for")
            return
        self._handed[state] = None
        self.records_taken += len(taken)
        records += taken
        if chunk.next_offset > before:
            state.epoch = chunk.last_epoch  # also of batches that are not shown: it must belong to the position
        state.position = chunk.next_offset
        if not taken or chunk.next_offset == chunk.end_offset:
            state.chunks.popleft()
            self.bytes_taken += chunk.whole_size
            self._turn.move_to_end(state)
            self.needs_data = True

    def _unreadable(self, state: TopicPartitionState, chunk: Chunk, why: str) -> None:
        state.chunks.clear()
        self._fail(state, corrupt(state.partition, chunk.next_offset, why), passes=False)

    def _failure_of(self, state: TopicPartitionState) -> KafkaError:
        assert state.failure is not None
        failure = state.failure
        if state.failure_passes:
            state.failure = None
        return failure

    def _fail(self, state: TopicPartitionState, error: KafkaError, *, passes: bool) -> None:
        state.failure, state.failure_passes = error, passes
        self._turn[state] = None

    def _offer(self, state: TopicPartitionState) -> None:
        if state.chunks or state.failure is not None:
            self._turn[state] = None
