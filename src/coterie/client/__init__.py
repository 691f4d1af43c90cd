"""Our side of the wire: consumer, producer and admin for Coterie or any Kafka cluster, and the member without I/O.

Does not import the broker. Read `network/connection.py` first (one socket), then `network/cluster.py` (who
leads what, and the way there). A consumer is `consumer/consumer.py` or `consumer/async_consumer.py` (the public API),
`consumer/engine.py` and `consumer/fetch_driver.py` (asyncio), `member/` and `consumer/fetcher.py` (which decide); a
producer is `producer/producer.py`, `producer/sender.py` and `producer/batching.py` in the same way. The types of
arguments and results are in `types.py`, the settings in `client_settings.py`.
"""

from __future__ import annotations

__all__: list[str] = []
