"""The two older designs of consumer groups, running, and all three side by side (semantics 13).

Design 1: every consumer watches ZooKeeper and decides alone (`zookeeper_watchers.py`). Design 2: a coordinator watches
and decides (`server_side.py`, `told_member.py`, `brokers.py`). Design 3 is the rest of this code base.

The rules are machines without I/O. `registry.py` is their port to ZooKeeper: a real one (`zookeeper.py` and
`kazoo_registry.py`) or a model whose followers lag (`ensemble.py`). They know nothing of who drives them. Read
`registry.py` first, then `zookeeper_watchers.py`.

`scenario.py` is the story all designs are told; `play_old.py` and `play_new.py` simulate it, `real.py` has it acted by
processes, `compare.py` puts the accounts side by side (docs/designs.md).
"""

from __future__ import annotations

from coterie.history.brokers import BrokerSlot
from coterie.history.told_member import ToldMember
from coterie.history.zookeeper_watchers import WatchingConsumer, WatchingSettings

__all__ = ["BrokerSlot", "ToldMember", "WatchingConsumer", "WatchingSettings"]
