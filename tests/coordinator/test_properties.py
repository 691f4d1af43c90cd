"""Random lives of groups: everything `checks.py` says, after every event, on any disk and any clock."""

from __future__ import annotations

from hypothesis import settings

from coordinator.machine import GroupMachine

TestGroups = GroupMachine.TestCase
TestGroups.settings = settings(max_examples=max(settings().max_examples, 400))
