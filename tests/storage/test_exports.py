from __future__ import annotations

import coterie.storage


def test_the_room_exports_exactly_what_it_names() -> None:
    public = {
        name for name, value in vars(coterie.storage).items() if getattr(value, "__module__", "").startswith("coterie.")
    }
    assert public | {"SLICE", "UNLIMITED"} == set(coterie.storage.__all__)
