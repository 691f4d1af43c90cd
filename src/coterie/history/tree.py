"""What a ZooKeeper server has: nodes with data and versions, some of which end with a session."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from coterie.history.registry import Node

__all__ = ["Closed", "Made", "Put", "Removed", "Transaction", "Tree"]

PERSISTENT = 0


@dataclass(frozen=True, slots=True)
class Made:
    path: str
    data: bytes
    session: int


@dataclass(frozen=True, slots=True)
class Removed:
    path: str


@dataclass(frozen=True, slots=True)
class Put:
    values: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Closed:
    """A session has ended, and with it goes all that is its own."""

    session: int


Transaction = Made | Removed | Put | Closed


class Tree:
    def __init__(self) -> None:
        self._nodes: dict[str, tuple[Node, int]] = {}
        self._children: dict[str, dict[str, None]] = {}
        self._of_session: dict[int, dict[str, None]] = {}

    def get(self, path: str) -> Node | None:
        found = self._nodes.get(path)
        return found[0] if found is not None else None

    def children(self, path: str) -> list[str]:
        return sorted(self._children.get(path, ()))

    def apply(self, what: Transaction) -> Iterable[str]:
        """Returns the paths whose children are not the same as before."""
        match what:
            case Made(path, data, session):
                return self._make(path, data, session)
            case Removed(path):
                return self._remove(path)
            case Put(values):
                changed: list[str] = []
                for path, data in values.items():
                    before = self._nodes.get(path)
                    if before is None:
                        changed += self._make(path, data, PERSISTENT)
                    else:
                        self._nodes[path] = (Node(data, before[0].version + 1), before[1])
                return changed
            case Closed(session):
                gone = list(self._of_session.pop(session, ()))
                return list(dict.fromkeys(parent for path in gone for parent in self._remove(path)))

    def _make(self, path: str, data: bytes, session: int) -> list[str]:
        self._nodes[path] = (Node(data, 0), session)
        parent, _, name = path.rpartition("/")
        self._children.setdefault(parent, {})[name] = None
        if session != PERSISTENT:
            self._of_session.setdefault(session, {})[path] = None
        return [parent]

    def _remove(self, path: str) -> list[str]:
        found = self._nodes.pop(path, None)
        if found is None:
            return []
        parent, _, name = path.rpartition("/")
        del self._children[parent][name]
        self._of_session.get(found[1], {}).pop(path, None)
        return [parent]
