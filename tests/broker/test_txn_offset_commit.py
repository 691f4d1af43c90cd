"""TxnOffsetCommit: offsets that count when their transaction is committed."""

from __future__ import annotations

import pytest

from broker.transactional import TransactionalClient, world_with_topics
from coterie.errors import ErrorCode
from coterie.protocol.apis import delete_groups, list_groups, offset_delete
from coterie.protocol.batch import batches
from coterie.protocol.messages import DeleteGroup, JoinedGroup, ListGroups, OffsetDelete
from coterie.protocol.offsets_topic import OFFSETS_TOPIC, read_record
from coterie.protocol.records import records

NONE, MAPPING = ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_ID_MAPPING
UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT
T0, T1 = ("t", 0), ("t", 1)


def ready() -> TransactionalClient:
    _, client = world_with_topics()
    client.find_coordinator()
    return client


def group_partition(client: TransactionalClient, group: str = "g") -> tuple[str, int]:
    return OFFSETS_TOPIC, client.world.node.coordinator.partition_of(group)


def offset_of(client: TransactionalClient, partition: tuple[str, int] = T0, *, stable: bool = False) -> int:
    return client.fetch_offsets(stable=stable)[partition][0]


def test_newer_commits_add_the_group_and_older_ones_are_verified() -> None:
    """Section 4, TxnOffsetCommit."""
    client = ready()
    assert client.commit_offsets({T0: 1}, version=4) == [ErrorCode.TRANSACTION_ABORTABLE]
    for version in (0, 3):
        assert client.commit_offsets({T0: 1}, version=version) == [ErrorCode.INVALID_TXN_STATE]
    assert client.commit_offsets({T0: 1}, ids=(client.ids[0] + 1, 0)) == [MAPPING]
    assert client.commit_offsets({T0: 1}, version=3, ids=(client.ids[0], 9)) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert client.commit_offsets({T0: 1}) == [NONE]
    assert client.partitions == [group_partition(client)]
    for version in range(6):
        assert client.commit_offsets({T0: version}, version=version) == [NONE]
    client.end(commit=True)
    assert offset_of(client) == 5, "the later record wins"


def test_what_is_looked_at_first() -> None:
    """TO1: a commit that the group refuses has already made the transaction Ongoing."""
    client = ready()
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert client.commit_offsets({("t", 9): 1, ("nowhere", 0): 1}, "", ids=(77, 0)) == [unknown, unknown]
    assert client.commit_offsets({T0: 1, ("t", 9): 1}, "", ids=(77, 0)) == [ErrorCode.INVALID_GROUP_ID, unknown]
    assert client.state == "Empty"
    stranger = JoinedGroup(NONE, "stranger", generation_id=7)
    assert client.commit_offsets({T0: 1}, member=stranger, ids=(77, 0)) == [MAPPING]
    assert client.commit_offsets({T0: 1}, member=stranger) == [ErrorCode.ILLEGAL_GENERATION]
    assert client.state == "Ongoing" and client.partitions == [group_partition(client)]
    long = "m" * 5_000
    assert client.commit_offsets({T0: 1}, metadata=long) == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert client.commit_offsets({T0: 1, ("t", 9): 1}) == [NONE, unknown]


@pytest.mark.parametrize("generation_id", [0, 5])
def test_the_member_and_its_generation_are_checked(generation_id: int) -> None:
    """TO2: in any state if no ids are given; else instance, member, generation."""
    client = ready()
    assert client.commit_offsets({T0: 1}, "new", version=3, ids=client.ids) == [ErrorCode.INVALID_TXN_STATE]
    member = client.enter("g")
    client.add_offsets("g")
    assert client.commit_offsets({T0: 1}, member=member, version=3) == [NONE]
    assert client.commit_offsets({T0: 1}, version=3) == [NONE], "no ids at all"
    other = JoinedGroup(NONE, "other", generation_id=member.generation_id)
    assert client.commit_offsets({T0: 1}, member=other, version=3) == [ErrorCode.UNKNOWN_MEMBER_ID]
    late = JoinedGroup(NONE, member.member_id, generation_id=member.generation_id + 1 + generation_id)
    assert client.commit_offsets({T0: 1}, member=late, version=3) == [ErrorCode.ILLEGAL_GENERATION]
    nameless = JoinedGroup(NONE, member.member_id, generation_id=-1)
    assert client.commit_offsets({T0: 1}, member=nameless, version=3) == [ErrorCode.ILLEGAL_GENERATION]


def test_the_record_of_an_offset() -> None:
    """TO4: one transactional batch, base sequence 0, a value without topic id."""
    client = ready()
    client.commit_offsets({T0: 5, T1: -7})
    topic, number = group_partition(client)
    log = client.world.cluster.directory.logs[topic, number]
    data = log.read(0, 1 << 20, log.log_end_offset)
    ((at, header),) = batches(data)
    assert (header.attributes, header.base_sequence, header.record_count) == (0x10, 0, 2)
    assert (header.producer_id, header.producer_epoch) == client.ids
    for record, expected in zip(records(data, header, at), (5, -7), strict=True):
        stored = read_record(record.key or b"", record.value)
        assert (stored.value.offset, stored.value.topic_id) == (expected, None)  # type: ignore[union-attr]
        assert (record.value or b"")[:2] == b"\0\x04"


def test_offsets_count_when_the_transaction_commits_unless_a_later_commit_came() -> None:
    """TO4, TO5."""
    world, client = (made := ready()).world, made
    other = TransactionalClient(world, "other")
    other.init()
    client.commit("g", {T0: 1})
    client.commit_offsets({T0: 2, T1: 2})
    assert client.fetch_offsets(stable=True)[T0] == (-1, UNSTABLE)
    assert client.fetch_offsets(stable=True)[("t", 2)] == (-1, NONE)
    assert offset_of(client) == 1, "without require_stable the last one that counts"
    other.commit_offsets({T0: 3})
    client.end(commit=False)
    assert client.fetch_offsets(stable=True)[T0] == (-1, UNSTABLE), "the other is still open"
    assert client.commit("g", {T0: 9}) == [NONE], "a plain commit is never blocked"
    other.end(commit=True)
    assert client.fetch_offsets(stable=True)[T0] == (9, NONE), "the plain one came later"
    assert offset_of(client, T1) == -1


def test_a_group_that_a_transaction_made() -> None:
    """TO6: it is there at once, survives the abort, and is deleted at the next check; not while offsets are pending."""
    client = ready()
    client.init(timeout_ms=900_000)
    client.commit_offsets({T0: 2})

    def states() -> dict[str, str]:
        _, groups = client.ask(list_groups, ListGroups(None))
        return {one.group_id: one.state for one in groups}

    assert states() == {"g": "Empty"}
    client.world.advance(600_000)
    assert states() == {"g": "Empty"}
    client.end(commit=False)
    assert states() == {"g": "Empty"}
    client.world.advance(600_000)
    assert states() == {}


def test_a_deleted_group_or_offset_takes_its_pending_offsets_with_it() -> None:
    """TD2: the commit of the transaction restores nothing."""
    client = ready()
    client.commit("g", {T1: 1})
    client.commit_offsets({T0: 2, T1: 2})
    assert not client.ask(offset_delete, OffsetDelete(None, "g", [("t", [0])])).error
    client.end(commit=True)
    assert (offset_of(client), offset_of(client, T1)) == (-1, 2)
    client.commit_offsets({T0: 3})
    client.ask(delete_groups, [DeleteGroup(None, "g")])
    assert not client.end(commit=True).error
    assert offset_of(client) == -1


def test_deleted_topics_take_their_pending_offsets_with_them() -> None:
    """TD1."""
    client = ready()
    client.create("doomed")
    client.commit_offsets({T0: 2, ("doomed", 0): 2})
    client.delete("doomed")
    client.create("doomed")
    assert not client.end(commit=True).error
    assert client.offsets_of("g") == {T0: 2}


def test_pending_offsets_survive_a_rebalance() -> None:
    """TO6."""
    client = ready()
    member = client.enter("g")
    client.commit_offsets({T0: 4}, member=member)
    again = client.join("g", member.member_id)
    client.sync("g", again, {again.member_id: b"all"})
    client.end(commit=True)
    assert offset_of(client) == 4


def test_an_admins_marker_completes_pending_offsets() -> None:
    """TL7."""
    client = ready()
    client.commit_offsets({T0: 4})
    topic, number = group_partition(client)
    assert client.write_markers(client.ids, commit=True, topic=topic, partition=number) is NONE
    assert offset_of(client, stable=True) == 4
    assert client.state == "Ongoing"
