"""Our side of the wire: consumer, producer and admin for Coterie or any Kafka cluster, and the member without I/O.

Knows nothing of the broker's room. Read `connection.py` first (one socket), then `cluster.py` (who leads what, and the
way there). A consumer is `consumer.py` or `async_consumer.py` (the faces), `consuming.py` and `reading.py` (asyncio),
`member/` and `fetching.py` (which decide); a producer is `producer.py`, `sender.py` and `batching.py` in the same way.
The types of arguments and results are in `types.py`, the settings in `client_settings.py`.
"""

from __future__ import annotations

__all__: list[str] = []
