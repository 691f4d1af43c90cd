"""What reading a request and writing an answer costs, in µs of one core: `python bench/apis.py`.

Best of several runs, so that a busy machine shows less; one JSON object on stdout.
"""

from __future__ import annotations

import json
import sys
import timeit
from collections.abc import Callable
from functools import partial
from uuid import UUID

from coterie.errors import ErrorCode
from coterie.protocol.apis import (
    FIRST_FLEXIBLE,
    fetch,
    heartbeat,
    join_group,
    metadata,
    offset_commit,
    offset_fetch,
    produce,
    sync_group,
)
from coterie.protocol.frames import FrameCutter, read_request_header, request_frame, response_frame
from coterie.protocol.messages import (
    CommitPartition,
    FetchedOffset,
    Heartbeat,
    JoinedGroup,
    JoinedMember,
    JoinGroup,
    OffsetCommit,
    OffsetFetch,
    OffsetsCommitted,
    OffsetsFetched,
    Protocol,
    SyncedGroup,
    SyncGroup,
)

MEMBER = "consumer-1-0d2f9b72-6062-462f-98ce-d7338effb087"
SUBSCRIPTION = bytes(40)
HUNDRED = range(100)
TOPIC_ID = UUID(int=1)


def figures() -> dict[str, tuple[Callable[[], object], int]]:
    """What is measured, and how often it is done in one run."""
    heartbeats = {v: heartbeat.write_request(Heartbeat(0, "orders", MEMBER, None, 5), v) for v in (0, 3, 4)}
    frame = request_frame(12, 4, 7, "consumer-1", heartbeats[4], flexible=True)
    commits = [CommitPartition("orders", p, 123_456 + p, topic_id=TOPIC_ID) for p in HUNDRED]
    commit = OffsetCommit(0, "orders", MEMBER, None, 5, commits)
    commit_9 = offset_commit.write_request(commit, 9)
    committed = OffsetsCommitted(commits, [ErrorCode.NONE] * 100)
    asked_9 = offset_fetch.write_request([OffsetFetch(0, "orders", [("orders", list(HUNDRED))])], 9)
    fetched = OffsetsFetched("orders", ErrorCode.NONE, [FetchedOffset("orders", p, offset=p) for p in HUNDRED])
    noted = OffsetsFetched(
        "orders", ErrorCode.NONE, [FetchedOffset("orders", p, offset=p, metadata="a note") for p in HUNDRED]
    )
    protocols = [Protocol("range", SUBSCRIPTION), Protocol("cooperative-sticky", SUBSCRIPTION)]
    join_9 = join_group.write_request(JoinGroup(0, "orders", MEMBER, None, "consumer", protocols, 1, 1, ""), 9)
    members = [JoinedMember(f"{MEMBER}{i}", None, SUBSCRIPTION) for i in range(1000)]
    joined = JoinedGroup(ErrorCode.NONE, MEMBER, 5, "consumer", "range", MEMBER, members)
    sync = SyncGroup(0, "orders", MEMBER, None, 5, [(m.member_id, SUBSCRIPTION) for m in members], "consumer", "range")
    sync_5 = sync_group.write_request(sync, 5)
    synced = SyncedGroup(ErrorCode.NONE, SUBSCRIPTION, "consumer", "range")
    batch = memoryview(bytes(1_000_000))
    produced = produce.Request(
        acks=-1,
        timeout_ms=1,
        topics=[produce.Topic(name="orders", partitions=[produce.Partition(partition=0, records=batch)])],
    )
    produce_12 = produce.write_request(produced, 12)
    fetch_partitions = [fetch.Partition(partition=p, fetch_offset=p, max_bytes=1) for p in HUNDRED]
    fetch_request = fetch.Request(
        max_wait_ms=500, min_bytes=1, topics=[fetch.Topic(topic_id=TOPIC_ID, partitions=fetch_partitions)]
    )
    fetch_17 = fetch.write_request(fetch_request, 17)
    one_fetched = fetch.Response(
        responses=[
            fetch.FetchedTopic(topic_id=TOPIC_ID, partitions=[fetch.FetchedPartition(partition=0, records=batch)])
        ]
    )
    described = [
        metadata.DescribedPartition(partition=p, leader_id=1, leader_epoch=0, replicas=[1], isr=[1]) for p in HUNDRED
    ]
    topics = metadata.Response(brokers=[], topics=[metadata.DescribedTopic(name="orders", partitions=described)])
    cutter = FrameCutter(1 << 20)
    (inner,) = cutter.feed(frame)
    body = heartbeat.write_response(ErrorCode.NONE, 4)
    return {
        "frame cut": (lambda: cutter.feed(frame), 100_000),
        "request header": (lambda: read_request_header(inner, FIRST_FLEXIBLE), 100_000),
        "response frame": (lambda: response_frame(7, body, flexible=True), 100_000),
        **{
            f"heartbeat v{v} read": (partial(heartbeat.read_request, data, 0, v, 0), 100_000)
            for v, data in heartbeats.items()
        },
        "heartbeat write": (lambda: heartbeat.write_response(ErrorCode.NONE, 4), 100_000),
        "commit of 100 v9 read": (lambda: offset_commit.read_request(commit_9, 0, 9, 0), 1000),
        "commit of 100 v9 write": (lambda: offset_commit.write_response(committed, 9), 2000),
        "commit of 100 v10 write": (lambda: offset_commit.write_response(committed, 10), 2000),
        "offset fetch of 100 v9 read": (lambda: offset_fetch.read_request(asked_9, 0, 9, 0), 10_000),
        "offset fetch of 100 v9 write": (lambda: offset_fetch.write_response([fetched], 9), 2000),
        "offset fetch of 100 with metadata v9 write": (lambda: offset_fetch.write_response([noted], 9), 2000),
        "join v9 read": (
            lambda: join_group.read_request(join_9, 0, 9, 0, fresh_id="", client_id="", client_host=""),
            10_000,
        ),
        "join of 1000 v9 write": (lambda: join_group.write_response(joined, 9), 200),
        "sync of 1000 v5 read": (lambda: sync_group.read_request(sync_5, 0, 5, 0), 100),
        "sync v5 write": (lambda: sync_group.write_response(synced, 5), 50_000),
        "produce of 1 MB v12 read": (lambda: produce.read_request(produce_12, 0, 12), 10_000),
        "fetch of 100 v17 read": (lambda: fetch.read_request(fetch_17, 0, 17), 1000),
        "fetch of 1 MB v17 write": (lambda: fetch.write_response_parts(one_fetched, 17), 10_000),
        "metadata of 100 v12 write": (lambda: metadata.write_response(topics, 12), 1000),
    }


def microseconds(work: Callable[[], object], times: int) -> float:
    work()
    return round(min(timeit.repeat(work, number=times, repeat=5)) / times * 1e6, 2)


if __name__ == "__main__":
    measured = {name: microseconds(work, times) for name, (work, times) in figures().items()}
    sys.stdout.write(json.dumps(measured, indent=2) + "\n")
