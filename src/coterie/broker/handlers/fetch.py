"""Fetch: return records from an offset on, at once if there are enough of them, otherwise when there are.

There are no fetch sessions (KIP-227): every response has session 0, so the client names its partitions each time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from coterie.broker.broker_effects import Effects
from coterie.broker.broker_facts import Reporter
from coterie.broker.calls import Call, Handler, Responses
from coterie.broker.metadata_cache import MetadataCache
from coterie.broker.replica_manager import ReplicaManager
from coterie.broker.security.auth_helper import AuthHelper
from coterie.coordinator.runtime import Timers
from coterie.errors import ErrorCode
from coterie.protocol.acls import AclOperation, AclResourceType
from coterie.protocol.api import READ_COMMITTED
from coterie.protocol.apis import fetch
from coterie.protocol.apis.fetch import AbortedTransaction, FetchedPartition, FetchedTopic, Partition, Request, Response
from coterie.storage import LogError, PartitionLog
from coterie.structs import DataStruct

__all__ = ["FetchApi", "FetchDue", "Fetches", "leader_epoch_error"]

NOT_SAID = -1
_FULL_FETCH_EPOCHS = (-1, 0)
_NAMES_LEADER = 16
"""The first version whose answers name the leader, if it is not the node that was asked."""
_WRONG_NODE = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class FetchDue(DataStruct):
    """A parked fetch has waited as long as its client allowed."""

    parked: Parked


class Parked:
    """A fetch that waits for more records."""

    __slots__ = ("call", "denied", "logs", "replicas", "request")

    def __init__(
        self,
        replicas: ReplicaManager,
        call: Call,
        request: Request,
        denied: frozenset[str],
        logs: list[PartitionLog],
    ) -> None:
        """`denied` are the topics that the client may not read."""
        self.replicas = replicas
        self.denied = denied
        self.call = call
        self.request = request
        self.logs = logs


class Fetches:
    """Answers the fetches of all nodes, and parks those that have to wait."""

    def __init__(
        self,
        responses: Responses,
        auth: AuthHelper,
        metadata: MetadataCache,
        timers: Timers[object],
        reporter: Reporter,
        max_bytes: int,
    ) -> None:
        """`max_bytes` is `fetch.max.bytes`."""
        self._responses = responses
        self._auth = auth
        self._metadata = metadata
        self._timers = timers
        self._reporter = reporter
        self._max_bytes = max_bytes
        self.room: Callable[[], int] = lambda: max_bytes
        """Returns how large an answer may be now: less when clients do not take theirs."""
        self.is_stopping = False
        self._parked: dict[Call, Parked] = {}
        self._readers: dict[PartitionLog, dict[Parked, None]] = {}
        self._damages: set[str] = set()
        """Damaged batches that were already reported, so that each is logged once."""

    def __len__(self) -> int:
        return len(self._parked)

    def handle(self, replicas: ReplicaManager, call: Call, request: Request, now_ms: int) -> Effects:
        if request.session_id:
            answer = Response(error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, responses=())
            return self._responses.answer(call, answer, now_ms)
        if request.session_epoch not in _FULL_FETCH_EPOCHS:
            answer = Response(error=ErrorCode.INVALID_FETCH_SESSION_EPOCH, responses=())
            return self._responses.answer(call, answer, now_ms)
        names = filter(None, map(self._name_of, request.topics))
        denied = self._auth.denied(call, AclOperation.READ, AclResourceType.TOPIC, names)
        troubles: Effects = []
        answer, size, final = self._read(replicas, call, request, denied, troubles, now_ms)
        if final or size >= request.min_bytes or request.max_wait_ms <= 0 or self.is_stopping:
            return [*troubles, *self._send(call, answer)]
        self._park(replicas, call, request, denied, now_ms)
        return troubles

    # --- waiting ------------------------------------------------------------------------------------------------------

    def _park(
        self, replicas: ReplicaManager, call: Call, request: Request, denied: frozenset[str], now_ms: int
    ) -> None:
        logs = [log for topic in request.topics for log in self._logs_of(replicas, topic)]
        parked = Parked(replicas, call, request, denied, logs)
        self._parked[call] = parked
        for log in logs:
            self._readers.setdefault(log, {})[parked] = None
        self._timers.arm(call, now_ms + request.max_wait_ms, FetchDue(parked))

    def _unpark(self, parked: Parked) -> None:
        del self._parked[parked.call]
        for log in parked.logs:
            readers = self._readers.get(log)
            if readers is not None:
                readers.pop(parked, None)
                if not readers:
                    del self._readers[log]
        self._timers.disarm(parked.call)

    def advanced(self, log: PartitionLog, now_ms: int) -> Effects:
        """Answer the fetches that have enough, now that there is more to read in `log`."""
        effects: Effects = []
        for parked in list(self._readers.get(log, ())):
            answer, size, final = self._read(
                parked.replicas, parked.call, parked.request, parked.denied, effects, now_ms
            )
            if final or size >= parked.request.min_bytes:
                self._unpark(parked)
                effects += self._send(parked.call, answer)
        return effects

    def due(self, event: FetchDue, now_ms: int) -> Effects:
        parked = event.parked
        if self._parked.get(parked.call) is not parked:
            return []
        self._unpark(parked)
        troubles: Effects = []
        answer, _, _ = self._read(parked.replicas, parked.call, parked.request, parked.denied, troubles, now_ms)
        return [*troubles, *self._send(parked.call, answer)]

    def forget(self, call: Call) -> None:
        """The connection of a fetch has closed."""
        parked = self._parked.get(call)
        if parked is not None:
            self._unpark(parked)

    def answer_all(self, now_ms: int) -> Effects:
        return [effect for parked in list(self._parked.values()) for effect in self.due(FetchDue(parked), now_ms)]

    def look_again(self, log: PartitionLog, now_ms: int) -> Effects:
        """Answer the parked fetches of a partition that was deleted, or has another leader."""
        readers = list(self._readers.get(log, ()))
        return [effect for parked in readers for effect in self.due(FetchDue(parked), now_ms)]

    # --- reading ------------------------------------------------------------------------------------------------------

    def _name_of(self, topic: fetch.Topic) -> str | None:
        return topic.topic if topic.topic_id is None else self._metadata.topic_names.get(topic.topic_id)

    def _logs_of(self, replicas: ReplicaManager, topic: fetch.Topic) -> list[PartitionLog]:
        name = self._name_of(topic)
        logs = [replicas.log(name, one.partition) for one in topic.partitions] if name is not None else []
        return [log for log in logs if log is not None]

    def _read(
        self,
        replicas: ReplicaManager,
        call: Call,
        request: Request,
        denied: frozenset[str],
        troubles: Effects,
        now_ms: int,
    ) -> tuple[Response, int, bool]:
        """Return the answer as of now, its bytes of records, and whether waiting would not change it (an error).

        Damage that is found is reported once, in `troubles`.
        """
        left = min(request.max_bytes, self._max_bytes, self.room())
        size, final = 0, not request.topics
        topics = []
        leaders = []
        for topic in request.topics:
            name = self._name_of(topic)
            answers = []
            for partition in topic.partitions:
                answer = FetchedPartition(partition=partition.partition)
                answers.append(answer)
                if name in denied:
                    answer.error, final = ErrorCode.TOPIC_AUTHORIZATION_FAILED, True
                    continue
                try:
                    _read_partition(answer, replicas, name, partition, request, left, is_first=not size)
                except LogError as error:
                    answer.error = error.code
                    if error.code is ErrorCode.CORRUPT_MESSAGE and str(error) not in self._damages:
                        self._damages.add(str(error))
                        troubles.append(self._reporter.trouble(str(error), now_ms))
                if answer.records:
                    size += len(answer.records)
                    left -= len(answer.records)
                if answer.error:
                    final = True
                    if answer.error in _WRONG_NODE and name is not None and call.version >= _NAMES_LEADER:
                        answer.current_leader = self._metadata.leader(name, partition.partition)
                        leaders.append(answer.current_leader)
            topics.append(FetchedTopic(topic=topic.topic, topic_id=topic.topic_id, partitions=answers))
        endpoints = self._metadata.leader_endpoints(leaders, call.connection.listener) if leaders else ()
        return Response(responses=topics, node_endpoints=endpoints), size, final

    def _send(self, call: Call, answer: Response) -> Effects:
        return self._responses.send_parts(call, fetch.write_response_parts(answer, call.version))


def _read_partition(
    answer: FetchedPartition,
    replicas: ReplicaManager,
    name: str | None,
    asked: Partition,
    request: Request,
    left: int,
    *,
    is_first: bool,
) -> None:
    log = replicas.log(name, asked.partition) if name is not None else None
    if log is None:
        answer.error = ErrorCode.UNKNOWN_TOPIC_ID if name is None else replicas.error_for(name, asked.partition)
        return
    if asked.current_leader_epoch != log.leader_epoch:
        answer.error = leader_epoch_error(asked.current_leader_epoch, log)
        if answer.error:
            return
    if not log.log_start_offset <= asked.fetch_offset <= log.log_end_offset:
        answer.error = ErrorCode.OFFSET_OUT_OF_RANGE
        return
    end = replicas.high_watermark(log)
    stable = log.last_stable_offset(end)
    answer.high_watermark, answer.last_stable_offset, answer.log_start_offset = end, stable, log.log_start_offset
    is_committed = request.isolation_level == READ_COMMITTED
    up_to = stable if is_committed else end
    if is_committed:
        answer.aborted_transactions = []
    room = min(asked.max_bytes, left)
    if asked.fetch_offset >= up_to or (room <= 0 and not is_first):
        return
    records = log.read(asked.fetch_offset, max(room, 0), up_to)
    if is_first or len(records) <= room:  # only the first of an answer may be larger than was asked for
        answer.records = records
        if is_committed:
            answer.aborted_transactions = [
                AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset)
                for one in log.aborted_transactions(asked.fetch_offset, records)
            ]


def leader_epoch_error(epoch: int, log: PartitionLog) -> ErrorCode:
    """A client that knows of another leadership of this log has to ask for metadata, or we do (KIP-320)."""
    if epoch in (NOT_SAID, log.leader_epoch):
        return ErrorCode.NONE
    return ErrorCode.FENCED_LEADER_EPOCH if epoch < log.leader_epoch else ErrorCode.UNKNOWN_LEADER_EPOCH


class FetchApi(DataStruct, frozen=True, eq=False):
    """Handles the fetches that come to one node."""

    fetches: Fetches
    replicas: ReplicaManager

    def handlers(self) -> Mapping[int, Handler]:
        return {fetch.API.key: self._fetch}

    def _fetch(self, call: Call, frame: bytes, at: int, now_ms: int) -> Effects:
        return self.fetches.handle(self.replicas, call, fetch.read_request(frame, at, call.version), now_ms)
