"""The group APIs, from the wire to the coordinator.

Which answer a request gets is decided in `coterie.coordinator.classic`. What only a broker knows is said here: which
topics and partitions there are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

from coterie.broker.broker_effects import Effects
from coterie.broker.calls import Call, Gather, Handler, Responses, close
from coterie.broker.group_service import GroupService
from coterie.broker.metadata_cache import MetadataCache
from coterie.errors import ErrorCode
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
)
from coterie.protocol.commit_rows import CommitRows
from coterie.protocol.frames import client_id_of
from coterie.protocol.messages import (
    CommitPartition,
    DeletedPartition,
    DescribedGroup,
    FetchedOffset,
    OffsetFetch,
    OffsetsDeleted,
    OffsetsFetched,
)

__all__ = ["GroupApis"]

LARGEST_ANSWER = 100 << 20
"""Bytes, or nearly. A request for a large group a thousand times is refused before all of its answer is there."""
_OFFSET_BYTES = 40


class GroupApis:
    def __init__(
        self,
        responses: Responses,
        groups: GroupService,
        metadata: MetadataCache,
        fresh_id: Callable[[], UUID],
    ) -> None:
        self._responses = responses
        self._ask = groups.ask
        self._coordinator = groups.coordinator
        self._metadata = metadata
        self._fresh_id = fresh_id

    def handlers(self) -> Mapping[int, Handler]:
        return {
            join_group.API.key: self._join_group,
            sync_group.API.key: self._sync_group,
            heartbeat.API.key: self._heartbeat,
            leave_group.API.key: self._leave_group,
            offset_commit.API.key: self._offset_commit,
            offset_fetch.API.key: self._offset_fetch,
            offset_delete.API.key: self._offset_delete,
            describe_groups.API.key: self._describe_groups,
            delete_groups.API.key: self._delete_groups,
            list_groups.API.key: self._list_groups,
        }

    def _heartbeat(self, call: Call, frame: bytes, at: int, now_ms: int) -> Effects:
        return self._ask(heartbeat.read_request(frame, at, call.version, call), now_ms)

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
        if not request.member_id:  # rng cost more than to read the request
            request.fresh_id = str(self._fresh_id())
        return self._ask(request, now_ms)

    def _sync_group(self, call: Call, frame: bytes, at: int, now_ms: int) -> Effects:
        return self._ask(sync_group.read_request(frame, at, call.version, call), now_ms)

    def _leave_group(self, call: Call, frame: bytes, at: int, now_ms: int) -> Effects:
        return self._ask(leave_group.read_request(frame, at, call.version, call), now_ms)

    def _offset_commit(self, call: Call, frame: bytes, at: int, now_ms: int) -> Effects:
        request = offset_commit.read_request(frame, at, call.version, call)
        request.partitions = self._resolved(request.partitions, by_id=call.version >= offset_commit.BY_ID)
        return self._ask(request, now_ms)

    def _resolved(self, partitions: Sequence[CommitPartition], *, by_id: bool) -> Sequence[CommitPartition]:
        """Rule 21, first step: mark partitions that do not exist. Most often all are of one topic."""
        names, topics = self._metadata.topic_names, self._metadata.topics
        if type(partitions) is CommitRows:
            name = names.get(partitions.topic_id) if by_id else partitions.topic  # type: ignore[arg-type]
            topic = None if name is None else topics.get(name)
            if topic is not None and partitions.lowest >= 0 and partitions.highest < topic.partitions:
                partitions.topic, partitions.topic_id = topic.name, topic.id
                return partitions
            partitions = list(partitions)
        last: object = topics  # no topic is this
        name, topic = None, None
        for partition in partitions:
            asked = partition.topic_id if by_id else partition.topic
            if asked is not last:
                last = asked
                name = names.get(partition.topic_id) if by_id else partition.topic  # type: ignore[arg-type]
                topic = None if name is None else topics.get(name)
            if name is None:
                partition.error = ErrorCode.UNKNOWN_TOPIC_ID
                continue
            partition.topic = name
            if topic is None or not 0 <= partition.partition < topic.partitions:
                partition.error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                partition.topic_id = topic.id
        return partitions

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
                    why = f"a request for more than {LARGEST_ANSWER} bytes of groups at once"
                    return [*effects, *close(call.connection, why)]
            effects += self._ask(request, now_ms)
        return effects

    def _offset_fetch(self, call: Call, frame: bytes, at: int, now_ms: int) -> Effects:
        requests = offset_fetch.read_request(frame, at, call.version, call)
        if call.version < offset_fetch.BY_ID:
            if len(requests) == 1:  # as nearly always
                return self._ask(requests[0], now_ms)
            return self._ask_each(call, requests, lambda answers: answers, now_ms, _offsets_size)
        unknown = [self._names_for_ids(request) for request in requests]
        return self._ask_each(call, requests, lambda answers: self._with_ids(answers, unknown), now_ms, _offsets_size)

    def _names_for_ids(self, request: OffsetFetch) -> list[FetchedOffset]:
        """Version 10: names are filled in; what has none is set aside with its error (rule 22)."""
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

    def _with_ids(self, answers: list[OffsetsFetched], unknown: list[list[FetchedOffset]]) -> list[OffsetsFetched]:
        topics = self._metadata.topics
        for answer, errors in zip(answers, unknown, strict=True):
            found = []
            for partition in answer.partitions:
                topic = topics.get(partition.topic)
                if topic is not None:  # a fetch of all: what was committed for a topic that is gone has no id any more
                    partition.topic_id = topic.id
                    found.append(partition)
            answer.partitions = [*found, *([] if answer.error else errors)]
        return answers

    def _offset_delete(self, call: Call, frame: bytes, at: int, now_ms: int) -> Effects:
        """Unlike a commit, the group is asked even if none of the partitions is there (rule 24)."""
        request = offset_delete.read_request(frame, at, call.version, call)
        known, unknown = [], []
        for name, partitions in request.topics:
            topic = self._metadata.topics.get(name)
            there = range(topic.partitions) if topic is not None else range(0)
            known.append((name, [partition for partition in partitions if partition in there]))
            unknown += [
                DeletedPartition(name, partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                for partition in partitions
                if partition not in there
            ]
        request.topics = known
        return self._ask_each(call, [request], lambda answers: _with_unknown(answers[0], unknown), now_ms)

    def _describe_groups(self, call: Call, frame: bytes, at: int, now_ms: int) -> Effects:
        requests = describe_groups.read_request(frame, at, call.version, call)
        asks_rights = any(request.asks_rights for request in requests)
        return self._ask_each(
            call,
            requests,
            lambda answers: _with_rights(answers) if asks_rights else answers,
            now_ms,
            _described_size,
        )

    def _delete_groups(self, call: Call, frame: bytes, at: int, now_ms: int) -> Effects:
        requests = delete_groups.read_request(frame, at, call.version, call)
        ids = [request.group_id for request in requests]
        return self._ask_each(call, requests, lambda answers: list(zip(ids, answers, strict=True)), now_ms)

    def _list_groups(self, call: Call, frame: bytes, at: int, now_ms: int) -> Effects:
        request = list_groups.read_request(frame, at, call.version, call)
        (reply,) = self._coordinator.handle(request, now_ms)
        answer = reply.answer  # type: ignore[union-attr]
        return self._responses.send(call, list_groups.write_response(answer.groups, call.version, answer.error))


def _offsets_size(answer: OffsetsFetched) -> int:
    return _OFFSET_BYTES * len(answer.partitions)


def _described_size(answer: DescribedGroup) -> int:
    return sum(_OFFSET_BYTES + len(member.metadata) + len(member.assignment) for member in answer.members)


def _with_unknown(answer: OffsetsDeleted, unknown: list[DeletedPartition]) -> OffsetsDeleted:
    """An error of the group speaks for all partitions."""
    if not answer.error:
        answer.partitions = sorted([*answer.partitions, *unknown], key=lambda entry: entry.topic)
    return answer


def _with_rights(answers: list[DescribedGroup]) -> list[DescribedGroup]:
    """There is no authoriser: every client may do everything (rule 26)."""
    for answer in answers:
        answer.has_all_rights = True
    return answers
