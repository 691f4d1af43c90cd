"""Bytes to values and back, for every Kafka format the house reads or writes; pure.

Knows nothing of groups, brokers or versions of APIs. Read `buffer.py` first, then the format you need:
`offsets_topic.py` (the records of `__consumer_offsets`), `subscription.py` (what members tell each other).
"""
