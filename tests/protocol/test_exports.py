from __future__ import annotations

import coterie.protocol


def test_the_room_exports_exactly_what_it_names() -> None:
    public = {
        name
        for name, value in vars(coterie.protocol).items()
        if getattr(value, "__module__", "").startswith("coterie.")
    }
    assert public | {"Buffer"} == set(coterie.protocol.__all__)
