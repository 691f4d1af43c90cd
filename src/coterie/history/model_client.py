"""The model's servers and clients: what each has and knows. What happens between them is in `ensemble.py`."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from coterie.history.registry import ANY_SESSION, Ask
from coterie.history.tree import Tree

if TYPE_CHECKING:
    from coterie.history.ensemble import Ensemble

__all__ = ["ModelClient", "Server"]

Act = Callable[[Any], None]


class Server:
    def __init__(self, lag_ms: int) -> None:
        self.tree = Tree()
        self.lag_ms = lag_ms
        """To the leader, and back."""
        self.up_at_ms = self.down_at_ms = 0
        self.watches: dict[str, dict[ModelClient, None]] = {}


class ModelClient:
    """One client of the ensemble. `post` hands an event to whoever it belongs to."""

    def __init__(self, ensemble: Ensemble, name: str, post: Act) -> None:
        self.name = name
        self.session = ANY_SESSION
        """As it knows it; it may have ended."""
        self.is_alive = True
        self.counts: Counter[str] = Counter()
        """Notifications, reads, those of them that are looks at who is there, and writes."""
        self.server = ensemble.leader
        self.cuts = 0
        """Nothing passes while there is one."""
        self.held: deque[tuple[Act, Any]] = deque()
        """What could not pass, in order."""
        self.up_at_ms = self.down_at_ms = 0
        self.under_way: dict[int, Ask] = {}
        """Asked and not answered."""
        self.writes_under_way: dict[int, None] = {}
        self.waiting: deque[tuple[int, Ask]] = deque()
        """Reads that came behind writes which the server does not have yet."""
        self._ensemble = ensemble
        self._post = post

    def connect(self) -> None:
        self._ensemble.connect(self)

    def ask(self, ask: Ask) -> None:
        self._ensemble.ask(self, ask)

    def hears(self, event: Any) -> None:
        if self.is_alive:
            self._post(event)

    def close(self) -> None:
        """In order: its session ends at once."""
        self._ensemble.close(self)

    def vanish(self) -> None:
        """The process is gone, and nobody says so: its session ends when it was silent for too long."""
        self._ensemble.vanish(self)

    def cut(self) -> None:
        """It hears nothing and says nothing: the network, or a process that sleeps."""
        self.cuts += 1

    def repair(self) -> None:
        self.cuts -= 1
        if not self.cuts:
            self._ensemble.repaired(self)
