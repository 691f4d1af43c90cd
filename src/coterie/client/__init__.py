"""Consumer, producer and admin for Coterie or any Kafka cluster, and the member without I/O.

Read `network/connection.py` first (one socket), then `network/network_client.py` (the cluster), which carry bytes and
wait; `network/in_flight_requests.py`, `network/metadata.py` and others beside them decide. A consumer is
`consumer/consumer.py` or `consumer/async_consumer.py` (the public API), `consumer/engine.py` and
`consumer/fetch_driver.py` (asyncio), `member/`, `consumer/fetcher.py` and `consumer/fetch_collector.py` (which decide);
a producer is `producer/producer.py`, `producer/sender.py` and `producer/record_accumulator.py` in the same way. The
types of arguments and results are in `types.py`.
"""

from __future__ import annotations

__all__: list[str] = []
