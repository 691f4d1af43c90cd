"""Bytes to values and back, for every Kafka format that Coterie reads or writes; without I/O.

The package knows nothing of groups or brokers. Read `buffer.py` first, then the format you need: `offsets_topic.py`
(the records of `__consumer_offsets`), `subscription.py` (the consumer protocol between members), `frames.py` (requests
and answers on a stream), `batch.py` (headers of record batches), `records.py` (their records; `_fast_records.pyx` is
its compiled part, `_pure_records.py` the same in Python), `compression.py`, `fetched.py` (the batches of a fetch),
`arrow.py` (records as columns, and back). `apis/` has one file per API, `codec/` generates their readers and writers.
"""

from __future__ import annotations

from coterie.protocol.buffer import Buffer, Reader, Writer
from coterie.protocol.offsets_topic import Skipped, read_key, read_record, write_key, write_record
from coterie.protocol.subscription import (
    Assignment,
    Subscription,
    read_assignment,
    read_subscription,
    read_subscriptions,
    subscribed_topics,
    write_assignment,
    write_subscription,
)

__all__ = [
    "Assignment",
    "Buffer",
    "Reader",
    "Skipped",
    "Subscription",
    "Writer",
    "read_assignment",
    "read_key",
    "read_record",
    "read_subscription",
    "read_subscriptions",
    "subscribed_topics",
    "write_assignment",
    "write_key",
    "write_record",
    "write_subscription",
]
