"""Hours of rebalances from a seed: the shipped code in a world whose time, network, disks and machines are ours.

How the shipped code is driven without I/O, decided once:

- The broker is `broker.cluster.Cluster` with nodes, coordinators, groups, logs, recovery, maintenance and cleaner:
frames
  in, effects out. `machine.py` and `nodes.py` do for it what `broker/io/server.py` does on asyncio, on virtual time.
  Its disk is the port of `storage/files.py`, kept by `disk.py`, which loses and tears what was not synced when the
  power goes.
- The consumer is `client.member.Membership` and `client.consumer.fetcher.Fetcher`, the producer `Batching`: the
  three machines that decide. `consumer.py` and `producer.py` do for them what `engine.py`, `fetch_driver.py`
  and `sender.py` do on asyncio. Between client and broker travel the bytes of the wire, written and read by `protocol`.
- So what is not run here is the asyncio itself: sockets, tasks and threads (`server.py`, `connection.py`, `cluster.py`,
  `engine.py`, `fetch_driver.py`, `sender.py`). An event loop of ours could run those as they are; it was left out,
  since every await costs tens of microseconds and a heartbeat has fifty for both sides, wire and invariants included.
- One heap holds all that is going to happen (`schedule.py`). Everything random comes from `rng.py`: a stream for each
  concern, named, so that one more throw here does not change the luck elsewhere. Nothing asks a clock.
- A run is a list of steps (`steps.py`, `faults.py`, `workloads.py`), drawn from the seed and printed first. Any of them
  can be left out: so a failure is shrunk, and so it is replayed.

Knows broker and client; nothing below knows it. Read `run.py` first, then `world.py`; `invariants/` is what must hold.
"""

from __future__ import annotations

from coterie.sim.plan import Plan
from coterie.sim.run import Outcome, simulate

__all__ = ["Outcome", "Plan", "simulate"]
