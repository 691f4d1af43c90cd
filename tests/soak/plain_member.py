"""An ordinary consumer in a process of its own: a line for each poll, a line when it is committed. SIGTERM ends it.

python tests/soak/plain_member.py localhost:9092 TOPIC GROUP FILE
"""

from __future__ import annotations

import json
import signal
import sys
from contextlib import suppress
from pathlib import Path
from threading import Event

from coterie.client.consumer import Consumer
from coterie.client.words import TopicPartition
from coterie.errors import RebalanceInProgressError

__all__ = ["main"]

COMMITTED = "committed"


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

        def commit(_partitions: list[TopicPartition] | None = None) -> None:
            consumer.commit()
            print(COMMITTED, file=out, flush=True)

        consumer.subscribe([topic], on_revoked=commit)
        (file.parent / "started").touch()
        while not asked_to_end.is_set():
            records = consumer.poll(0.2)
            if records:
                print(json.dumps([[record.partition, record.offset] for record in records]), file=out, flush=True)
                with suppress(RebalanceInProgressError):  # what it keeps is committed with the next ones, or on_revoked
                    commit()
        consumer.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]))
