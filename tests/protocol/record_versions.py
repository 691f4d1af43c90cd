"""Make `data/versions.jsonl` again: the bytes Kafka's own classes write in every version, current and old.

    .venv/bin/python tests/protocol/record_versions.py

A running Kafka writes only the newest; logs that are older than it hold the others, and members of any age meet in a
group. Each line holds the class, the version, the fields as JSON (bytes in base64) and the bytes in hex.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from apache_kafka import run_java

HERE = Path(__file__).parent
DATA = HERE / "data" / "versions.jsonl"
RECORDS = "org.apache.kafka.coordinator.group.generated."
MESSAGES = "org.apache.kafka.common.message."

OFFSETS: list[dict[str, Any]] = [
    {"offset": 0, "leaderEpoch": -1, "metadata": "", "commitTimestamp": 0, "expireTimestamp": -1},
    {"offset": 42, "leaderEpoch": 7, "metadata": "plain", "commitTimestamp": 1_700_000_000_000, "expireTimestamp": 5},
    {"offset": -1, "leaderEpoch": 0, "metadata": "größer 大きい 🛒", "commitTimestamp": -1, "expireTimestamp": -1},
    {"offset": 2**63 - 1, "leaderEpoch": 2**31 - 1, "metadata": "m" * 126, "commitTimestamp": 2**63 - 1},
    {"offset": -(2**63), "leaderEpoch": -(2**31), "metadata": "m" * 127, "commitTimestamp": -(2**63)},
    {"offset": 1, "leaderEpoch": 1, "metadata": "m" * 300, "commitTimestamp": 1},
]
TOPIC_IDS = ["AAAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAQ", "IOjcPJ_wTQGPx12_XayLzA"]
MEMBERS: list[dict[str, Any]] = [
    {
        "memberId": f"member-{instance}",
        "groupInstanceId": instance,
        "clientId": client,
        "clientHost": "/127.0.0.1",
        "rebalanceTimeout": 300_000,
        "sessionTimeout": 45_000,
        "subscription": subscription,
        "assignment": assignment,
    }
    for instance, client, subscription, assignment in (
        (None, "", "", ""),
        ("", "client", "AP8A", "3q2+7w=="),
        ("größe", "🛒", "AAAA" * 50, "////" * 50),
    )
]
GROUPS: list[dict[str, Any]] = [
    {"protocolType": "", "generation": 0, "protocol": None, "leader": None, "members": []},
    {"protocolType": "consumer", "generation": 3, "protocol": None, "leader": None, "members": []},
    {"protocolType": "consumer", "generation": 2**31 - 1, "protocol": "range", "leader": "", "members": MEMBERS[:1]},
    {"protocolType": "connect", "generation": -1, "protocol": "", "leader": "größe", "members": MEMBERS},
]
PARTITIONS: list[list[dict[str, Any]]] = [
    [],
    [{"topic": "orders", "partitions": []}],
    [{"topic": "orders", "partitions": [0, 1, 2**31 - 1]}, {"topic": "payments", "partitions": [5]}],
]
SUBSCRIPTIONS: list[dict[str, Any]] = [
    {"topics": topics, "userData": user_data, "ownedPartitions": owned, "generationId": generation, "rackId": rack}
    for (topics, user_data, generation, rack), owned in zip(
        [([], None, -1, None), (["orders"], "", 0, "rack"), (["orders", "payments", "zoo"], "AAAAAg==", 2, "größe")],
        PARTITIONS,
        strict=True,
    )
]
ASSIGNMENTS: list[dict[str, Any]] = [
    {"assignedPartitions": partitions, "userData": user_data}
    for partitions, user_data in zip(PARTITIONS, [None, "", "AAAAAg=="], strict=True)
]


def inputs() -> Iterator[tuple[str, int, dict[str, Any]]]:
    for version in range(5):
        for offset in OFFSETS:
            for topic_id in TOPIC_IDS if version >= 4 else TOPIC_IDS[:1]:
                yield RECORDS + "OffsetCommitValue", version, {"expireTimestamp": -1, **offset, "topicId": topic_id}
        for group in GROUPS:
            yield RECORDS + "GroupMetadataValue", version, {"currentStateTimestamp": 1_700_000_000_000, **group}
    for version in range(4):
        for subscription in SUBSCRIPTIONS:
            owned = subscription["ownedPartitions"] if version >= 1 else []  # Kafka refuses to leave these out silently
            yield MESSAGES + "ConsumerProtocolSubscription", version, {**subscription, "ownedPartitions": owned}
        for assignment in ASSIGNMENTS:
            yield MESSAGES + "ConsumerProtocolAssignment", version, assignment


def main() -> None:
    lines = [{"class": name, "version": version, "fields": fields} for name, version, fields in inputs()]
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as asked:
        asked.write("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
        asked.flush()
        DATA.write_text(run_java(HERE / "KafkaBytes.java", asked.name))
    sys.stdout.write(f"{len(lines)} messages in {DATA.name}\n")


if __name__ == "__main__":
    main()
