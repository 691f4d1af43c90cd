"""An ordinary consumer in a process of its own: a line of JSON for whatever it does. SIGTERM ends it in order.

    {"at": 1.5, "read": [[0, 17], [1, 4]]}     partition and offset; then {"at": ..., "committed": true}
    {"at": 1.5, "owns": [0, 1]}                and "gives": when it has committed, "loses": when it is too late for that

python tests/soak/plain_member.py localhost:9092 TOPIC GROUP FILE
"""

from __future__ import annotations

import json
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from threading import Event

from coterie.client.consumer.consumer import Consumer
from coterie.client.types import TopicPartition
from coterie.errors import RebalanceInProgressError

__all__ = ["main"]


def main(address: str, topic: str, group_id: str, file: Path) -> None:
    asked_to_end = Event()
    signal.signal(signal.SIGTERM, lambda _signal, _frame: asked_to_end.set())
    consumer = Consumer(
        bootstrap_servers=address,
        group_id=group_id,
        partition_assignment_strategy="cooperative-sticky",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=6_000,
        heartbeat_interval_ms=300,
    )
    with file.open("a") as out:

        def tell(**what: object) -> None:
            print(json.dumps({"at": time.time()} | what), file=out, flush=True)

        def commit() -> None:
            consumer.commit()
            tell(committed=True)

        def assigned(partitions: list[TopicPartition]) -> None:
            tell(owns=[each.partition for each in partitions])

        def revoked(partitions: list[TopicPartition]) -> None:
            commit()
            tell(gives=[each.partition for each in partitions])

        def lost(partitions: list[TopicPartition]) -> None:
            tell(loses=[each.partition for each in partitions])

        consumer.subscribe([topic], on_assigned=assigned, on_revoked=revoked, on_lost=lost)
        (file.parent / "started").touch()
        is_owed = False
        while not asked_to_end.is_set():
            records = consumer.poll(0.2)
            if records:
                tell(read=[[record.partition, record.offset] for record in records])
                is_owed = True
            if is_owed:
                with suppress(RebalanceInProgressError):  # after the rebalance; there may never be another record
                    commit()
                    is_owed = False
        consumer.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]))
