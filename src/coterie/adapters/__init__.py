"""Our assignors in other people's consumers: `kafka_python` and `aiokafka`, each importing its library alone.

Imports assignors and protocol alone. Read `member_slot.py` first: what a member must remember
between two rebalances. Importing this package imports no client library.
"""

from __future__ import annotations
