"""What is written out by hand for speed says the same as the plain readers and writers, in every version."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.errors import ErrorCode, MalformedError
from coterie.protocol.apis import heartbeat, join_group, offset_commit, offset_fetch, sync_group, txn_offset_commit
from coterie.protocol.codec.codec import codec
from coterie.protocol.messages import (
    CommitPartition,
    FetchedOffset,
    Heartbeat,
    JoinedGroup,
    JoinedMember,
    JoinGroup,
    OffsetCommit,
    OffsetsCommitted,
    OffsetsFetched,
    Protocol,
    SyncedGroup,
    SyncGroup,
)
from protocol.apis.plain import read_commit, read_join, read_sync

texts = st.one_of(st.sampled_from(["", "orders", "a" * 126, "a" * 127, "a" * 128, "größe" * 60]), st.text(max_size=20))
maybe_texts = st.none() | texts
blobs = st.binary(max_size=300)
errors = st.sampled_from(ErrorCode)
int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
ids = st.none() | st.uuids()


# --- Heartbeat --------------------------------------------------------------------------------------------------------


@given(st.builds(Heartbeat, st.just("token"), texts, texts, maybe_texts, int32s))
def test_a_heartbeat_is_read_fast_as_it_is_read_plainly(request: Heartbeat) -> None:
    for version in heartbeat.API.versions:
        frame = b"before" + heartbeat.write_request(request, version)
        read = heartbeat.read_request(frame, 6, version, "token")
        assert read == heartbeat.read_request_plainly(frame, 6, version, "token")
        expected = request.instance_id if version >= 3 else None
        assert read == Heartbeat("token", request.group_id, request.member_id, expected, request.generation_id)


@given(st.binary(max_size=40), st.sampled_from(heartbeat.API.versions))
def test_bytes_that_are_no_heartbeat_are_refused_by_both_readers_alike(frame: bytes, version: int) -> None:
    outcomes: list[Heartbeat | str] = []
    for read in (heartbeat.read_request, heartbeat.read_request_plainly):
        try:
            outcomes.append(read(frame, 0, version, "token"))
        except MalformedError as error:
            outcomes.append(str(error))
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("error", ErrorCode)
def test_a_prepared_answer_is_the_plain_one(error: ErrorCode) -> None:
    for version in heartbeat.API.versions:
        assert heartbeat.write_response(error, version) == heartbeat._write_response(
            heartbeat._Response(error=error), version
        )


# --- JoinGroup, SyncGroup ---------------------------------------------------------------------------------------------

ABOUT = {"fresh_id": "fresh", "client_id": "app", "client_host": "/10.0.0.1"}


@given(
    st.builds(
        JoinGroup,
        st.just("token"),
        texts,
        texts,
        maybe_texts,
        texts,
        st.lists(st.builds(Protocol, texts, blobs), max_size=3),
        int32s,
        int32s,
        st.just("fresh"),
        reason=maybe_texts,
    )
)
def test_a_join_is_read_fast_as_it_is_read_plainly(request: JoinGroup) -> None:
    for version in join_group.API.versions:
        frame = b"before" + join_group.write_request(request, version)
        read = join_group.read_request(frame, 6, version, "token", **ABOUT)
        assert read == read_join(frame, 6, version, "token", **ABOUT)
        assert (read.member_id, read.protocols) == (request.member_id, request.protocols)
        assert read.reason == (request.reason if version >= 8 else None)
        for end in range(6, len(frame), 7):
            with pytest.raises(MalformedError):
                join_group.read_request(frame[:end], 6, version, "token", **ABOUT)


@given(
    st.builds(
        SyncGroup,
        st.just("token"),
        texts,
        texts,
        maybe_texts,
        int32s,
        st.lists(st.tuples(texts, blobs), max_size=3),
        maybe_texts,
        maybe_texts,
    )
)
def test_a_sync_is_read_fast_as_it_is_read_plainly(request: SyncGroup) -> None:
    for version in sync_group.API.versions:
        frame = b"before" + sync_group.write_request(request, version)
        read = sync_group.read_request(frame, 6, version, "token")
        assert read == read_sync(frame, 6, version, "token")
        assert (read.member_id, read.assignments) == (request.member_id, request.assignments)
        for end in range(6, len(frame), 7):
            with pytest.raises(MalformedError):
                sync_group.read_request(frame[:end], 6, version, "token")


few_bytes = st.lists(st.sampled_from([0, 1, 2, 3, 0x7F, 0x80, 0xFF]), max_size=60).map(bytes) | st.binary(max_size=60)


@given(few_bytes, st.sampled_from(join_group.API.versions))
def test_bytes_that_are_no_join_are_refused_by_both_readers(frame: bytes, version: int) -> None:
    outcomes: list[JoinGroup | None] = []
    for read in (join_group.read_request, read_join):
        try:
            outcomes.append(read(frame, 0, version, "token", **ABOUT))
        except MalformedError:
            outcomes.append(None)
    assert outcomes[0] == outcomes[1]


@given(few_bytes, st.sampled_from(sync_group.API.versions))
def test_bytes_that_are_no_sync_are_refused_by_both_readers(frame: bytes, version: int) -> None:
    outcomes: list[SyncGroup | None] = []
    for read in (sync_group.read_request, read_sync):
        try:
            outcomes.append(read(frame, 0, version, "token"))
        except MalformedError:
            outcomes.append(None)
    assert outcomes[0] == outcomes[1]


@given(
    st.builds(
        JoinedGroup,
        errors,
        texts,
        int32s,
        maybe_texts,
        maybe_texts,
        texts,
        st.lists(st.builds(JoinedMember, texts, maybe_texts, blobs), max_size=3),
        st.booleans(),
    )
)
def test_a_join_answer_is_written_fast_as_it_is_written_plainly(reply: JoinedGroup) -> None:
    for version in join_group.API.versions:
        name = reply.protocol_name or (None if version >= 7 else "")
        members = [
            join_group._Member(member_id=m.member_id, instance_id=m.instance_id, metadata=m.metadata)
            for m in reply.members
        ]
        plain = join_group._Response(
            error=reply.error,
            generation_id=reply.generation_id,
            protocol_type=reply.protocol_type,
            protocol_name=name,
            leader_id=reply.leader_id,
            skip_assignment=reply.skip_assignment,
            member_id=reply.member_id,
            members=members,
        )
        assert join_group.write_response(reply, version) == join_group._write_response(plain, version)


@given(st.builds(SyncedGroup, errors, blobs, maybe_texts, maybe_texts))
def test_a_sync_answer_is_written_fast_as_it_is_written_plainly(reply: SyncedGroup) -> None:
    for version in sync_group.API.versions:
        plain = sync_group._Response(
            error=reply.error,
            protocol_type=reply.protocol_type,
            protocol_name=reply.protocol_name,
            assignment=reply.assignment,
        )
        assert sync_group.write_response(reply, version) == sync_group._write_response(plain, version)


# --- OffsetCommit -----------------------------------------------------------------------------------------------------

commit_partitions = st.lists(
    st.builds(CommitPartition, texts, int32s, int64s, int32s, maybe_texts, ids),
    max_size=5,
)


@given(
    st.builds(OffsetCommit, st.just("token"), texts, texts, maybe_texts, int32s, commit_partitions, st.none() | int64s)
)
def test_a_commit_is_read_fast_as_it_is_read_plainly(request: OffsetCommit) -> None:
    for version in offset_commit.API.versions:
        frame = b"before" + offset_commit.write_request(request, version)
        read = offset_commit.read_request(frame, 6, version, "token")
        assert read == read_commit(frame, 6, version, "token")
        assert [p.offset for p in read.partitions] == [p.offset for p in request.partitions]


@given(st.binary(max_size=60), st.sampled_from(offset_commit.API.versions))
def test_bytes_that_are_no_commit_are_refused_by_both_readers(frame: bytes, version: int) -> None:
    outcomes: list[OffsetCommit | None] = []
    for read in (offset_commit.read_request, read_commit):
        try:
            outcomes.append(read(frame, 0, version, "token"))
        except MalformedError:
            outcomes.append(None)
    assert outcomes[0] == outcomes[1]


def by_topic(partitions: Sequence[CommitPartition | FetchedOffset], *, by_id: bool) -> list[tuple[str, UUID | None]]:
    """Distinct topics in the order in which they first appear."""
    return list(dict.fromkeys(("", p.topic_id) if by_id else (p.topic, None) for p in partitions))


commit_replies = st.lists(
    st.tuples(
        st.builds(
            CommitPartition,
            st.sampled_from(["orders", "bills", ""]),
            int32s,
            st.just(1),
            topic_id=st.sampled_from([None, UUID(int=1), UUID(int=2)]),
        ),
        errors,
    ),
    max_size=8,
)


@given(commit_replies)
def test_a_commit_answer_is_written_fast_as_it_is_written_plainly(
    answered: list[tuple[CommitPartition, ErrorCode]],
) -> None:
    reply = OffsetsCommitted([p for p, _ in answered], [error for _, error in answered])
    for version in offset_commit.API.versions:
        by_id = version >= offset_commit.BY_ID
        topics = [
            offset_commit._CommittedTopic(
                name=name,
                topic_id=topic_id,
                partitions=[
                    offset_commit._CommittedPartition(partition=p.partition, error=error)
                    for p, error in answered
                    if (p.topic_id == topic_id if by_id else p.topic == name)
                ],
            )
            for name, topic_id in by_topic(reply.partitions, by_id=by_id)
        ]
        plain = offset_commit._write_response(offset_commit._Response(topics=topics), version)
        assert offset_commit.write_response(reply, version) == plain


@given(commit_replies)
def test_the_answer_to_a_transactional_commit_is_written_the_same_way(
    answered: list[tuple[CommitPartition, ErrorCode]],
) -> None:
    answered.sort(key=lambda pair: pair[0].topic)
    reply = OffsetsCommitted([p for p, _ in answered], [error for _, error in answered])
    topics = [
        txn_offset_commit._CommittedTopic(
            name=name,
            partitions=[
                txn_offset_commit._CommittedPartition(partition=p.partition, error=error) for p, error in entries
            ],
        )
        for name, entries in groupby(answered, key=lambda pair: pair[0].topic)
    ]
    _, write = codec(txn_offset_commit.API, txn_offset_commit._Response)
    for version in txn_offset_commit.API.versions:
        plain = write(txn_offset_commit._Response(topics=topics), version)
        assert txn_offset_commit.write_response(reply, version) == plain


# --- OffsetFetch ------------------------------------------------------------------------------------------------------


@given(
    st.lists(
        st.builds(
            OffsetsFetched,
            texts,
            errors,
            st.lists(
                st.builds(
                    FetchedOffset,
                    st.sampled_from(["orders", "bills"]),
                    int32s,
                    errors,
                    int64s,
                    int32s,
                    texts,
                    st.sampled_from([None, UUID(int=1), UUID(int=2)]),
                ),
                max_size=5,
            ),
        ),
        min_size=1,
        max_size=3,
    )
)
def test_a_fetch_answer_is_written_fast_as_it_is_written_plainly(replies: list[OffsetsFetched]) -> None:
    for version in offset_fetch.API.versions:
        asked = replies if version >= offset_fetch.MANY else replies[:1]
        groups = [
            offset_fetch._FetchedGroup(group_id=r.group_id, topics=fetched_topics(r, version), error=r.error)
            for r in asked
        ]
        plain = (
            offset_fetch._Response(groups=groups)
            if version >= offset_fetch.MANY
            else offset_fetch._Response(topics=groups[0].topics, error=groups[0].error)
        )
        assert offset_fetch.write_response(asked, version) == offset_fetch._write_response(plain, version)


def fetched_topics(reply: OffsetsFetched, version: int) -> list[offset_fetch._FetchedTopic]:
    by_id = version >= offset_fetch.BY_ID
    entries = reply.partitions
    if reply.error and version < offset_fetch.HAS_GROUP_ERROR:
        entries = [FetchedOffset(p.topic, p.partition, reply.error) for p in entries]
    return [
        offset_fetch._FetchedTopic(
            name=name,
            topic_id=topic_id,
            partitions=[
                offset_fetch._FetchedPartition(
                    partition=p.partition,
                    offset=p.offset,
                    leader_epoch=p.leader_epoch,
                    metadata=p.metadata,
                    error=p.error,
                )
                for p in entries
                if (p.topic_id == topic_id if by_id else p.topic == name)
            ],
        )
        for name, topic_id in by_topic(entries, by_id=by_id)
    ]
