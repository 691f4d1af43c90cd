"""Read orders, write bills, and commit the offsets of the orders together with the bills."""

import sys

from coterie import ApplicationRecoverableError, Consumer, Producer, TransactionAbortableError


def run(bootstrap: str, name: str) -> None:
    settings = {"bootstrap.servers": bootstrap}
    with (
        Consumer(
            settings, group_id="billing", auto_offset_reset="earliest", enable_auto_commit=False,
            isolation_level="read_committed",
        ) as consumer,
        Producer(settings, transactional_id=name) as producer,
    ):  # fmt: skip
        consumer.subscribe(["orders"])
        while True:
            records = consumer.poll(1.0)
            if not records:
                continue
            try:
                with producer.transaction():
                    for record in records:
                        producer.send("bills", b"bill for " + (record.value or b"nothing"), key=record.key)
                    producer.send_offsets(records.next_offsets(), consumer.group_metadata())
            except TransactionAbortableError:  # it was aborted, for example since the group has rebalanced
                consumer.seek_to_committed()


if __name__ == "__main__":
    while True:
        try:
            run(*sys.argv[1:])
        except ApplicationRecoverableError as error:  # the broker aborted it after transaction.timeout.ms, for example
            print(error, "Starting again.", file=sys.stderr)
