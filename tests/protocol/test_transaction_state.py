"""The records of `__transaction_state`."""

from __future__ import annotations

import pytest

from coterie.errors import MalformedError
from coterie.protocol.transaction_state import (
    TransactionRecord,
    TransactionStatus,
    TransactionValue,
    read_transaction_record,
    write_transaction_record,
)

ONGOING = TransactionValue(
    producer_id=7,
    producer_epoch=3,
    timeout_ms=60_000,
    status=TransactionStatus.ONGOING,
    partitions=frozenset({("b", 2), ("a", 1), ("b", 0)}),
    last_update_ms=1_000,
    start_ms=900,
    previous_producer_id=7,
    client_version=2,
)
EMPTY = TransactionValue(
    producer_id=7,
    producer_epoch=0,
    timeout_ms=60_000,
    status=TransactionStatus.EMPTY,
    last_update_ms=1_000,
    previous_producer_id=7,
)


def test_a_record_is_written_as_kafka_writes_it() -> None:
    """TR1: only the value is compact; partitions are null in Empty, and tags at their defaults are left out."""
    key, value = write_transaction_record(TransactionRecord("tx", EMPTY))
    assert key == bytes.fromhex("0000 0002") + b"tx"
    assert value == bytes.fromhex(
        "0001 0000000000000007 0000 0000ea60 00 00 00000000000003e8 ffffffffffffffff 01 00 08 0000000000000007"
    )
    _, value = write_transaction_record(TransactionRecord("tx", ONGOING))
    assert value == bytes.fromhex(
        "0001 0000000000000007 0003 0000ea60 01"
        "03 02 61 02 00000001 00 02 62 03 00000000 00000002 00"
        "00000000000003e8 0000000000000384 02 00 08 0000000000000007 02 02 0002"
    )


@pytest.mark.parametrize("value", [None, EMPTY, ONGOING])
def test_what_is_written_is_read_back(value: TransactionValue | None) -> None:
    record = TransactionRecord("größe", value)
    assert read_transaction_record(*write_transaction_record(record)) == record


def test_the_rotation_of_a_producer_id_is_kept() -> None:
    """TR1, TI7: the next producer id is there while the epochs of the present one end."""
    value = TransactionValue(
        producer_id=7,
        producer_epoch=32767,
        timeout_ms=1,
        status=TransactionStatus.PREPARE_ABORT,
        last_update_ms=1,
        start_ms=1,
        next_producer_id=8,
    )
    record = TransactionRecord("tx", value)
    assert read_transaction_record(*write_transaction_record(record)) == record


def test_a_value_of_version_0_is_read() -> None:
    """TR1: as a broker with transaction.version 0 writes it."""
    data = bytes.fromhex(
        "0000 0000000000000007 0003 0000ea60 01 00000001 0001 61 00000002 00000000 00000002"
        "00000000000003e8 0000000000000384"
    )
    found = read_transaction_record(b"\0\0\0\x01t", data)
    assert found is not None and found.value is not None
    assert found.value.partitions == {("a", 0), ("a", 2)}
    assert (found.value.start_ms, found.value.previous_producer_id, found.value.client_version) == (900, -1, 0)


def test_a_key_of_a_newer_kind_is_passed_over_and_nonsense_is_refused() -> None:
    assert read_transaction_record(b"\0\x01\0\0", b"") is None
    _, value = write_transaction_record(TransactionRecord("tx", ONGOING))
    assert value is not None
    for broken in (b"", b"\0\x02", value[:20], value[:-3], value[:16] + b"\x09" + value[17:]):
        with pytest.raises(MalformedError):
            read_transaction_record(b"\0\0\0\x01t", broken)
