"""The worked example runs, and does what its text says."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from coterie.assignors import Assignor, Member, Topic

EXAMPLE = Path(__file__).parents[2] / "examples" / "lag_aware_assignor.py"


@pytest.fixture
def lag_aware() -> Any:
    return runpy.run_path(str(EXAMPLE))["LagAware"]


def test_it_prints_two_members_of_about_the_same_lag(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    assert capsys.readouterr().out.splitlines() == [
        "m1: {'orders': [0]}, 1000 behind",
        "m2: {'orders': [1, 2, 3]}, 900 behind",
    ]


def test_without_lag_it_deals_evenly_and_to_subscribers(lag_aware: Any) -> None:
    one: Assignor = lag_aware()
    members = [Member("m1", ["t"]), Member("m2", ["t"]), Member("m3", ["u"]), Member("m4", [])]
    answer = one.assign(members, {"t": Topic(6), "u": Topic(2), "unread": Topic(9)})
    assert {member: {t: len(ids) for t, ids in shares.items()} for member, shares in answer.items()} == {
        "m1": {"t": 3},
        "m2": {"t": 3},
        "m3": {"u": 2},
        "m4": {},
    }
