"""A broker of three nodes, with a data directory, whose nodes the test stops, starts and gives groups to."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from clients.harness import QUICK, Facts
from coterie import Broker
from coterie.facts import Fact
from coterie.ledger import plain

__all__ = ["ThreeNodes"]


class ThreeNodes:
    def __init__(self, directory: Path, settings: Mapping[str, Any] | None = None) -> None:
        self.facts = Facts()
        self.broker = Broker(directory / "data", {**QUICK, **(settings or {})}, nodes=3, on_fact=self._tell)

    def _tell(self, fact: Fact) -> None:
        self.facts.all.append(plain(fact))

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap_servers

    def said(self) -> str:
        return "\n".join(["--- broker, last facts", *map(str, self.facts.all[-30:])])

    def move(self, group: str) -> int:
        """The group goes to the next node; which is that?"""
        moved_before = len([fact for fact in self.facts.all if fact["fact"] == "LeadersChanged"])
        node = moved_before % 3 + 1
        self.broker.move_coordinator(group, node)
        return node

    def __enter__(self) -> Self:
        self.broker.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.broker.stop()
        if kind is None:
            bad = [one for one in self.facts.all if one["fact"] in {"Mistake", "Trouble"}]
            assert not bad, f"the broker had trouble: {bad}"
