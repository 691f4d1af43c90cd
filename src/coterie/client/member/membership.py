"""The member as drivers see it."""

from __future__ import annotations

from typing import Any

from coterie.client.member.effects import Effects
from coterie.client.member.settings import MemberSettings

__all__ = ["Membership"]


class Membership:
    def __init__(self, settings: MemberSettings) -> None:
        self.settings = settings

    def handle(self, event: Any, now_ms: int) -> Effects:
        """What follows from `event` at `now_ms`."""
        raise NotImplementedError

    def explain(self, now_ms: int) -> str:
        """What the member is doing, what it waits for, and since when, in words."""
        raise NotImplementedError
