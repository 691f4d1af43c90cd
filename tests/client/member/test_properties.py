"""Random lives of members, in one harness with the real group core (M1 to M14): see machine.py."""

from __future__ import annotations

from hypothesis import settings

from client.member.machine import MemberMachine

TestMembers = MemberMachine.TestCase
TestMembers.settings = settings(stateful_step_count=40)
