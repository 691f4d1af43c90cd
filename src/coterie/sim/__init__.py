"""Hours of rebalances from a seed: the shipped code with simulated time, network, disks and machines.

How the shipped code is driven without I/O:

- The broker is `broker.cluster.Cluster` with nodes, coordinators, groups, logs, recovery, maintenance and cleaner:
  frames in, effects out. `machine.py` and `nodes.py` do for it what `broker/io/server.py` does on asyncio, on virtual
  time. Its disk is the port of `storage/files.py`, kept by `disk.py`, which loses and tears what was not synced when
  the power goes.
- Consumers and producers are `AsyncConsumer` and `AsyncProducer` as they are shipped, with their connections, metadata,
  retries, tasks and timers. Each process has an event loop of its own (`event_loop.py`) with the virtual clock of its
  host; a socket is a wire of `network.py`, on which the bytes of the protocol travel. `consumer.py`, `clients.py` and
  `transactional.py` are models of users.
- What is not run here: the broker's sockets and threads, and the thread that the synchronous clients share.
- One heap has all events to come (`schedule.py`). All random numbers are from named streams, so that one more number
  here does not change those elsewhere. Nothing reads a clock.
- A run is a list of steps (`steps.py`, `faults.py`, `plan.py`), drawn from the seed and printed first. Any of them can
  be left out: this is how a failure is shrunk and replayed.

Read `run.py` first, then `world.py`; `invariants/` has what must hold.
"""

from __future__ import annotations

from coterie.sim.plan import Plan
from coterie.sim.run import Outcome, simulate

__all__ = ["Outcome", "Plan", "simulate"]
