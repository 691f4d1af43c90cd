"""Commits and fetches of offsets: frames that are sent often, and how their answers are checked."""

from __future__ import annotations

import itertools

from coordbench.messages import Wire
from coordbench.types import ErrorReplyError, MisbehavedError

Layout = list[tuple[str, range]]  # topics and their partitions


def commit_frame(
    wire: Wire, group_id: str, layout: Layout, base: int, member_id: str = "", generation: int = -1
) -> bytearray:
    """Commit offset base + n for the n-th partition of the layout."""
    number = itertools.count(base)
    topics = tuple(
        wire.part(
            "offset_commit",
            "OffsetCommitRequestTopic",
            name=name,
            partitions=tuple(
                wire.part(
                    "offset_commit",
                    "OffsetCommitRequestPartition",
                    partition_index=partition,
                    committed_offset=next(number),
                    committed_leader_epoch=-1,
                    committed_metadata="",
                )
                for partition in partitions
            ),
        )
        for name, partitions in layout
    )
    return wire.frame(
        "offset_commit",
        group_id=group_id,
        generation_id=generation,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=None,
        topics=topics,
    )


def verify_commit(wire: Wire, layout: Layout, reply: bytes) -> None:
    wanted = {(name, partition) for name, partitions in layout for partition in partitions}
    for topic in wire.parse("offset_commit", reply).topics:
        for partition in topic.partitions:
            if int(partition.error_code):
                raise ErrorReplyError("offset_commit", int(partition.error_code))
            wanted.discard((topic.name, int(partition.partition_index)))
    if wanted:
        raise MisbehavedError(f"offset_commit left {len(wanted)} partitions unanswered")


def fetch_frame(wire: Wire, group_id: str, layout: Layout) -> bytearray:
    entity = "OffsetFetchRequestTopics" if wire.versions["offset_fetch"] >= 8 else "OffsetFetchRequestTopic"
    topics = tuple(
        wire.part("offset_fetch", entity, name=name, partition_indexes=tuple(partitions)) for name, partitions in layout
    )
    if wire.versions["offset_fetch"] < 8:
        return wire.frame("offset_fetch", group_id=group_id, topics=topics, require_stable=False)
    group = wire.part("offset_fetch", "OffsetFetchRequestGroup", group_id=group_id, topics=topics)
    return wire.frame("offset_fetch", groups=(group,), require_stable=False)


def fetched(wire: Wire, reply: bytes) -> tuple[int, dict[tuple[str, int], int]]:
    """The first error code of an OffsetFetch reply, and the offsets in it."""
    answer = wire.parse("offset_fetch", reply)
    if wire.versions["offset_fetch"] >= 8:
        (answer,) = answer.groups
    error = int(answer.error_code)
    offsets = {}
    for topic in answer.topics:
        for partition in topic.partitions:
            error = error or int(partition.error_code)
            offsets[topic.name, int(partition.partition_index)] = int(partition.committed_offset)
    return error, offsets


def offsets_of(layout: Layout, base: int) -> dict[tuple[str, int], int]:
    number = itertools.count(base)
    return {(name, partition): next(number) for name, partitions in layout for partition in partitions}


def verify_fetch(wire: Wire, layout: Layout, base: int, reply: bytes) -> None:
    error, offsets = fetched(wire, reply)
    if error:
        raise ErrorReplyError("offset_fetch", error)
    if offsets != offsets_of(layout, base):
        raise MisbehavedError("offset_fetch answered offsets that were not committed last")
