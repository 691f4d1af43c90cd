"""Fetch: records from where a reader stands, at once if there are enough of them, or when there are (KIP-227 refused).

There are no fetch sessions: every answer says session 0, which tells the client to name its partitions each time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from coterie.broker.calls import Call
from coterie.broker.handlers.redirect import endpoints_of, leader_of
from coterie.errors import ErrorCode
from coterie.protocol.api_values import READ_COMMITTED
from coterie.protocol.apis import fetch
from coterie.protocol.apis.fetch import FetchedPartition, FetchedTopic, Partition, Request, Response
from coterie.storage import LogError, PartitionLog

if TYPE_CHECKING:
    from coterie.broker.cluster import Cluster
    from coterie.broker.node import Node

__all__ = ["HANDLERS", "FetchDue", "Fetches"]

NOT_SAID = -1
_FULL_FETCH_EPOCHS = (-1, 0)
_TELLS_LEADERS = 16
"""The first version whose answers say who leads, if it is not who was asked."""
_WRONG_NODE = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


@dataclass(slots=True)
class FetchDue:
    """A parked fetch has waited as long as its client allowed."""

    parked: Parked


class Parked:
    """A fetch that waits for more to come."""

    __slots__ = ("call", "logs", "node", "request")

    def __init__(self, node: Node, call: Call, request: Request, logs: list[PartitionLog]) -> None:
        self.node = node
        self.call = call
        self.request = request
        self.logs = logs


class Fetches:
    """Of all nodes."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._parked: dict[Call, Parked] = {}
        self._readers: dict[PartitionLog, dict[Parked, None]] = {}
        self._damages: set[str] = set()
        """Damaged batches that were already reported, so that each is logged once."""

    def __len__(self) -> int:
        return len(self._parked)

    def handle(self, node: Node, call: Call, request: Request, now_ms: int) -> None:
        if request.session_id:
            answer = Response(error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, responses=())
            node.answer(call, answer)
            return
        if request.session_epoch not in _FULL_FETCH_EPOCHS:
            answer = Response(error=ErrorCode.INVALID_FETCH_SESSION_EPOCH, responses=())
            node.answer(call, answer)
            return
        answer, size, final = self._read(node, call, request)
        if final or size >= request.min_bytes or request.max_wait_ms <= 0 or self._cluster.is_stopping:
            self._send(node, call, answer)
            return
        self._park(node, call, request, now_ms)

    # --- waiting ------------------------------------------------------------------------------------------------------

    def _park(self, node: Node, call: Call, request: Request, now_ms: int) -> None:
        logs = [log for topic in request.topics for log in self._logs_of(node, topic)]
        parked = Parked(node, call, request, logs)
        self._parked[call] = parked
        for log in logs:
            self._readers.setdefault(log, {})[parked] = None
        self._cluster.timers.arm(call, now_ms + request.max_wait_ms, FetchDue(parked))

    def _unpark(self, parked: Parked) -> None:
        del self._parked[parked.call]
        for log in parked.logs:
            readers = self._readers.get(log)
            if readers is not None:
                readers.pop(parked, None)
                if not readers:
                    del self._readers[log]
        self._cluster.timers.disarm(parked.call)

    def advanced(self, log: PartitionLog) -> None:
        """There is more to read in `log`."""
        for parked in list(self._readers.get(log, ())):
            answer, size, final = self._read(parked.node, parked.call, parked.request)
            if final or size >= parked.request.min_bytes:
                self._unpark(parked)
                self._send(parked.node, parked.call, answer)

    def due(self, event: FetchDue) -> None:
        parked = event.parked
        if self._parked.get(parked.call) is parked:
            self._unpark(parked)
            answer, _, _ = self._read(parked.node, parked.call, parked.request)
            self._send(parked.node, parked.call, answer)

    def forget(self, call: Call) -> None:
        """Its reader is gone."""
        parked = self._parked.get(call)
        if parked is not None:
            self._unpark(parked)

    def answer_all(self) -> None:
        for parked in list(self._parked.values()):
            self.due(FetchDue(parked))

    def look_again(self, log: PartitionLog) -> None:
        """Its readers hear that the partition is gone, or has another leader."""
        for parked in list(self._readers.get(log, ())):
            self.due(FetchDue(parked))

    # --- reading ------------------------------------------------------------------------------------------------------

    def _read(self, node: Node, call: Call, request: Request) -> tuple[Response, int, bool]:
        """The answer as of now, its bytes of records, and whether waiting would not change it (an error)."""
        left = min(request.max_bytes, node.settings.fetch_max_bytes, node.cluster.room())
        size, final = 0, not request.topics
        topics = []
        elsewhere = []
        for topic in request.topics:
            name = self._name_of(topic)
            answers = []
            for partition in topic.partitions:
                answer = self._read_partition(node, name, partition, request, left, is_first=not size)
                answers.append(answer)
                if answer.records:
                    size += len(answer.records)
                    left -= len(answer.records)
                if answer.error:
                    final = True
                    if answer.error in _WRONG_NODE and name is not None and call.version >= _TELLS_LEADERS:
                        answer.current_leader = leader_of(node, name, partition.partition)
                        elsewhere.append(answer.current_leader)
            topics.append(FetchedTopic(topic=topic.topic, topic_id=topic.topic_id, partitions=answers))
        return (
            Response(responses=topics, node_endpoints=endpoints_of(node, elsewhere) if elsewhere else ()),
            size,
            final,
        )

    def _name_of(self, topic: fetch.Topic) -> str | None:
        return topic.topic if topic.topic_id is None else self._cluster.topic_names.get(topic.topic_id)

    def _logs_of(self, node: Node, topic: fetch.Topic) -> list[PartitionLog]:
        name = self._name_of(topic)
        logs = [node.led.get((name, one.partition)) for one in topic.partitions] if name is not None else []
        return [log for log in logs if log is not None]

    def _read_partition(
        self, node: Node, name: str | None, asked: Partition, request: Request, left: int, *, is_first: bool
    ) -> FetchedPartition:
        log = node.led.get((name, asked.partition)) if name is not None else None
        if log is None:
            error = ErrorCode.UNKNOWN_TOPIC_ID if name is None else node.absent(name, asked.partition)
            return FetchedPartition(partition=asked.partition, error=error)
        if asked.current_leader_epoch != log.leader_epoch:
            stale = leader_epoch_error(asked.current_leader_epoch, log)
            if stale:
                return FetchedPartition(partition=asked.partition, error=stale)
        end = self._cluster.flusher.end_of(log)
        stable = log.last_stable(end)
        answer = FetchedPartition(
            partition=asked.partition, high_watermark=end, last_stable_offset=stable, log_start_offset=log.log_start
        )
        if not log.log_start <= asked.fetch_offset <= log.log_end:
            answer.error = ErrorCode.OFFSET_OUT_OF_RANGE
            answer.high_watermark = answer.last_stable_offset = answer.log_start_offset = -1
            return answer
        up_to = stable if request.isolation_level == READ_COMMITTED else end
        room = min(asked.max_bytes, left)
        if asked.fetch_offset >= up_to or (room <= 0 and not is_first):
            return answer
        try:
            records = log.read(asked.fetch_offset, max(room, 0), up_to)
        except LogError as error:
            answer.error = error.code
            self._tell_damage(error)
            return answer
        if is_first or len(records) <= room:  # only the first of an answer may be larger than was asked for
            answer.records = records
        return answer

    def _tell_damage(self, error: LogError) -> None:
        """Once: a client asks for the same again and again."""
        if error.code is ErrorCode.CORRUPT_MESSAGE and str(error) not in self._damages:
            self._damages.add(str(error))
            self._cluster.tell_trouble(str(error), self._cluster.now_ms)

    def _send(self, node: Node, call: Call, answer: Response) -> None:
        node.send_parts(call, fetch.write_response_parts(answer, call.version))


def leader_epoch_error(epoch: int, log: PartitionLog) -> ErrorCode:
    """A client that knows of another leadership of this log has to ask for metadata, or we do (KIP-320)."""
    if epoch in (NOT_SAID, log.leader_epoch):
        return ErrorCode.NONE
    return ErrorCode.FENCED_LEADER_EPOCH if epoch < log.leader_epoch else ErrorCode.UNKNOWN_LEADER_EPOCH


def _fetch(node: Node, call: Call, frame: bytes, at: int, now_ms: int) -> None:
    node.fetches.handle(node, call, fetch.read_request(frame, at, call.version), now_ms)


HANDLERS = {fetch.API.key: _fetch}
