"""The rules of one consumer group, pure: `Group.handle(event, now_ms)` returns effects.

Knows no clock, no disk, no network and no other group. Read `states.py` first (the tables), then `group.py` (what a
group is), then the file named after the request you are interested in.
"""
