"""The two older designs of consumer groups, and a comparison of all four (semantics 13, docs/designs.md).

Design 1: every consumer watches ZooKeeper and assigns alone (`zookeeper_watchers.py`). Design 2: a coordinator watches
and assigns (`server_side_coordinator.py`, `server_side_member.py`). Designs 3 and 4, the classic protocol and that of
KIP-848, are the rest of this code base.

Both are machines without I/O. `design_types.py` has their events and effects and the port to ZooKeeper, which is a
real server (`zookeeper_server.py`, `drivers.py`) or a model whose followers lag (`zookeeper_model.py`). Read
`design_types.py` first, then `zookeeper_watchers.py`.

`scenario.py` is what happens to a group. `compare.py` and `simulate_zookeeper_designs.py` simulate it under each
design, and `design_costs.py` counts what it costs. `measure.py` does it on a real ZooKeeper, and with the processes of
`processes.py`.
"""
