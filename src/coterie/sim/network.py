"""The network: wires between clients and brokers, each with two directions that keep their order, and all that goes
wrong with them: delays, slow links, cuts, connections that are lost, and connections that only one side believes in.

What is sent into a cut is not lost: it comes when the cut is repaired, as TCP would have it, unless one side has given
up meanwhile. A wire that is half open swallows everything and says nothing.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from coterie.sim.schedule import Random

if TYPE_CHECKING:
    from coterie.sim.clients import Client
    from coterie.sim.event_loop import Transport
    from coterie.sim.machine import BrokerLink, Machine
    from coterie.sim.world import World


class VirtualWire:
    """One TCP connection. `is_open`: the client has it open; `link`: the broker's side, if it has one."""

    __slots__ = (
        "client",
        "down_at_ms",
        "held",
        "is_cut",
        "is_dead",
        "is_open",
        "link",
        "machine",
        "port",
        "random",
        "transport",
        "up_at_ms",
    )

    def __init__(self, client: Client, machine: Machine, port: int, rng: Random) -> None:
        self.client = client
        self.machine = machine
        self.port = port
        self.random = rng.random
        self.link: BrokerLink | None = None
        self.transport: Transport | None = None
        self.is_open = True
        self.is_cut = False
        self.is_dead = False
        """Half open: what is sent is lost."""
        self.up_at_ms = self.down_at_ms = 0
        self.held: deque[tuple[Any, Any]] = deque()
        """The data that arrives when the cut is repaired."""

    @property
    def waits_for(self) -> list[str]:
        """The names of the APIs whose answers the client waits for."""
        return self.transport.protocol.waits_for if self.transport is not None and self.transport.protocol else []


class VirtualNetwork:
    def __init__(self, world: World, *, delay_ms: int, jitter_ms: int) -> None:
        self._world = world
        self._schedule = world.schedule
        self._delay_ms = delay_ms
        self._jitter_ms = jitter_ms
        self._opened: dict[str, int] = {}
        self.wires: dict[VirtualWire, None] = {}
        """The connections that at least one side has open."""
        self.cuts: dict[str, int] = {}
        """The hosts that are cut off, and the number of their cuts."""
        self.slow: dict[str, int] = {}
        """The extra delay of hosts in ms."""

    # --- wires --------------------------------------------------------------------------------------------------------

    def open(self, client: Client, machine: Machine, port: int) -> VirtualWire:
        name = f"{client.name}/{port}"
        number = self._opened[name] = self._opened.get(name, 0) + 1
        wire = VirtualWire(client, machine, port, self._world.rng.of(f"wire/{name}/{number}"))
        wire.is_cut = self._is_cut(wire)
        self.wires[wire] = None
        self._up(wire, self._syn, wire)
        return wire

    def _is_cut(self, wire: VirtualWire) -> bool:
        return wire.client.name in self.cuts or wire.machine.name in self.cuts

    def _slowness(self, wire: VirtualWire) -> int:
        return self.slow.get(wire.client.name, 0) + self.slow.get(wire.machine.name, 0)

    def _up(self, wire: VirtualWire, act: Any, about: Any) -> None:
        schedule = self._schedule
        at_ms = schedule.now_ms + self._delay_ms + int(wire.random() * self._jitter_ms)
        if self.slow:
            at_ms += self._slowness(wire)
        if at_ms < wire.up_at_ms:  # nothing overtakes  # noqa: PLR1730  half of all that happens passes here
            at_ms = wire.up_at_ms
        wire.up_at_ms = at_ms
        schedule.at(at_ms, act, about)

    def _down(self, wire: VirtualWire, act: Any, about: Any) -> None:
        schedule = self._schedule
        at_ms = schedule.now_ms + self._delay_ms + int(wire.random() * self._jitter_ms)
        if self.slow:
            at_ms += self._slowness(wire)
        if at_ms < wire.down_at_ms:  # noqa: PLR1730
            at_ms = wire.down_at_ms
        wire.down_at_ms = at_ms
        schedule.at(at_ms, act, about)

    def _waits(self, wire: VirtualWire, act: Any, about: Any) -> bool:
        """Return whether data cannot arrive now, or never."""
        if wire.is_dead:
            return True
        if wire.is_cut or wire.held:
            wire.held.append((act, about))
            return True
        return False

    # --- from the client ----------------------------------------------------------------------------------------------

    def send(self, wire: VirtualWire, data: bytes) -> None:
        self._up(wire, self._arrives, (wire, data))

    def _syn(self, wire: VirtualWire) -> None:
        if self._waits(wire, self._syn, wire):
            return
        link = wire.machine.accepts(wire)
        if link is None:
            if wire.machine.has_power:
                self._down(wire, self._reset, wire)
            return
        wire.link = link
        self._down(wire, self._ack, wire)

    def _arrives(self, about: tuple[VirtualWire, bytes]) -> None:
        wire, data = about
        if (wire.is_dead or wire.is_cut or wire.held) and self._waits(wire, self._arrives, about):
            return
        if wire.link is not None:
            wire.machine.receives((wire.link, data))
        elif wire.machine.has_power:
            self._down(wire, self._reset, wire)

    def hang_up(self, wire: VirtualWire) -> None:
        """The client closes it; the broker notices if it is reachable."""
        wire.is_open = False
        self._up(wire, self._fin, wire)

    def _fin(self, wire: VirtualWire) -> None:
        if wire.is_dead or self._waits(wire, self._fin, wire):
            self._forget(wire)
            return
        if wire.link is not None:
            wire.machine.loses((wire.link, "hung up"))
        self._forget(wire)

    def _forget(self, wire: VirtualWire) -> None:
        if wire.link is None and not wire.is_open:
            self.wires.pop(wire, None)

    def vanish(self, client: Client) -> None:
        """Its host loses power: the broker sees no error and keeps the connections."""
        for wire in [wire for wire in self.wires if wire.client is client]:
            wire.is_open = False
            wire.is_dead = True
            self._forget(wire)

    # --- from the broker ----------------------------------------------------------------------------------------------

    def answer(self, wire: VirtualWire, data: bytes) -> None:
        self._down(wire, self._returns, (wire, data))

    def _ack(self, wire: VirtualWire) -> None:
        if not self._waits(wire, self._ack, wire) and wire.is_open:
            wire.client.connected(wire)

    def _returns(self, about: tuple[VirtualWire, bytes]) -> None:
        wire = about[0]
        if wire.is_open:
            if (wire.is_dead or wire.is_cut or wire.held) and self._waits(wire, self._returns, about):
                return
            wire.client.hears(about)

    def drop(self, wire: VirtualWire) -> None:
        """The broker closes it or has died; the client notices if it is reachable."""
        wire.link = None
        self._forget(wire)
        if wire.is_open:
            self._down(wire, self._reset, wire)

    def _reset(self, wire: VirtualWire) -> None:
        if wire.is_open and not self._waits(wire, self._reset, wire):
            wire.client.lost(wire)
            self._forget(wire)

    def power_lost(self, machine: Machine) -> None:
        """No client sees an error. After its return it resets all old connections when they send something."""
        for wire in [wire for wire in self.wires if wire.machine is machine]:
            wire.link = None
            wire.held.clear()
            self._forget(wire)

    # --- trouble ------------------------------------------------------------------------------------------------------

    def lose(self, wire: VirtualWire) -> None:
        """Both sides notice."""
        if wire.link is not None:
            wire.machine.loses((wire.link, "reset"))
        self.drop(wire)

    def cut(self, host: str) -> None:
        self.cuts[host] = self.cuts.get(host, 0) + 1
        for wire in self.wires:
            wire.is_cut = self._is_cut(wire)

    def repair(self, host: str) -> None:
        self.cuts[host] -= 1
        if not self.cuts[host]:
            del self.cuts[host]
        for wire in self.wires:
            wire.is_cut = self._is_cut(wire)
            if not wire.is_cut and wire.held:
                self._schedule.after(0, self._deliver, wire)

    def _deliver(self, wire: VirtualWire) -> None:
        """Deliver what was held back, in order."""
        if not wire.is_cut:
            held, wire.held = wire.held, deque()
            for act, about in held:
                act(about)
