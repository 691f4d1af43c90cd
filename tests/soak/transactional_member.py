"""A member of the same group that reads, processes and writes without Spark. SIGTERM ends it in order.

python tests/soak/transactional_member.py localhost:9092 INPUT OUTPUT GROUP
"""

from __future__ import annotations

import signal
import sys
from threading import Event

from coterie import ApplicationRecoverableError, Consumer, Producer, TransactionAbortableError

__all__ = ["main"]


def main(address: str, topic: str, output: str, group_id: str) -> None:
    asked_to_end = Event()
    signal.signal(signal.SIGTERM, lambda _signal, _frame: asked_to_end.set())
    while not asked_to_end.is_set():
        try:
            run(address, topic, output, group_id, asked_to_end)
        except ApplicationRecoverableError as error:
            print(error, "Starting again.", file=sys.stderr)


def run(address: str, topic: str, output: str, group_id: str, asked_to_end: Event) -> None:
    with (
        Consumer(
            bootstrap_servers=address,
            group_id=group_id,
            partition_assignment_strategy="cooperative-sticky",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=6_000,
            heartbeat_interval_ms=300,
        ) as consumer,
        Producer(bootstrap_servers=address, transactional_id="member") as producer,
    ):
        consumer.subscribe([topic])
        while not asked_to_end.is_set():
            records = consumer.poll(0.2)
            if not records:
                continue
            try:
                with producer.transaction():
                    for each in records:
                        value = b"%d:%d:%s" % (each.partition, each.offset, each.value)
                        producer.send(output, value, key=each.key)
                    producer.send_offsets(records.next_offsets(), consumer.group_metadata())
            except TransactionAbortableError:
                consumer.seek_to_committed()


if __name__ == "__main__":
    main(*sys.argv[1:])
