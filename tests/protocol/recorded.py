"""Kafka's bytes and Kafka's words about them, as recorded in `data/`, and how its words become our values."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any
from uuid import UUID

from coterie.protocol.messages import CommittedOffset, StoredGroup, StoredMember
from coterie.protocol.subscription import Assignment, Subscription, write_assignment, write_subscription

DATA = Path(__file__).parent / "data"


def lines(name: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in (DATA / name).read_text().splitlines()]
    assert found, f"{name} is empty: a test that walks over it would pass in silence"
    return found


def versions_of(message: str) -> list[tuple[int, dict[str, Any], bytes]]:
    """Version, fields and bytes of every recording of this class (see record_versions.py)."""
    found = [
        (line["version"], line["fields"], bytes.fromhex(line["hex"]))
        for line in lines("versions.jsonl")
        if line["class"].endswith(f".{message}")
    ]
    assert found, f"there is no {message} in versions.jsonl"
    return found


def uuid_of(words: str) -> UUID | None:
    """Kafka prints a topic id in URL-safe base64 without padding; zero means none."""
    number = UUID(bytes=base64.urlsafe_b64decode(words + "=="))
    return number if number.int else None


def offset_of(words: dict[str, Any]) -> CommittedOffset:
    expires = words.get("expireTimestamp", -1)
    return CommittedOffset(
        offset=words["offset"],
        leader_epoch=words.get("leaderEpoch", -1),
        metadata=words["metadata"],
        commit_timestamp_ms=words["commitTimestamp"],
        expire_timestamp_ms=None if expires == -1 else expires,
        topic_id=uuid_of(words["topicId"]) if "topicId" in words else None,
    )


def user_data_of(words: str | None) -> bytes | None:
    return None if words is None else base64.b64decode(words)


def partitions_of(words: list[dict[str, Any]]) -> dict[str, list[int]]:
    return {topic["topic"]: topic["partitions"] for topic in words}


def subscription_of(words: dict[str, Any], version: int) -> Subscription:
    return Subscription(
        words["topics"],
        user_data_of(words["userData"]),
        partitions_of(words["ownedPartitions"]),
        words["generationId"],
        words["rackId"],
        version,
    )


def assignment_of(words: dict[str, Any], version: int) -> Assignment:
    return Assignment(partitions_of(words["assignedPartitions"]), user_data_of(words["userData"]), version)


def subscription_bytes(words: Any) -> bytes:
    """Kafka's tool decodes what the members of a consumer group say (version 3 here); else it prints base64."""
    return base64.b64decode(words) if isinstance(words, str) else write_subscription(subscription_of(words, 3))


def assignment_bytes(words: Any) -> bytes:
    return base64.b64decode(words) if isinstance(words, str) else write_assignment(assignment_of(words, 3))


def group_of(words: dict[str, Any]) -> StoredGroup:
    members = tuple(
        StoredMember(
            member["memberId"],
            member["groupInstanceId"],
            member["clientId"],
            member["clientHost"],
            member["rebalanceTimeout"],
            member["sessionTimeout"],
            subscription_bytes(member["subscription"]),
            assignment_bytes(member["assignment"]),
        )
        for member in words["members"]
    )
    return StoredGroup(
        words["protocolType"],
        words["generation"],
        words["protocol"],
        words["leader"],
        words["currentStateTimestamp"],
        members,
    )
