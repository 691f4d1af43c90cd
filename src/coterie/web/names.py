"""What members are called on a page: short, and never the same for two of them."""

from __future__ import annotations

from collections.abc import Iterable

from coterie.facts import Fact, MemberJoined, MemberReplaced

__all__ = ["Names"]

ID_LENGTH = 36
"""Of the random part of a member id."""


class Names:
    """By the instance id if it is static, however often it restarts; else by the client's id, the second as `id #2`."""

    def __init__(self, told: Iterable[Fact] = ()) -> None:
        self._names: dict[str, str] = {}
        self._taken: dict[str, int] = {}
        for fact in told:
            if isinstance(fact, MemberJoined | MemberReplaced) and fact.instance_id:
                self._names[fact.member_id] = fact.instance_id
            elif isinstance(fact, MemberJoined) and fact.member_id not in self._names:
                self._give(fact.member_id, fact.client_id)

    def of(self, member_id: str) -> str:
        if member_id not in self._names:
            base = member_id[: -ID_LENGTH - 1] if len(member_id) > ID_LENGTH + 1 else member_id
            self._give(member_id, base)
        return self._names[member_id]

    def _give(self, member_id: str, wanted: str) -> None:
        count = self._taken[wanted] = self._taken.get(wanted, 0) + 1
        name = wanted if count == 1 else f"{wanted} #{count}"
        self._names[member_id] = name or member_id
