"""Assignors by name, ours and yours."""

from __future__ import annotations

from functools import partial
from importlib.metadata import EntryPoint, EntryPoints

import pytest

from coterie.assignors import Assignor, Range, UnknownAssignorError, assignor, assignor_names, registry

KAFKAS = ["range", "roundrobin", "sticky", "cooperative-sticky"]


class Mine(Assignor):
    name = "mine"


@pytest.fixture
def plugged_in(monkeypatch: pytest.MonkeyPatch) -> None:
    here = __name__
    points = EntryPoints(
        [
            EntryPoint("mine", f"{here}:Mine", registry.GROUP),
            EntryPoint("range", f"{here}:Mine", registry.GROUP),
            EntryPoint("wrong", f"{here}:KAFKAS", registry.GROUP),
        ]
    )
    monkeypatch.setattr(registry, "_entry_points", partial(points.select, group=registry.GROUP))


def test_kafkas_four_are_there_under_kafkas_names() -> None:
    assert assignor_names()[:4] == KAFKAS
    assert [assignor(name).name for name in KAFKAS] == KAFKAS


@pytest.mark.usefixtures("plugged_in")
def test_your_own_is_found_by_its_entry_point() -> None:
    assert "mine" in assignor_names()
    assert assignor("mine").name == "mine"


@pytest.mark.usefixtures("plugged_in")
def test_a_name_of_kafkas_always_means_kafkas() -> None:
    assert isinstance(assignor("range"), Range)


@pytest.mark.usefixtures("plugged_in")
def test_an_entry_point_that_is_no_assignor_is_refused_with_the_rule() -> None:
    with pytest.raises(UnknownAssignorError, match=r"subclass of, coterie\.assignors\.Assignor"):
        assignor("wrong")


def test_an_unknown_name_says_what_is_known_and_what_was_meant() -> None:
    with pytest.raises(UnknownAssignorError, match=r'unknown assignor "stiky".*did you mean "sticky"'):
        assignor("stiky")


def test_a_bare_assignor_does_nothing_by_itself() -> None:
    assert Mine().user_data([], {}, 1) is None
    with pytest.raises(NotImplementedError):
        Mine().assign([], {})
