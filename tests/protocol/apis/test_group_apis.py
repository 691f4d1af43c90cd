"""Group APIs between bytes and the words of the house: what a version lacks becomes a field, not a version."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.errors import ErrorCode, MalformedError
from coterie.protocol.apis import (
    delete_groups,
    describe_groups,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
    txn_offset_commit,
)
from coterie.protocol.commit_rows import CommitRows, FetchedRows
from coterie.protocol.messages import (
    CommitPartition,
    CommittedOffset,
    DeletedPartition,
    DeleteGroup,
    DescribedGroup,
    DescribedMember,
    DescribeGroup,
    FetchedOffset,
    JoinedGroup,
    JoinedMember,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    LeftGroup,
    LeftMember,
    ListedGroup,
    ListGroups,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    OffsetsCommitted,
    OffsetsDeleted,
    OffsetsFetched,
    Protocol,
    SyncedGroup,
    SyncGroup,
)
from coterie.structs import replace
from protocol.apis.plain import read_commit

TOKEN = ("connection", 7)
NONE, UNKNOWN_MEMBER_ID, NOT_COORDINATOR = ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NOT_COORDINATOR
ORDERS_ID, BILLS_ID = UUID(int=1), UUID(int=2)


# --- JoinGroup --------------------------------------------------------------------------------------------------------

JOIN = JoinGroup(
    token=TOKEN,
    group_id="orders",
    member_id="m-1",
    instance_id="i-1",
    protocol_type="consumer",
    protocols=[Protocol("range", b"\0\1"), Protocol("sticky", b"")],
    session_timeout_ms=10_000,
    rebalance_timeout_ms=60_000,
    fresh_id="uuid",
    client_id="c",
    client_host="/127.0.0.1",
    reason="because",
)


@pytest.mark.parametrize("version", join_group.API.versions)
def test_a_join_of_any_version_is_one_word(version: int) -> None:
    """Rule 4: version 0 has no rebalance timeout. KIP-394: ids are required since 4. KIP-345, 800, 814: 5, 8, 9."""
    frame = join_group.write_request(JOIN, version)
    read = join_group.read_request(frame, 0, version, TOKEN, fresh_id="uuid", client_id="c", client_host="/127.0.0.1")
    assert read == replace(
        JOIN,
        instance_id="i-1" if version >= 5 else None,
        rebalance_timeout_ms=60_000 if version >= 1 else 10_000,
        reason="because" if version >= 8 else None,
        needs_member_id=version >= 4,
        can_skip_assignment=version >= 9,
    )


@pytest.mark.parametrize("version", join_group.API.versions)
def test_a_joined_group_comes_back_as_far_as_the_version_can_tell(version: int) -> None:
    reply = JoinedGroup(NONE, "m", 3, "consumer", "range", "m", [JoinedMember("m", "i", b"x")], skip_assignment=True)
    read = join_group.read_response(join_group.write_response(reply, version), 0, version)
    assert read == replace(
        reply,
        protocol_type="consumer" if version >= 7 else None,
        members=[JoinedMember("m", "i" if version >= 5 else None, b"x")],
        skip_assignment=version >= 9,
    )


@pytest.mark.parametrize("nothing", ["", None])
@pytest.mark.parametrize("version", join_group.API.versions)
def test_a_refused_join_names_no_protocol(version: int, nothing: str | None) -> None:
    """Semantics 2: "" up to version 6, null from 7 on; generation -1, leader "", no members."""
    reply = JoinedGroup(UNKNOWN_MEMBER_ID, "m", protocol_name=nothing)
    read = join_group.read_response(join_group.write_response(reply, version), 0, version)
    assert read == JoinedGroup(
        UNKNOWN_MEMBER_ID, "m", -1, None, None if version >= 7 else "", "", [], skip_assignment=False
    )


# --- SyncGroup --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", sync_group.API.versions)
def test_a_sync_of_any_version_is_one_word(version: int) -> None:
    request = SyncGroup(TOKEN, "orders", "m", "i", 3, [("m", b"\1"), ("n", b"")], "consumer", "range")
    read = sync_group.read_request(sync_group.write_request(request, version), 0, version, TOKEN)
    assert read == replace(
        request,
        instance_id="i" if version >= 3 else None,
        protocol_type="consumer" if version >= 5 else None,
        protocol_name="range" if version >= 5 else None,
        needs_protocol=version >= 5,
    )


@pytest.mark.parametrize("version", sync_group.API.versions)
def test_a_synced_group_comes_back(version: int) -> None:
    reply = SyncedGroup(NONE, b"\1\2", "consumer", "range")
    read = sync_group.read_response(sync_group.write_response(reply, version), 0, version)
    assert read == (reply if version >= 5 else SyncedGroup(NONE, b"\1\2"))


# --- LeaveGroup -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", leave_group.API.versions)
def test_a_leave_of_any_version_is_a_list_of_members(version: int) -> None:
    request = LeaveGroup(TOKEN, "orders", [LeavingMember("m", "i", "bye")])
    read = leave_group.read_request(leave_group.write_request(request, version), 0, version, TOKEN)
    member = LeavingMember("m", "i" if version >= 3 else None, "bye" if version >= 5 else None)
    assert read == LeaveGroup(TOKEN, "orders", [member])


@pytest.mark.parametrize("version", leave_group.API.versions)
def test_the_error_of_the_one_member_stands_at_top_level_in_old_versions(version: int) -> None:
    """Rule 16."""
    reply = LeftGroup(NONE, [LeftMember("m", None, UNKNOWN_MEMBER_ID)])
    read = leave_group.read_response(leave_group.write_response(reply, version), 0, version)
    assert read == (reply if version >= 3 else LeftGroup(UNKNOWN_MEMBER_ID, []))


@pytest.mark.parametrize("version", leave_group.API.versions)
def test_an_error_of_the_whole_leave_stands_at_top_level_in_every_version(version: int) -> None:
    read = leave_group.read_response(leave_group.write_response(LeftGroup(NOT_COORDINATOR), version), 0, version)
    assert read == LeftGroup(NOT_COORDINATOR, [])


# --- OffsetCommit -----------------------------------------------------------------------------------------------------

COMMIT = OffsetCommit(
    token=TOKEN,
    group_id="orders",
    member_id="m",
    instance_id="i",
    generation_id=3,
    partitions=[
        CommitPartition("orders", 0, 10, 4, "note", ORDERS_ID),
        CommitPartition("orders", 1, 11, 4, None, ORDERS_ID),
        CommitPartition("bills", 0, -5, -1, "", BILLS_ID),
    ],
    retention_ms=1234,
)


@pytest.mark.parametrize("version", offset_commit.API.versions)
def test_a_commit_of_any_version_is_one_word(version: int) -> None:
    """Version 10 knows topics by id; the name is for whoever knows the topics to fill in."""
    read = offset_commit.read_request(offset_commit.write_request(COMMIT, version), 0, version, TOKEN)
    assert read == replace(
        COMMIT,
        instance_id="i" if version >= 7 else None,
        retention_ms=1234 if version <= 4 else None,
        knows_group_id_not_found=version >= 9,
        partitions=[
            replace(
                p,
                topic="" if version >= 10 else p.topic,
                topic_id=p.topic_id if version >= 10 else None,
                leader_epoch=p.leader_epoch if version >= 6 else -1,
            )
            for p in COMMIT.partitions
        ],
    )


_commits = st.lists(
    st.builds(
        CommitPartition,
        st.just("orders"),
        st.integers(0, 300),
        st.sampled_from([0, 1, 256, 1 << 40]),
        st.sampled_from([-1, 0, 256]),
        st.sampled_from(["", "", "", "", None, "\x01", "note"]),
    ),
    min_size=1,
    max_size=12,
)


@given(
    version=st.sampled_from([7, 8, 9, 10]),
    partitions=_commits,
    instance_id=st.sampled_from([None, "", "i"]),
    damage=st.none() | st.tuples(st.integers(0, 80), st.integers(0, 255)),
    cut=st.integers(0, 20),
)
def test_a_commit_is_read_the_same_in_either_way(
    version: int,
    partitions: list[CommitPartition],
    instance_id: str | None,
    damage: tuple[int, int] | None,
    cut: int,
) -> None:
    """Also one that is cut off or makes no sense: then both refuse it."""
    body = bytearray(
        offset_commit.write_request(replace(COMMIT, partitions=partitions, instance_id=instance_id), version)
    )
    if damage is not None:
        body[damage[0] % len(body)] = damage[1]
    frame = b"head" + bytes(body[: len(body) - cut])
    outcomes = []
    for read in (offset_commit.read_request, read_commit):
        try:
            outcomes.append(repr(read(frame, 4, version, TOKEN)))
        except MalformedError:
            outcomes.append("refused")
    assert outcomes[0] == outcomes[1]


@given(version=st.sampled_from([6, 7, 8, 9]), partitions=_commits, cut=st.integers(0, 20))
def test_partitions_that_are_read_all_at_once_are_those_read_one_by_one(
    version: int, partitions: list[CommitPartition], cut: int
) -> None:
    """Most have no metadata and then one shape; one that has makes all be read with care."""
    frame = offset_commit.write_request(replace(COMMIT, partitions=partitions), version)
    assert offset_commit.read_request(frame, 0, version, TOKEN).partitions == partitions
    if cut:
        with pytest.raises(MalformedError):
            offset_commit.read_request(frame[:-cut], 0, version, TOKEN)


@pytest.mark.parametrize("version", offset_commit.API.versions)
def test_an_answer_is_the_same_for_columns_and_for_words(version: int) -> None:
    content = [replace(partition, metadata="") for partition in COMMIT.partitions[:2]]
    frame = offset_commit.write_request(replace(COMMIT, partitions=content), 8)
    columns = offset_commit.read_request(frame, 0, 8, TOKEN).partitions
    assert isinstance(columns, CommitRows)
    columns.topic_id = UUID(int=5)
    for error in (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID):
        answers = [OffsetsCommitted(each, [error] * len(columns)) for each in (columns, list(columns))]
        written = [offset_commit.write_response(answer, version) for answer in answers]
        assert written[0] == written[1]


_fetches = st.builds(
    OffsetFetch,
    st.just(TOKEN),
    st.sampled_from(["g", "ü" * 70, ""]),
    st.none()
    | st.lists(st.tuples(st.sampled_from(["t", "u"]), st.lists(st.integers(-1, 300), max_size=5)), max_size=2),
    st.booleans(),
)


@given(
    version=st.sampled_from([7, 8, 9, 10]),
    words=st.lists(_fetches, min_size=1, max_size=2),
    damage=st.none() | st.tuples(st.integers(0, 40), st.integers(0, 255)),
    cut=st.integers(0, 12),
)
def test_a_fetch_is_read_the_same_in_either_way(
    version: int, words: list[OffsetFetch], damage: tuple[int, int] | None, cut: int
) -> None:
    """Also one that is cut off or makes no sense."""
    for word in words:
        word.require_stable = words[0].require_stable
    body = bytearray(offset_fetch.write_request(words[:1] if version < 8 else words, version))
    if damage is not None:
        body[damage[0] % len(body)] = damage[1]
    frame = b"head" + bytes(body[: len(body) - cut])
    outcomes: list[object] = []
    for read in (offset_fetch.read_request, offset_fetch.read_request_plainly):
        try:
            outcomes.append(read(frame, 4, version, TOKEN))
        except MalformedError as error:
            outcomes.append(str(error))
    assert repr(outcomes[0]) == repr(outcomes[1])


@pytest.mark.parametrize("version", offset_fetch.API.versions)
def test_fetched_offsets_are_the_same_as_columns_and_as_words(version: int) -> None:
    columns = FetchedRows.of_stored("orders", [3, 0], [CommittedOffset(7, 2), CommittedOffset(1 << 40)])
    answers = [[OffsetsFetched("g", ErrorCode.NONE, each)] for each in (columns, list(columns))]
    written = [offset_fetch.write_response(answer, version) for answer in answers]
    assert written[0] == written[1]
    assert [offset_fetch.write_response(answer, version) for (answer,) in answers] == written


@pytest.mark.parametrize("version", offset_commit.API.versions)
def test_a_commit_without_a_retention_of_its_own_says_so(version: int) -> None:
    frame = offset_commit.write_request(replace(COMMIT, retention_ms=None), version)
    assert offset_commit.read_request(frame, 0, version, TOKEN).retention_ms is None


@pytest.mark.parametrize("version", offset_commit.API.versions)
def test_each_partition_of_a_commit_has_its_error(version: int) -> None:
    reply = OffsetsCommitted(COMMIT.partitions, [NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE, NOT_COORDINATOR])
    read = offset_commit.read_response(offset_commit.write_response(reply, version), 0, version)
    assert read.errors == reply.errors
    by_id = version >= 10
    assert [(p.topic, p.topic_id, p.partition) for p in read.partitions] == [
        ("" if by_id else p.topic, p.topic_id if by_id else None, p.partition) for p in COMMIT.partitions
    ]


def test_a_topic_that_comes_twice_is_answered_in_one_place() -> None:
    partitions = [CommitPartition(topic, i, 1) for i, topic in enumerate(["a", "b", "a"])]
    body = offset_commit.write_response(OffsetsCommitted(partitions, [NONE] * 3), 9)
    read = offset_commit.read_response(body, 0, 9)
    assert [(p.topic, p.partition) for p in read.partitions] == [("a", 0), ("a", 2), ("b", 1)]


@pytest.mark.parametrize("version", txn_offset_commit.API.versions)
def test_a_transactional_commit_is_a_commit_with_a_producer(version: int) -> None:
    """Rule 22: an absent group is ILLEGAL_GENERATION in every version, so none knows GROUP_ID_NOT_FOUND."""
    partitions = [replace(p, topic_id=None) for p in COMMIT.partitions]
    request = replace(COMMIT, partitions=partitions, retention_ms=None, producer_id=77, producer_epoch=2)
    frame = txn_offset_commit.write_request(("txn", request), version)
    transactional_id, read = txn_offset_commit.read_request(frame, 0, version, TOKEN)
    assert transactional_id == "txn"
    assert read == replace(
        request,
        knows_group_id_not_found=False,
        generation_id=3 if version >= 3 else -1,
        member_id="m" if version >= 3 else "",
        instance_id="i" if version >= 3 else None,
        partitions=[replace(p, leader_epoch=p.leader_epoch if version >= 2 else -1) for p in partitions],
    )


@pytest.mark.parametrize("version", txn_offset_commit.API.versions)
def test_a_transactional_commit_is_answered_by_partition(version: int) -> None:
    partitions = [CommitPartition("orders", 0, -1), CommitPartition("bills", 3, -1)]
    reply = OffsetsCommitted(partitions, [NONE, NOT_COORDINATOR])
    assert txn_offset_commit.read_response(txn_offset_commit.write_response(reply, version), 0, version) == reply


# --- OffsetFetch ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", offset_fetch.API.versions)
def test_a_fetch_of_one_group_is_one_word_in_every_version(version: int) -> None:
    request = OffsetFetch(
        TOKEN, "orders", [("orders", [0, 1]), ("bills", [])], require_stable=True, topic_ids=[ORDERS_ID, BILLS_ID]
    )
    read = offset_fetch.read_request(offset_fetch.write_request([request], version), 0, version, TOKEN)
    by_id = version >= 10
    assert read == [
        replace(
            request,
            topics=[("", [0, 1]), ("", [])] if by_id else request.topics,
            topic_ids=request.topic_ids if by_id else None,
            require_stable=version >= 7,
        )
    ]


@pytest.mark.parametrize("version", range(2, 11))
def test_no_list_of_topics_means_all(version: int) -> None:
    request = OffsetFetch(TOKEN, "orders", None)
    assert offset_fetch.read_request(offset_fetch.write_request([request], version), 0, version, TOKEN) == [request]


@pytest.mark.parametrize("version", range(8, 11))
def test_many_groups_are_many_words_and_who_asks_twice_is_answered_twice(version: int) -> None:
    """Rule C7, KIP-709."""
    requests = [OffsetFetch(TOKEN, group_id, None) for group_id in ("a", "b", "a")]
    assert offset_fetch.read_request(offset_fetch.write_request(requests, version), 0, version, TOKEN) == requests


FETCHED = [
    FetchedOffset("orders", 0, NONE, 10, 4, "note", ORDERS_ID),
    FetchedOffset("orders", 1, ErrorCode.UNSTABLE_OFFSET_COMMIT, topic_id=ORDERS_ID),
    FetchedOffset("bills", 0, NONE, 2**40, -1, "", BILLS_ID),
]


@pytest.mark.parametrize("version", offset_fetch.API.versions)
def test_fetched_offsets_come_back_as_far_as_the_version_can_tell(version: int) -> None:
    reply = OffsetsFetched("orders", NONE, FETCHED)
    (read,) = offset_fetch.read_response(offset_fetch.write_response([reply], version), 0, version)
    by_id = version >= 10
    assert read == OffsetsFetched(
        "orders" if version >= 8 else "",
        NONE,
        [
            replace(
                entry,
                topic="" if by_id else entry.topic,
                topic_id=entry.topic_id if by_id else None,
                leader_epoch=entry.leader_epoch if version >= 5 else -1,
            )
            for entry in FETCHED
        ],
    )


@pytest.mark.parametrize("version", offset_fetch.API.versions)
def test_the_error_of_a_group_is_told_where_the_version_has_a_place_for_it(version: int) -> None:
    """Per group since 8, at top level since 2, and before that in every partition."""
    reply = OffsetsFetched("orders", NOT_COORDINATOR, [FetchedOffset("orders", 0, NONE, 10, 4, "note")])
    (read,) = offset_fetch.read_response(offset_fetch.write_response([reply], version), 0, version)
    if version == 1:
        assert read == OffsetsFetched("", NONE, [FetchedOffset("orders", 0, NOT_COORDINATOR)])
    else:
        assert read.error is NOT_COORDINATOR


# --- OffsetDelete, DeleteGroups, DescribeGroups, ListGroups -----------------------------------------------------------


def test_offset_delete_comes_and_goes() -> None:
    request = OffsetDelete(TOKEN, "orders", [("orders", [0, 1]), ("bills", [])])
    assert offset_delete.read_request(offset_delete.write_request(request, 0), 0, 0, TOKEN) == request
    reply = OffsetsDeleted(NONE, [DeletedPartition("a", 0, NONE), DeletedPartition("b", 1, NOT_COORDINATOR)])
    assert offset_delete.read_response(offset_delete.write_response(reply, 0), 0, 0) == reply


@pytest.mark.parametrize("version", delete_groups.API.versions)
def test_a_group_to_delete_counts_once(version: int) -> None:
    """Rule C7."""
    requests = [DeleteGroup(TOKEN, group_id) for group_id in ("b", "a", "b")]
    read = delete_groups.read_request(delete_groups.write_request(requests, version), 0, version, TOKEN)
    assert read == [DeleteGroup(TOKEN, "b"), DeleteGroup(TOKEN, "a")]
    results = [("b", NONE), ("a", ErrorCode.NON_EMPTY_GROUP)]
    assert delete_groups.read_response(delete_groups.write_response(results, version), 0, version) == results


@pytest.mark.parametrize("version", describe_groups.API.versions)
def test_groups_are_described(version: int) -> None:
    requests = [DescribeGroup(TOKEN, "a"), DescribeGroup(TOKEN, "a")]
    assert describe_groups.read_request(describe_groups.write_request(requests, version), 0, version, TOKEN) == requests
    member = DescribedMember("m", "i", "c", "/127.0.0.1", b"\1", b"\2")
    reply = DescribedGroup("a", "Stable", "consumer", "range", [member])
    read = describe_groups.read_response(describe_groups.write_response([reply], version), 0, version)
    assert read == [replace(reply, members=[replace(member, instance_id="i" if version >= 4 else None)])]


@pytest.mark.parametrize("version", describe_groups.API.versions)
def test_an_absent_group_is_dead_and_from_version_6_on_an_error(version: int) -> None:
    """Rule 25."""
    reply = DescribedGroup("gone", "Dead", exists=False)
    body = describe_groups.write_response([reply], version)
    (read,) = describe_groups.read_response(body, 0, version)
    assert read == replace(reply, members=[], error=ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else NONE)
    assert (b"group gone does not exist" in body) is (version >= 6)


@pytest.mark.parametrize("version", describe_groups.API.versions)
def test_a_group_that_could_not_be_asked_is_not_called_absent(version: int) -> None:
    reply = DescribedGroup("a", "", error=NOT_COORDINATOR)
    (read,) = describe_groups.read_response(describe_groups.write_response([reply], version), 0, version)
    assert read == replace(reply, members=[])


@pytest.mark.parametrize("version", list_groups.API.versions)
def test_groups_are_listed_with_what_the_version_can_tell(version: int) -> None:
    """KIP-518 and KIP-848."""
    request = ListGroups(TOKEN, ["Stable"], ["classic"])
    read = list_groups.read_request(list_groups.write_request(request, version), 0, version, TOKEN)
    assert list(read.states) == (["Stable"] if version >= 4 else [])
    assert list(read.types) == (["classic"] if version >= 5 else [])
    body = list_groups.write_response([ListedGroup("a", "consumer", "Stable")], version, NOT_COORDINATOR)
    error, groups = list_groups.read_response(body, 0, version)
    assert error is NOT_COORDINATOR
    state, kind = ("Stable" if version >= 4 else ""), ("classic" if version >= 5 else "")
    assert groups == [ListedGroup("a", "consumer", state, kind)]
