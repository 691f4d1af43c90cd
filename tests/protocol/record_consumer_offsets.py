"""Make `data/consumer_offsets.jsonl` again: what a real Apache Kafka 4.3.1 writes into `__consumer_offsets`.

    .venv/bin/python tests/protocol/record_consumer_offsets.py

It starts a Kafka of its own (see `apache_kafka.py`), lets raw requests and Kafka's own clients use it in every way that
leaves a record behind, stops it and reads the log of `__consumer_offsets` from its data directory. Each line holds one
record: the `key` and `value` bytes in hex (null: a tombstone), and under `kafka` what Kafka's own DumpLogSegments
says of it: `key` and `value` as it decoded them, null where it has no words for the record.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import UUID

sys.path.insert(0, str(Path(__file__).parents[1]))

from apache_kafka import ApacheKafka, java_command, run_java
from coterie.protocol.batch import batches
from coterie.protocol.records import records as records_of
from raw_kafka import RawConnection

DATA = Path(__file__).parent / "data" / "consumer_offsets.jsonl"
DAY_MS = 86_400_000
NO_MEMBER = {"generation_id_or_member_epoch": -1, "member_id": ""}


def main() -> None:
    # One partition, so that one log holds everything; the log has one segment and is not compacted meanwhile.
    with ApacheKafka({"offsets.topic.num.partitions": "1", "log.cleaner.enable": "false"}) as kafka:
        with RawConnection(kafka.bootstrap) as connection:
            topic_id = prepare(connection)
            simple_commits(connection, topic_id)
            tombstones(connection)
            raw_groups(connection, kafka.bootstrap)
            new_kinds_of_groups(connection)
        real_consumers(kafka.bootstrap)
        kafka.stop()
        (log,) = (kafka.data_dir / "__consumer_offsets-0").glob("*.log")
        words = dict(kafkas_words(log))
        lines = [
            {"key": key.hex(), "value": value.hex() if value is not None else None, "kafka": words[offset]}
            for offset, key, value in records(log.read_bytes())
        ]
    DATA.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
    sys.stdout.write(f"{len(lines)} records in {DATA.name}\n")


# --- what is done to Kafka ------------------------------------------------------------------------------------------


def prepare(connection: RawConnection) -> UUID:
    """Two topics, and the coordinator up; returns the id of `orders`."""
    topics = [
        {"name": name, "num_partitions": partitions, "replication_factor": 1, "assignments": (), "configs": ()}
        for name, partitions in (("orders", 4), ("payments", 3))
    ]
    created = connection.ask("create_topics", 7, topics=topics, timeout=30_000)
    error: Any = True
    while error:  # the first question creates `__consumer_offsets`; until it is loaded, answers are errors
        connection.ask("find_coordinator", 6, key_type=0, coordinator_keys=["any"])
        group = {"group_id": "any", "member_id": None, "topics": ()}
        error = connection.ask("offset_fetch", 9, groups=[group], require_stable=False).groups[0].error_code
    topic_id: UUID = created.topics[0].topic_id
    return topic_id


def partition(index: int, offset: int, metadata: str | None = "", epoch: int | None = None) -> dict[str, Any]:
    values: dict[str, Any] = {"partition_index": index, "committed_offset": offset, "committed_metadata": metadata}
    return values if epoch is None else {**values, "committed_leader_epoch": epoch}


def simple_commits(connection: RawConnection, topic_id: UUID) -> None:
    """Commits of groups without members: by name and by id, with and without metadata, epoch and retention."""

    def commit(version: int, group: str, *partitions: dict[str, Any], **more: Any) -> None:
        topic = {"topic_id": topic_id} if version >= 10 else {"name": "orders"}
        topics = [{**topic, "partitions": partitions}]
        answer = connection.ask("offset_commit", version, group_id=group, **NO_MEMBER, topics=topics, **more)
        assert not any(each.error_code for topic in answer.topics for each in topic.partitions), answer

    commit(
        9, "simple", partition(0, 42, "by name", 7), partition(1, 0, "", -1), partition(2, 2**63 - 1, None, 2**31 - 1)
    )
    commit(10, "simple", partition(3, 43, "by id", 0))
    commit(8, "Käufer-買い手-🛒", partition(0, 1, "Übergröße, 大きい, 🛒"), partition(1, -1, "x" * 300))
    commit(9, "", partition(0, 5, "the empty group id"))
    commit(9, "simple", partition(1, 44, "ä" * 63), partition(1, 45, "a" * 127), partition(1, 46, "a" * 126))
    commit(2, "retaining", partition(0, 10, "for a day"), retention_time=DAY_MS)
    commit(3, "retaining", partition(1, 11, "größer"), retention_time=1)
    commit(4, "retaining", partition(2, 12, ""), retention_time=0)
    commit(4, "retaining", partition(3, 13, "no retention of its own"), retention_time=-1)
    commit(5, "retaining", partition(0, 14, "before epochs"))
    commit(6, "retaining", partition(1, 15, "with an epoch", 3))


def tombstones(connection: RawConnection) -> None:
    deleted = {"name": "orders", "partitions": [{"partition_index": index} for index in (0, 1)]}
    assert not connection.ask("offset_delete", 0, group_id="simple", topics=[deleted]).error_code
    (result,) = connection.ask("delete_groups", 2, groups_names=["retaining"]).results
    assert not result.error_code, result


def raw_groups(connection: RawConnection, bootstrap: str) -> None:
    """Groups that speak no consumer protocol, so that nothing in them is what a consumer would send."""
    join: dict[str, Any] = {
        "session_timeout": 30_000,
        "rebalance_timeout": 60_000,
        "protocol_type": "connect",
        "protocols": [{"name": "sessioned", "metadata": b"\x00\xff\x00"}],
    }
    assert connection.ask("join_group", 9, group_id="only-created", member_id="", **join).member_id

    static = {**join, "group_instance_id": "worker-ü"}
    joined = connection.ask("join_group", 9, group_id="workers", member_id="", **static)
    sync(connection, "workers", joined, b"\xde\xad")
    with RawConnection(bootstrap, client_id=None) as second:
        second.send("join_group", 1, group_id="workers", member_id="", **join)
        connection.send("join_group", 9, group_id="workers", member_id=joined.member_id, **static)
        assert second.receive().member_id
        sync(connection, "workers", connection.receive(), b"")
    # A restart of the static member in a Stable group writes the group again, with its new id.
    assert connection.ask("join_group", 9, group_id="workers", member_id="", **static).member_id != joined.member_id

    doomed = connection.ask("join_group", 3, group_id="doomed", member_id="", **join)
    sync(connection, "doomed", doomed, b"x" * 300)
    connection.ask("leave_group", 2, group_id="doomed", member_id=doomed.member_id)
    (result,) = connection.ask("delete_groups", 2, groups_names=["doomed"]).results
    assert not result.error_code, result


def sync(connection: RawConnection, group: str, joined: Any, assignment: bytes) -> None:
    answer = connection.ask(
        "sync_group",
        3,
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        group_instance_id="worker-ü" if group == "workers" else None,
        assignments=[{"member_id": member.member_id, "assignment": assignment} for member in joined.members],
    )
    assert not answer.error_code, answer


def new_kinds_of_groups(connection: RawConnection) -> None:
    """KIP-848, share and streams groups: their records are not ours to read, but have to be passed over."""
    member: dict[str, Any] = {"group_id": "kip-848-regex", "member_id": "a" * 22, "rebalance_timeout": 60_000}
    member |= {"subscribed_topic_names": (), "topic_partitions": ()}
    heartbeat = connection.ask("consumer_group_heartbeat", 1, member_epoch=0, subscribed_topic_regex="or.*", **member)
    assert not heartbeat.error_code, heartbeat

    share: dict[str, Any] = {"group_id": "shared", "member_id": "b" * 22, "subscribed_topic_names": ["orders"]}
    assert not connection.ask("share_group_heartbeat", 1, member_epoch=0, **share).error_code

    nothing: dict[str, Any] = dict.fromkeys(["client_tags", "task_offsets", "task_end_offsets"])
    topology = {
        "epoch": 1,
        "subtopologies": [
            {
                "subtopology_id": "0",
                "source_topics": ["orders"],
                "state_changelog_topics": (),
                "repartition_source_topics": (),
                "copartition_groups": (),
            }
        ],
    }
    heartbeat = connection.ask(
        "streams_group_heartbeat",
        0,
        group_id="streaming",
        member_id="c" * 22,
        member_epoch=0,
        endpoint_information_epoch=0,
        rebalance_timeout=60_000,
        topology=topology,
        active_tasks=(),
        standby_tasks=(),
        warmup_tasks=(),
        process_id="process",
        user_endpoint=None,
        **nothing,
    )
    assert not heartbeat.error_code, heartbeat


def real_consumers(bootstrap: str) -> None:
    """Kafka's own consumer, with each assignor; told to end, a dynamic member leaves and a static one does not."""
    produce = ["--topic", "orders", "--max-messages", "40", "--bootstrap-server", bootstrap]
    run_java("org.apache.kafka.tools.VerifiableProducer", *produce)
    assignors = {"range": "Range", "round-robin": "RoundRobin", "sticky": "Sticky", "cooperative": "CooperativeSticky"}
    for group, name in assignors.items():
        strategy = ["--assignment-strategy", f"org.apache.kafka.clients.consumer.{name}Assignor"]
        consume(bootstrap, group, [*strategy], [*strategy, "--group-instance-id", f"{group}-static"])
    consume(bootstrap, "alone", [])
    consume(bootstrap, "kip-848", ["--group-protocol", "consumer"])


def consume(bootstrap: str, group: str, *members: list[str]) -> None:
    """One consumer after the other joins; each stays until all have been given partitions."""
    with ExitStack() as stack:
        for options in members:
            arguments = ["--topic", "orders", "--group-id", group, "--bootstrap-server", bootstrap, *options]
            command = java_command("org.apache.kafka.tools.VerifiableConsumer", *arguments)
            process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
            stack.callback(process.terminate)
            assert process.stdout
            for line in process.stdout:
                event = json.loads(line) if line.startswith("{") else {}
                if event.get("name") == "partitions_assigned" and event["partitions"]:
                    break


# --- what Kafka has written -----------------------------------------------------------------------------------------


def records(log: bytes) -> Iterator[tuple[int, bytes, bytes | None]]:
    """Offset, key and value of each record in a segment, control batches left out."""
    for at, header in batches(log):
        if not header.is_control:
            for record in records_of(log, header, at):
                yield record.offset, record.key or b"", record.value


def kafkas_words(log: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    dump = run_java("org.apache.kafka.tools.DumpLogSegments", "--offsets-decoder", "--files", log)
    for line in dump.splitlines():
        if line.startswith("| offset: "):
            offset = int(line.split()[2])
            key, _, payload = line.partition(" key: ")[2].partition(" payload: ")
            yield offset, {"key": said(key), "value": said(payload)}


def said(words: str) -> Any:
    return json.loads(words) if words.startswith("{") else None


if __name__ == "__main__":
    main()
