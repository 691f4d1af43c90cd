"""Spark: Kafka's topics as a source and a sink, and a query that is a member of its group. format("coterie").

Knows client and settings, not the broker. `options.py`, `places.py`, `plan.py`, `planning.py`, `claims.py` and
`holdings.py` decide and import no Spark; read `claims.py` first (what is promised, and how), then `source.py` (what
Spark calls). Spark finds the source by itself, by the module `pyspark_coterie` beside this package.
"""

from __future__ import annotations

__all__: list[str] = []
