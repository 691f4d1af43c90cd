"""The partitions of `__consumer_offsets` a node leads: what the coordinator appends goes in, groups are read back."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from coterie.coordinator.runtime import Append, Batch, Replay
from coterie.errors import ErrorCode
from coterie.protocol.batch import batches
from coterie.protocol.offsets_topic import OFFSETS_TOPIC
from coterie.protocol.records import NO_LIMIT, BatchBuilder, EndMarker, build_marker, marker_of, raw_records
from coterie.storage import LogError, LogReadError, Origin, PartitionLog

if TYPE_CHECKING:
    from coterie.broker.node import Node

__all__ = ["GroupLogs", "read_groups", "read_some"]


class GroupLogs:
    def __init__(self, node: Node) -> None:
        self._node = node

    def append(self, effect: Append, now_ms: int) -> None:
        """Just before a flush: by then more has come that fits into the same batch."""
        self._node.flusher.before_next(partial(self._write, effect), now_ms)

    def _write(self, effect: Append, now_ms: int) -> None:
        batch = effect.batch()
        if batch is None:
            return
        node = self._node
        log = node.log(OFFSETS_TOPIC, effect.partition)
        if log is None:
            self._ended(batch, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, now_ms)
            return
        at_ms = node.cluster.wall.at(now_ms)
        try:
            if batch.producer_id is None:
                batch.then.base_offset = log.append_own(batch.records, at_ms)
            else:
                batch.then.base_offset = log.append(_packed(batch, at_ms), at_ms, Origin.COORDINATOR).base_offset
        except LogError as error:
            node.tell_trouble(str(error), now_ms)
            self._ended(batch, error.code, now_ms)
            return
        node.wrote(log, partial(self._ended, batch))

    def _ended(self, batch: Batch, error: ErrorCode, now_ms: int) -> None:
        batch.then.error = error
        self._node.follow(self._node.coordinator.handle(batch.then, now_ms), now_ms)

    def load(self, now_ms: int) -> None:
        """Read the node's groups back (C4). Nothing else is answered before this has ended."""
        node = self._node
        topic = node.directory.topics.get(OFFSETS_TOPIC)
        if topic is None:
            return
        node.coordinator.count_partitions(topic.partitions)
        for partition in range(topic.partitions):
            log = node.log(OFFSETS_TOPIC, partition)
            if log is None:
                continue  # another node's
            replay = node.coordinator.gain(partition)
            read_groups(log, replay)
            node.follow(node.coordinator.loaded(partition, now_ms), now_ms)


def _packed(batch: Batch, at_ms: int) -> bytearray:
    """Of a transaction, or the marker that ends one."""
    assert batch.producer_id is not None
    if batch.marker is not None:
        marker = EndMarker(batch.marker, 0)
        producer_id, producer_epoch = batch.producer_id, batch.producer_epoch
        return build_marker(marker, producer_id=producer_id, producer_epoch=producer_epoch, timestamp=at_ms)
    builder = BatchBuilder(NO_LIMIT)
    builder.extend(batch.records, at_ms)
    return builder.finish(producer_id=batch.producer_id, producer_epoch=batch.producer_epoch, is_transactional=True)


_READ_AT_ONCE = 1 << 20


def read_groups(log: PartitionLog, replay: Replay) -> None:
    """All there is in a partition of `__consumer_offsets`, in order."""
    offset = log.log_start
    while offset < log.log_end:
        offset = read_some(log, offset, replay)


def read_some(log: PartitionLog, offset: int, replay: Replay) -> int:
    """A piece of the log from `offset` on; where the next one begins."""
    end = log.log_end
    data = log.read(offset, _READ_AT_ONCE, end)
    if not data:  # to go on without them would be to lose what was acknowledged
        raise LogReadError(f"{log.path} ends at offset {offset}, though it should reach to {end}", None)
    for at, header in batches(data):
        offset = header.next_offset
        if header.is_control:
            marker = marker_of(data, header, at)
            if marker is not None:
                replay.marker(header.producer_id, committed=marker.committed)
            continue
        producer_id = header.producer_id if header.is_transactional else None
        for record in raw_records(data, header, at):
            replay.record(record.offset, record.key or b"", record.value, producer_id)
    return offset
