"""The broker makes no mistakes of its own: an exception of ours that it survives is one nevertheless."""

from __future__ import annotations

from coterie.facts import Fact, Mistake
from coterie.sim.machine import Machine
from coterie.sim.observer import Observer

__all__ = ["NoMistakes"]


class NoMistakes(Observer):
    name = "no mistakes"

    def tell(self, machine: Machine, fact: Fact) -> None:
        if type(fact) is Mistake:
            self.fails(f"{machine.name}, {fact.doing}:\n{fact.trace}")
