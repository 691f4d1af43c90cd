"""What producers of each library send is what the log holds: compressed, stamped, numbered as they asked."""

from __future__ import annotations

import time

import pytest

from clients.harness import BrokerProcess, wait_until
from clients.producers import PRODUCERS, ProducerOptions, Record
from clients.producing import Topics
from coterie.protocol.batch import BatchHeader, Compression, batches
from coterie.protocol.records import BatchRecord, records

pytestmark = pytest.mark.real_time

every_producer = pytest.mark.parametrize("library", list(PRODUCERS))

COMPRESSIBLE = [Record(b"once more, " * 40 + b"%03d" % number) for number in range(50)]
PLAIN_BYTES = sum(len(record.value) for record in COMPRESSIBLE)


def stored(broker: BrokerProcess, topic: str, count: int) -> tuple[list[BatchHeader], list[BatchRecord]]:
    """Partition 0 as it lies on the disk, which has what was acknowledged within a second: wait for `count` records."""
    wait_until(lambda: len(_read(broker, topic)[1]) >= count, f"{count} records are in the segments", broker.said)
    return _read(broker, topic)


def _read(broker: BrokerProcess, topic: str) -> tuple[list[BatchHeader], list[BatchRecord]]:
    """Read all segments: records of very different times begin a new one."""
    data = b"".join(path.read_bytes() for path in sorted((broker.data / f"{topic}-0").glob("*.log")))
    found = list(batches(data))
    return [header for _, header in found], [one for at, header in found for one in records(data, header, at)]


@every_producer
@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_a_compressed_batch_is_stored_as_the_client_compressed_it(
    library: str, compression: str, broker: BrokerProcess, topics: Topics, name: str
) -> None:
    topics.create(name, 1)
    PRODUCERS[library](broker.bootstrap, name, COMPRESSIBLE, ProducerOptions(compression))
    headers, content = stored(broker, name, len(COMPRESSIBLE))
    assert {header.compression for header in headers} == {Compression[compression.upper()]}
    assert sum(header.size for header in headers) < PLAIN_BYTES / 4
    assert [record.value for record in content] == [record.value for record in COMPRESSIBLE]


@every_producer
@pytest.mark.parametrize("acks", [0, 1, -1])
def test_records_are_stored_in_order_for_every_acks(
    library: str, acks: int, broker: BrokerProcess, topics: Topics, name: str
) -> None:
    topics.create(name, 1)
    sent = [Record(b"%d" % number) for number in range(20)]
    offsets = PRODUCERS[library](broker.bootstrap, name, sent, ProducerOptions(acks=acks))
    if acks:
        assert offsets == list(range(20))

    def are_stored() -> bool:
        return [record.value for record in _read(broker, name)[1]] == [record.value for record in sent]

    wait_until(are_stored, "20 records are stored in order", broker.said)


@every_producer
@pytest.mark.parametrize("idempotent", [True, False])
def test_an_idempotent_producer_has_an_id_of_its_own_and_numbers_its_batches(
    library: str, idempotent: bool, broker: BrokerProcess, topics: Topics, name: str
) -> None:
    topics.create(name, 1)
    for first in (0, 30):
        sent = [Record(b"%d" % number) for number in range(first, first + 30)]
        PRODUCERS[library](broker.bootstrap, name, sent, ProducerOptions(idempotent=idempotent))
    headers, content = stored(broker, name, 60)
    assert [record.value for record in content] == [b"%d" % number for number in range(60)]
    by_producer: dict[int, list[BatchHeader]] = {}
    for header in headers:
        by_producer.setdefault(header.producer_id, []).append(header)
    if not idempotent:
        assert list(by_producer) == [-1]
        return
    assert len(by_producer) == 2 and -1 not in by_producer, "two producers, so two ids"
    for mine in by_producer.values():
        expected = 0
        for header in mine:
            assert header.producer_epoch == 0 and header.base_sequence == expected
            expected = header.last_sequence + 1


@every_producer
def test_keys_headers_and_timestamps_are_kept(library: str, broker: BrokerProcess, topics: Topics, name: str) -> None:
    topics.create(name, 1)
    long_ago = 1_500_000_000_123
    sent = [
        Record(b"with all", b"key", long_ago, [("trace", b"abc"), ("trace", b"again"), ("empty", b"")]),
        Record(b"now"),
        Record("snö ☃".encode(), "clé".encode(), long_ago + 5, [("schlüssel", "wörter".encode())]),
    ]
    before_ms = time.time_ns() // 1_000_000
    PRODUCERS[library](broker.bootstrap, name, sent, ProducerOptions())
    after_ms = time.time_ns() // 1_000_000
    first, now, last = stored(broker, name, 3)[1]
    assert [(one.key, one.value) for one in (first, now, last)] == [(one.key, one.value) for one in sent]
    assert list(first.headers) == list(sent[0].headers)
    assert list(last.headers) == list(sent[2].headers)
    assert (first.timestamp, last.timestamp) == (long_ago, long_ago + 5)
    assert before_ms <= now.timestamp <= after_ms
