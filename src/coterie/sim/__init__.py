"""Hours of rebalances from a seed: the shipped code in a world whose time, network, disks and machines are ours.

How the shipped code is driven without I/O:

- The broker is `broker.cluster.Cluster` with nodes, coordinators, groups, logs, recovery, maintenance and cleaner:
  frames in, effects out. `machine.py` and `nodes.py` do for it what `broker/io/server.py` does on asyncio, on virtual
  time. Its disk is the port of `storage/files.py`, kept by `disk.py`, which loses and tears what was not synced when
  the power goes.
- Consumers and producers are `AsyncConsumer` and `AsyncProducer` as they are shipped, with their connections, metadata,
  retries, tasks and timers. Each process has an event loop of its own (`event_loop.py`) with the virtual clock of its
  host; a socket is a wire of `network.py`, on which the bytes of the protocol travel. `consumer.py`, `producer.py`,
  `admin.py` and `committer.py` are models of users.
- What is not run here: the broker's sockets and threads, and the thread that the synchronous clients share.
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
