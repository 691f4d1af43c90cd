"""What a compacted topic demands of a batch, however it was meant."""

from __future__ import annotations

import pytest

from coterie.protocol.batch import Compression, InvalidBatchError
from coterie.protocol.records import BatchRecord, build_batch
from coterie.storage import LogConfig
from coterie.storage.validation import MOST_NAMED, OPENED_AT_ONCE, Origin, check_batches

NOW = 1_000
COMPACTED = LogConfig(compacts=True)
CODECS = [codec for codec in Compression if codec is not Compression.NONE]


@pytest.mark.parametrize("compression", CODECS)
def test_a_batch_that_unpacks_to_much_is_refused_before_it_holds_up_everybody(compression: Compression) -> None:
    """Whatever coterie.max.decompressed.bytes allows: that is for compaction, which has a thread of its own."""
    batch = build_batch([BatchRecord(b"k", bytes(OPENED_AT_ONCE), NOW)], compression=compression)
    with pytest.raises(InvalidBatchError, match="more than 16777216 bytes when decompressed"):
        check_batches(batch, COMPACTED, Origin.CLIENT, NOW)
    less = build_batch([BatchRecord(b"k", bytes(OPENED_AT_ONCE - 100), NOW)], compression=compression)
    assert check_batches(less, COMPACTED, Origin.CLIENT, NOW)


def test_records_without_a_key_are_counted_and_some_of_them_named() -> None:
    records = [BatchRecord(b"k" if number % 2 else None, b"", NOW) for number in range(3 * MOST_NAMED)]
    with pytest.raises(InvalidBatchError, match="1500 of 3000 records have no key") as raised:
        check_batches(build_batch(records), COMPACTED, Origin.CLIENT, NOW)
    assert raised.value.records == list(range(0, 2 * MOST_NAMED, 2))
