"""The requests of a transaction of ten records on three partitions, with an offset of a group, as prepared bytes.

Each transaction has the next epoch (KIP-890): only the epochs and the checksums of the batches are written anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from types import ModuleType
from typing import Any

from coterie.errors import ErrorCode
from coterie.protocol.apis import end_txn, produce, txn_offset_commit
from coterie.protocol.batch import stamp_producer
from coterie.protocol.frames import read_response_header, request_frame
from coterie.protocol.messages import CommitPartition, OffsetCommit
from coterie.protocol.records import BatchRecord, build_batch

RECORDS = (4, 3, 3)
"""Records of a transaction, by partition."""
VALUE = bytes(range(100))
STEPS: Sequence[tuple[ModuleType, int]] = ((produce, 12), (txn_offset_commit, 5), (end_txn, 5))
"""The requests of a transaction and their versions. The first two add their partitions to it."""

_IDS = Struct(">qh")
_UNSET = _IDS.pack(0x7172737475767778, 0x7172)


class TransactionFrames:
    """The requests of one producer; `member` is the id of a member of its group, and its generation."""

    def __init__(
        self,
        transactional_id: str,
        topic: str,
        partitions: Sequence[int],
        group_id: str,
        member: tuple[str, int],
        now_ms: int,
    ) -> None:
        unset_id, unset_epoch = _IDS.unpack(_UNSET)
        member_id, generation_id = member
        batches = [
            build_batch([BatchRecord(b"key-%d" % partition, VALUE, now_ms)] * count, is_transactional=True)
            for partition, count in zip(partitions, RECORDS, strict=True)
        ]
        offsets = [CommitPartition(topic, partitions[0], 1_000)]
        commit = OffsetCommit(None, group_id, member_id, None, generation_id, offsets)
        commit.producer_id, commit.producer_epoch = unset_id, unset_epoch
        written = [
            produce.Partition(partition=partition, records=memoryview(batch))
            for partition, batch in zip(partitions, batches, strict=True)
        ]
        requests: Sequence[Any] = (
            produce.Request(
                transactional_id=transactional_id,
                acks=-1,
                timeout_ms=30_000,
                topics=[produce.Topic(name=topic, partitions=written)],
            ),
            (transactional_id, commit),
            end_txn.Request(
                transactional_id=transactional_id, producer_id=unset_id, producer_epoch=unset_epoch, committed=True
            ),
        )
        self.frames = [
            bytearray(_frame(api, request, version)) for (api, version), request in zip(STEPS, requests, strict=True)
        ]
        self._batches_at = [self.frames[0].find(batch) for batch in batches]
        self._ids_at = [frame.find(_UNSET) for frame in self.frames]

    def begin(self, producer_id: int, producer_epoch: int) -> None:
        """Make the requests those of the next transaction."""
        for at in self._batches_at:
            stamp_producer(self.frames[0], at, producer_id, producer_epoch, 0)
        for frame, at in list(zip(self.frames, self._ids_at, strict=True))[1:]:
            _IDS.pack_into(frame, at, producer_id, producer_epoch)


def answer_of(step: int, frame: bytes) -> tuple[ErrorCode, Any]:
    """Return the error of an answer, of any of its partitions, and the answer."""
    api, version = STEPS[step]
    _, at = read_response_header(frame, flexible=api.API.has_flexible_response_header(version))
    answer = api.read_response(frame, at, version)
    if api is produce:
        errors = [each.error for topic in answer.responses for each in topic.partitions]
    elif api is txn_offset_commit:
        errors = answer.errors
    else:
        errors = [answer.error]
    return max(errors), answer


def _frame(api: ModuleType, request: Any, version: int) -> bytes:
    flexible = version >= api.API.flexible
    return request_frame(api.API.key, version, 0, "bench", api.write_request(request, version), flexible=flexible)
