from __future__ import annotations

import coterie.sim
from coterie.sim import invariants
from coterie.sim.world import Observer


def test_the_room_exports_exactly_what_it_names() -> None:
    public = {
        name for name, value in vars(coterie.sim).items() if getattr(value, "__module__", "").startswith("coterie.")
    }
    assert public == set(coterie.sim.__all__)


def test_every_invariant_has_a_name_of_its_own() -> None:
    assert all(issubclass(one, Observer) for one in invariants.INVARIANTS)
    assert len({one.name for one in invariants.INVARIANTS}) == len(invariants.INVARIANTS)
