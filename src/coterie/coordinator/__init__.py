"""All groups of one partition of `__consumer_offsets`, still without I/O.

Turns the effects of groups into appends, timers and replies, and records back into groups. Read `shard.py` first.
"""
