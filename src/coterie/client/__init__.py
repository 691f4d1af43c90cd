"""Our side of the wire: consumer, producer and admin for Coterie or any Kafka cluster, and the member without I/O.

Knows nothing of the broker's room. Read `connection.py` first (one socket), then `cluster.py` (who leads what, and the
way there); what a caller holds is in `words.py`, what can be set in `settings.py`.
"""

from __future__ import annotations

__all__: list[str] = []
