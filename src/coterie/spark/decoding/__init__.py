"""The bytes of `__consumer_offsets` to columns. Knows the wire and Arrow, not Spark, groups or the network.

`commits.py` reads whole columns of offset commits at once; `decode.py` is what the pipeline calls: it leaves to
`coterie.protocol.offsets_topic` whatever is not of the common shape. A property holds the two equal.
"""

from __future__ import annotations

from coterie.spark.decoding.decode import FACTS_TOPIC, OFFSETS_TOPIC, decode, decode_batches

__all__ = ["FACTS_TOPIC", "OFFSETS_TOPIC", "decode", "decode_batches"]
