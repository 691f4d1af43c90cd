from __future__ import annotations

import coterie.log


def test_the_room_exports_exactly_what_it_names() -> None:
    public = {
        name for name, value in vars(coterie.log).items() if getattr(value, "__module__", "").startswith("coterie.")
    }
    assert public | {"SLICE", "UNLIMITED"} == set(coterie.log.__all__)
