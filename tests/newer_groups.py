"""Groups of the newer protocols on Apache Kafka: consumer (KIP-848), share (KIP-932), streams (KIP-1071).

A member joins by one heartbeat, and is in its group until its session expires, in 45 seconds if nothing is set.
"""

from __future__ import annotations

import time
from typing import Any
from uuid import uuid4  # noqa: TID251  this is the real world

from raw_kafka import RawConnection

__all__ = ["consumer_joins", "settled", "share_joins", "streams_joins"]

WAIT_S = 60.0


def settled(ask: Any, is_so: Any) -> Any:
    """What is asked for, as soon as it is so: a new broker's coordinator is not there at once."""
    give_up = time.monotonic() + WAIT_S  # noqa: TID251  this is the real world
    while True:
        found = ask()
        if is_so(found):
            return found
        assert time.monotonic() < give_up, f"after {WAIT_S} s still {found}"  # noqa: TID251
        time.sleep(0.1)


def _joined(connection: RawConnection, api: str, version: int, **values: Any) -> Any:
    """The answer; kio knows error code 0 as `none`."""
    return settled(
        lambda: connection.ask(api, version, member_id=str(uuid4()), member_epoch=0, **values),
        lambda answer: answer.error_code.name == "none",
    )


def consumer_joins(connection: RawConnection, group_id: str, *topics: str) -> str:
    """Returns the member's id."""
    answer = _joined(
        connection,
        *("consumer_group_heartbeat", 1),
        group_id=group_id,
        rebalance_timeout=60_000,
        subscribed_topic_names=topics,
        topic_partitions=(),
    )
    return str(answer.member_id)


def share_joins(connection: RawConnection, group_id: str, *topics: str) -> str:
    answer = _joined(connection, "share_group_heartbeat", 1, group_id=group_id, subscribed_topic_names=topics)
    return str(answer.member_id)


def streams_joins(connection: RawConnection, group_id: str, *topics: str) -> str:
    subtopology = {
        "subtopology_id": "0",
        "source_topics": topics,
        "state_changelog_topics": (),
        "repartition_source_topics": (),
        "copartition_groups": (),
    }
    answer = _joined(
        connection,
        *("streams_group_heartbeat", 0),
        group_id=group_id,
        endpoint_information_epoch=0,
        rebalance_timeout=60_000,
        topology={"epoch": 0, "subtopologies": (subtopology,)},
        active_tasks=(),
        standby_tasks=(),
        warmup_tasks=(),
        process_id="p",
        user_endpoint=None,
        client_tags=(),
        task_offsets=None,
        task_end_offsets=None,
    )
    return str(answer.member_id)
