"""The producer against Apache Kafka 4.3.1 itself."""

from __future__ import annotations

import pytest

from apache_kafka import ApacheKafka, needs_apache_kafka
from broker.peer import Peer
from coterie import Admin, Producer
from coterie.client.admin import NewTopic
from coterie.errors import ErrorCode, KafkaError
from coterie.protocol.batch import Compression

pytestmark = [pytest.mark.real_time, needs_apache_kafka]


def test_apache_kafka_takes_what_we_send() -> None:
    """Compressed in every way, split where it is too large, with a bad record refused: once, in order."""
    with ApacheKafka() as kafka:
        with Admin(bootstrap_servers=kafka.bootstrap) as admin:
            admin.create_topics(
                [
                    NewTopic("plain", 2, 1),
                    NewTopic("small", 1, 1, configs={"max.message.bytes": "1500"}),
                    NewTopic("compacted", 1, 1, configs={"cleanup.policy": "compact"}),
                ]
            )
        for compression in Compression:
            with Producer(bootstrap_servers=kafka.bootstrap, compression_type=compression.name.lower()) as producer:
                for number in range(100):
                    producer.send("plain", f"{compression.name} {number} " + "x" * 500, key="k", headers={"h": "v"})
        with Producer(bootstrap_servers=kafka.bootstrap, linger_ms=50) as producer:
            split = [producer.send("small", f"{number:03}" + "x" * 97) for number in range(200)]
            assert [each.result(60).offset for each in split] == list(range(200))
            with pytest.raises(KafkaError) as caught:
                producer.send("compacted", "no key").result(60)
            assert caught.value.code is ErrorCode.INVALID_RECORD
            assert producer.send("compacted", "v", key="k").result(60).offset == 0
        expected = [f"{compression.name} {number} ".encode() for compression in Compression for number in range(100)]
        with Peer(kafka.bootstrap) as peer:
            found = [value for partition in (0, 1) for _, value in peer.read_all("plain", partition)]
        assert [(value or b"").rstrip(b"x") for value in found] == expected
