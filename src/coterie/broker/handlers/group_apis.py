"""The group APIs, from the wire to the coordinator.

Which answer a request gets is decided in `coterie.coordinator.classic`. What only a broker knows is said here: which
topics and partitions there are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any
from uuid import UUID

from coterie.broker.broker_effects import Effects
from coterie.broker.calls import Call, Gather, Handler, Responses, close
from coterie.broker.group_service import GroupService
from coterie.broker.metadata_cache import MetadataCache
from coterie.broker.security.auth_helper import AuthHelper
from coterie.broker.transactional_writes import TransactionalProducer, TransactionalWrites
from coterie.coordinator.transactions.states import ADDS_OFFSETS, txn_offset_commit_error
from coterie.errors import ErrorCode
from coterie.protocol.acls import AclOperation, AclResourceType
from coterie.protocol.apis import (
    delete_groups,
    describe_groups,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
    txn_offset_commit,
)
from coterie.protocol.commit_rows import CommitRows
from coterie.protocol.frames import client_id_of
from coterie.protocol.messages import (
    CommitPartition,
    DeletedPartition,
    DescribedGroup,
    FetchedOffset,
    GroupsListed,
    JoinedGroup,
    LeftGroup,
    OffsetCommit,
    OffsetFetch,
    OffsetsCommitted,
    OffsetsDeleted,
    OffsetsFetched,
    SyncedGroup,
)
from coterie.protocol.offsets_topic import OFFSETS_TOPIC

__all__ = ["GroupApis"]

LARGEST_ANSWER = 100 << 20
"""Bytes, or nearly. A request for a large group a thousand times is refused before all of its answer is there."""
_OFFSET_BYTES = 40
KNOWS_LOADING = 2
"""The first version of TxnOffsetCommit with the error COORDINATOR_LOAD_IN_PROGRESS."""
READ, DELETE, DESCRIBE = AclOperation.READ, AclOperation.DELETE, AclOperation.DESCRIBE
GROUP, TOPIC = AclResourceType.GROUP, AclResourceType.TOPIC
DENIED, TOPIC_DENIED = ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED


class GroupApis:
    def __init__(
        self,
        responses: Responses,
        auth: AuthHelper,
        groups: GroupService,
        metadata: MetadataCache,
        fresh_id: Callable[[], UUID],
        transactional_writes: TransactionalWrites,
    ) -> None:
        self._responses = responses
        self._auth = auth
        self._may = auth.authorize
        self._ask = groups.ask
        self._coordinator = groups.coordinator
        self._metadata = metadata
        self._fresh_id = fresh_id
        self._transactional_writes = transactional_writes

    def handlers(self) -> Mapping[int, Handler]:
        return {
            join_group.API.key: self._join_group,
            sync_group.API.key: self._sync_group,
            heartbeat.API.key: self._heartbeat,
            leave_group.API.key: self._leave_group,
            offset_commit.API.key: self._offset_commit,
            txn_offset_commit.API.key: self._txn_offset_commit,
            offset_fetch.API.key: self._offset_fetch,
            offset_delete.API.key: self._offset_delete,
            describe_groups.API.key: self._describe_groups,
            delete_groups.API.key: self._delete_groups,
            list_groups.API.key: self._list_groups,
        }

    def _heartbeat(self, call: Call, frame: bytes, at: int, now_ms: int) -> Effects:
        request = heartbeat.read_request(frame, at, call.version, call)
        if not self._may(call, READ, GROUP, request.group_id):
            return self._responses.answer(call, DENIED, now_ms)
        return self._ask(request, now_ms)

    def _join_group(self, call: Call, frame: bytes, at: int, now_ms: int) -> Effects:
        request = join_group.read_request(
            frame,
            at,
            call.version,
            call,
            fresh_id="",
            client_id=client_id_of(frame),
            client_host=f"/{call.connection.host}",
        )
        if not self._may(call, READ, GROUP, request.group_id):
            return self._responses.answer(call, JoinedGroup(DENIED, ""), now_ms)
        if not request.member_id:  # rng cost more than to read the request
            request.fresh_id = str(self._fresh_id())
        return self._ask(request, now_ms)

    def _sync_group(self, call: Call, frame: bytes, at: int, now_ms: int) -> Effects:
        request = sync_group.read_request(frame, at, call.version, call)
        if not self._may(call, READ, GROUP, request.group_id):
            lacks_protocol = request.needs_protocol and None in (request.protocol_type, request.protocol_name)
            error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL if lacks_protocol else DENIED
            return self._responses.answer(call, SyncedGroup(error), now_ms)
        return self._ask(request, now_ms)

    def _leave_group(self, call: Call, frame: bytes, at: int, now_ms: int) -> Effects:
        request = leave_group.read_request(frame, at, call.version, call)
        if not self._may(call, READ, GROUP, request.group_id):
            return self._responses.answer(call, LeftGroup(DENIED), now_ms)
        return self._ask(request, now_ms)

    def _offset_commit(self, call: Call, frame: bytes, at: int, now_ms: int) -> Effects:
        request = offset_commit.read_request(frame, at, call.version, call)
        if not self._may(call, READ, GROUP, request.group_id):
            refused = OffsetsCommitted(request.partitions, [DENIED] * len(request.partitions))
            return self._responses.answer(call, refused, now_ms)
        request.partitions = self._resolved(call, request.partitions, by_id=call.version >= offset_commit.BY_ID)
        return self._ask(request, now_ms)

    def _resolved(self, call: Call, partitions: Sequence[CommitPartition], *, by_id: bool) -> Sequence[CommitPartition]:
        """Rule 21, first step: mark partitions that do not exist, or whose topic the client may not read.

        Most often all are of one topic.
        """
        names, topics = self._metadata.topic_names, self._metadata.topics
        if type(partitions) is CommitRows:
            name = names.get(partitions.topic_id) if by_id else partitions.topic  # type: ignore[arg-type]
            topic = None if name is None else topics.get(name)
            if (
                topic is not None
                and partitions.lowest >= 0
                and partitions.highest < topic.partitions
                and self._may(call, READ, TOPIC, topic.name)
            ):
                partitions.topic, partitions.topic_id = topic.name, topic.id
                return partitions
            partitions = list(partitions)
        last: object = topics  # no topic is this
        name, topic, is_denied = None, None, False
        for partition in partitions:
            asked = partition.topic_id if by_id else partition.topic
            if asked is not last:
                last = asked
                name = names.get(partition.topic_id) if by_id else partition.topic  # type: ignore[arg-type]
                topic = None if name is None else topics.get(name)
                is_denied = name is not None and not self._may(call, READ, TOPIC, name)
            if name is None:
                partition.error = ErrorCode.UNKNOWN_TOPIC_ID
                continue
            partition.topic = name
            if is_denied:
                partition.error = TOPIC_DENIED
            elif topic is None or not 0 <= partition.partition < topic.partitions:
                partition.error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                partition.topic_id = topic.id
        return partitions

    def _txn_offset_commit(self, call: Call, frame: bytes, at: int, now_ms: int) -> Effects:
        """Commit offsets in a transaction, when its coordinator has the group's partition in it (TO1).

        The group is asked last. If it refuses, its partition stays in the transaction.
        """
        transactional_id, request = txn_offset_commit.read_request(frame, at, call.version, None)
        request.token = partial(self._answer_txn_offset_commit, call)
        refusal = self._txn_refusal(call, transactional_id, request)
        if refusal is not None:
            return self._responses.answer(call, refusal, now_ms)
        number = self._coordinator.partition_of(request.group_id)
        if number not in self._coordinator.shards:
            return self._ask(request, now_ms)  # which is refused

        def admitted(errors: Mapping[tuple[str, int], ErrorCode], at_ms: int) -> Effects:
            for error in errors.values():
                known = txn_offset_commit_error(error, call.version)
                return self._answer_txn_offset_commit(call, _refused(request, known), at_ms)
            return self._ask(request, at_ms)

        assert request.producer_id is not None, "a transactional commit names its producer"
        producer = TransactionalProducer(transactional_id, request.producer_id, request.producer_epoch)
        partitions = frozenset({(OFFSETS_TOPIC, number)})
        writes = self._transactional_writes
        ask = writes.add if call.version >= ADDS_OFFSETS else writes.verify
        return ask(producer, partitions, admitted, now_ms)

    def _txn_refusal(self, call: Call, transactional_id: str, request: OffsetCommit) -> OffsetsCommitted | None:
        """Return the answer to a commit that no coordinator need be asked about."""
        if not self._may(call, AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID, transactional_id):
            return _refused(request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if not self._may(call, READ, GROUP, request.group_id):
            return _refused(request, DENIED)
        request.partitions = self._resolved(call, request.partitions, by_id=False)
        for partition in request.partitions:
            partition.topic_id = None  # such a record has none (TO4)
        if all(partition.error for partition in request.partitions):
            return _refused(request, ErrorCode.NONE)
        return None if request.group_id else _refused(request, ErrorCode.INVALID_GROUP_ID)

    def _answer_txn_offset_commit(self, call: Call, reply: OffsetsCommitted, now_ms: int) -> Effects:
        if call.version < KNOWS_LOADING:  # TX4
            loading, other = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE
            reply.errors = [other if error is loading else error for error in reply.errors]
        return self._responses.answer(call, reply, now_ms)

    # --- several groups -----------------------------------------------------------------------------------------------

    def _ask_each(
        self,
        call: Call,
        requests: list[Any],
        finish: Callable[[list[Any]], Any],
        now_ms: int,
        size_of: Callable[[Any], int] | None = None,
    ) -> Effects:
        """Ask several groups. `size_of` is the size of an answer that is there at once."""

        def answer(parts: list[Any], at_ms: int) -> Effects:
            return self._responses.answer(call, finish(parts), at_ms)

        if not requests:
            return answer([], now_ms)
        gather = Gather(call, len(requests), answer)
        effects: Effects = []
        size = 0
        for index, request in enumerate(requests):
            request.token = gather.part(index)
            if size_of is not None and index:
                size += size_of(gather.answers[index - 1])
                if size > LARGEST_ANSWER:
                    gather.let_go()
                    why = f"a request for more than {LARGEST_ANSWER} bytes of groups at once"
                    return [*effects, *close(call.connection, why)]
            effects += self._ask(request, now_ms)
        return effects

    def _offset_fetch(self, call: Call, frame: bytes, at: int, now_ms: int) -> Effects:
        requests = offset_fetch.read_request(frame, at, call.version, call)
        by_id = call.version >= offset_fetch.BY_ID
        if len(requests) == 1 and not by_id and self._auth.authorizer is None:  # as nearly always
            return self._ask(requests[0], now_ms)
        allowed = [request for request in requests if self._may(call, DESCRIBE, GROUP, request.group_id)]
        errors = [
            [*(self._names_for_ids(request) if by_id else ()), *self._topics_refused(call, request)]
            for request in allowed
        ]

        def finish(answers: list[OffsetsFetched]) -> list[OffsetsFetched]:
            for request, answer, more in zip(allowed, answers, errors, strict=True):
                found = answer.partitions
                if request.topics is None:
                    found = self._describable(call, found)
                if by_id:
                    found = self._with_ids(found)
                answer.partitions = [*found, *more] if more and not answer.error else found
            by_request = dict(zip(map(id, allowed), answers, strict=True))
            return [by_request.get(id(request)) or _group_refused(request, call.version) for request in requests]

        return self._ask_each(call, allowed, finish, now_ms, _offsets_size)

    def _topics_refused(self, call: Call, request: OffsetFetch) -> list[FetchedOffset]:
        """Set topics aside that the client may not describe."""
        asked = request.topics or ()
        denied = self._auth.denied(call, DESCRIBE, TOPIC, (name for name, _ in asked))
        if not denied:
            return []
        request.topics = [(name, partitions) for name, partitions in asked if name not in denied]
        topics = self._metadata.topics
        return [
            FetchedOffset(name, partition, TOPIC_DENIED, topic_id=topics[name].id if name in topics else None)
            for name, partitions in asked
            if name in denied
            for partition in partitions
        ]

    def _describable(self, call: Call, found: Sequence[FetchedOffset]) -> Sequence[FetchedOffset]:
        """Leave out what the client may not know to exist: it asked for everything."""
        if self._auth.authorizer is None:
            return found
        names = {one.topic for one in found}
        shown = {name for name in names if self._may(call, DESCRIBE, TOPIC, name, logs=False)}
        return [one for one in found if one.topic in shown]

    def _names_for_ids(self, request: OffsetFetch) -> list[FetchedOffset]:
        """Fill in the names of topic ids (version 10). An unknown id is set aside with its error (rule 22)."""
        if request.topics is None:
            return []
        known, unknown = [], []
        for (_, partitions), topic_id in zip(request.topics, request.topic_ids or [], strict=True):
            name = self._metadata.topic_names.get(topic_id) if topic_id is not None else None
            if name is None:
                unknown += [
                    FetchedOffset("", partition, ErrorCode.UNKNOWN_TOPIC_ID, topic_id=topic_id)
                    for partition in partitions
                ]
            else:
                known.append((name, partitions))
        request.topics = known
        return unknown

    def _with_ids(self, partitions: Sequence[FetchedOffset]) -> list[FetchedOffset]:
        topics = self._metadata.topics
        found = []
        for partition in partitions:
            topic = topics.get(partition.topic)
            if topic is not None:  # a fetch of all: what was committed for a topic that is gone has no id any more
                partition.topic_id = topic.id
                found.append(partition)
        return found

    def _offset_delete(self, call: Call, frame: bytes, at: int, now_ms: int) -> Effects:
        """Unlike a commit, the group is asked even if none of the partitions is there (rule 24)."""
        request = offset_delete.read_request(frame, at, call.version, call)
        if not self._may(call, DELETE, GROUP, request.group_id):
            return self._responses.answer(call, OffsetsDeleted(DENIED), now_ms)
        denied = self._auth.denied(call, READ, TOPIC, (name for name, _ in request.topics))
        known, unknown = [], []
        for name, partitions in request.topics:
            topic = None if name in denied else self._metadata.topics.get(name)
            there = range(topic.partitions) if topic is not None else range(0)
            known.append((name, [partition for partition in partitions if partition in there]))
            error = TOPIC_DENIED if name in denied else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            unknown += [DeletedPartition(name, partition, error) for partition in partitions if partition not in there]
        request.topics = known
        return self._ask_each(call, [request], lambda answers: _with_unknown(answers[0], unknown), now_ms)

    def _describe_groups(self, call: Call, frame: bytes, at: int, now_ms: int) -> Effects:
        requests = describe_groups.read_request(frame, at, call.version, call)
        denied = self._auth.denied(call, DESCRIBE, GROUP, (request.group_id for request in requests))
        asks_rights = any(request.asks_rights for request in requests)

        def finish(answers: list[DescribedGroup]) -> list[DescribedGroup]:
            if asks_rights:
                for answer in answers:
                    answer.authorized_operations = self._auth.authorized_operations(call, GROUP, answer.group_id)
            refused = [request.group_id for request in requests if request.group_id in denied]
            return [*(DescribedGroup(group_id, "", error=DENIED) for group_id in refused), *answers]

        allowed = [request for request in requests if request.group_id not in denied]
        return self._ask_each(call, allowed, finish, now_ms, _described_size)

    def _delete_groups(self, call: Call, frame: bytes, at: int, now_ms: int) -> Effects:
        requests = delete_groups.read_request(frame, at, call.version, call)
        denied = self._auth.denied(call, DELETE, GROUP, (request.group_id for request in requests))
        allowed = [request for request in requests if request.group_id not in denied]
        ids = [request.group_id for request in allowed]
        refused = dict.fromkeys((request.group_id for request in requests if request.group_id in denied), DENIED)

        def finish(answers: list[ErrorCode]) -> list[tuple[str, ErrorCode]]:
            return [*zip(ids, answers, strict=True), *refused.items()]

        return self._ask_each(call, allowed, finish, now_ms)

    def _list_groups(self, call: Call, frame: bytes, at: int, now_ms: int) -> Effects:
        request = list_groups.read_request(frame, at, call.version, call)
        (reply,) = self._coordinator.handle(request, now_ms)
        answer: GroupsListed = reply.answer  # type: ignore[union-attr]
        groups = answer.groups
        if not self._may(call, DESCRIBE, AclResourceType.CLUSTER, logs=False):  # else it may see all of them
            groups = [one for one in groups if self._may(call, DESCRIBE, GROUP, one.group_id, logs=False)]
        return self._responses.send(call, list_groups.write_response(groups, call.version, answer.error))


def _refused(request: OffsetCommit, error: ErrorCode) -> OffsetsCommitted:
    return OffsetsCommitted(request.partitions, [partition.error or error for partition in request.partitions])


def _offsets_size(answer: OffsetsFetched) -> int:
    return _OFFSET_BYTES * len(answer.partitions)


def _described_size(answer: DescribedGroup) -> int:
    return sum(_OFFSET_BYTES + len(member.metadata) + len(member.assignment) for member in answer.members)


def _with_unknown(answer: OffsetsDeleted, unknown: list[DeletedPartition]) -> OffsetsDeleted:
    """Add the partitions of unknown topics to the answer, unless the group has an error."""
    if not answer.error:
        answer.partitions = sorted([*answer.partitions, *unknown], key=lambda entry: entry.topic)
    return answer


def _group_refused(request: OffsetFetch, version: int) -> OffsetsFetched:
    """Name no topics, but for version 1, which has the group's error in each partition."""
    topics = (request.topics or ()) if version < offset_fetch.HAS_GROUP_ERROR else ()
    partitions = [FetchedOffset(name, partition) for name, numbers in topics for partition in numbers]
    return OffsetsFetched(request.group_id, DENIED, partitions)
