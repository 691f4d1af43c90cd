"""The rules of one classic group, pure: a rule takes group, event and time, and returns effects.

Knows no clock, no disk, no network and no other group. Read `states.py` first (the tables), then `group.py` (what a
group is), then the file named after the request you are interested in. `rules.py` says which function handles what.
"""

from coterie.coordinator.classic.describe_group import listed
from coterie.coordinator.classic.effects import Effects
from coterie.coordinator.classic.group import ClassicGroupMember, Group
from coterie.coordinator.classic.lifecycle import loaded, restore, unload
from coterie.coordinator.classic.quick_rejoin import quick_join, quick_sync
from coterie.coordinator.classic.states import ClassicGroupState
from coterie.coordinator.offsets.offsets_group import HeldBytes

__all__ = [
    "ClassicGroupMember",
    "ClassicGroupState",
    "Effects",
    "Group",
    "HeldBytes",
    "listed",
    "loaded",
    "quick_join",
    "quick_sync",
    "restore",
    "unload",
]
