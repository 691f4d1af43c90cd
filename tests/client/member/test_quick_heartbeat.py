"""The quick heartbeats do what the plain rules do, in random lives of members."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from client.member.machine import MemberMachine
from coterie.client.member import Membership
from coterie.client.member.effects import Effects, StartTimer
from coterie.client.member.events import HeartbeatAnswered, HeartbeatDue
from coterie.client.member.member import DUE, HEARTBEAT
from coterie.client.member.quick_heartbeat import quick_answer, quick_due
from coterie.structs import field_names


def test_what_is_done_quickly_is_what_the_rules_do(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: Counter[str] = Counter()
    plainly = Membership.handle

    def handle(member: Membership, event: Any, now_ms: int) -> Effects:
        shadow = copy.copy(member)
        expected: Effects | None = None
        if type(event) is HeartbeatDue and (request := quick_due(shadow, now_ms)) is not None:
            expected = [request, StartTimer(HEARTBEAT, shadow.heartbeat_at_ms, DUE)]
        elif type(event) is HeartbeatAnswered and event.error is None:
            expected = [] if quick_answer(shadow, event, event.reply, now_ms) else None
        found = plainly(member, event, now_ms)
        if expected is not None:
            seen[type(event).__name__] += 1
            assert found == expected
            for name in field_names(member):
                assert getattr(member, name) == getattr(shadow, name), name
        return found

    monkeypatch.setattr(Membership, "handle", handle)
    run_state_machine_as_test(MemberMachine, settings=settings(stateful_step_count=40, max_examples=40))
    assert seen["HeartbeatDue"] > 100 and seen["HeartbeatAnswered"] > 100
