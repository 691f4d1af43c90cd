"""Who owned what, and what it came to."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from coterie.history.design_costs import OwnershipTimeline, OwnersInterval, Total

ONE, TWO = ("t", 0), ("t", 1)


def owning() -> OwnershipTimeline:
    found = OwnershipTimeline("g", [ONE, TWO])
    found.added("a", 0)
    found.added("b", 0)
    return found


def test_two_owners_and_none_are_moments_with_a_beginning_and_an_end() -> None:
    found = owning()
    found.owns("a", [ONE, TWO], 10)
    found.owns("b", [ONE], 30)
    found.owns("a", [TWO], 50)
    assert found.two_owners(0, 100) == [OwnersInterval(ONE, ("a", "b"), 30, 50)]
    assert found.unassigned(0, 100) == [OwnersInterval(ONE, (), 0, 10), OwnersInterval(TWO, (), 0, 10)]
    assert Total.of(found.unassigned(0, 100)) == Total(2, 20)
    assert found.two_owners(40, 100) == [OwnersInterval(ONE, ("a", "b"), 40, 50)], "only what is in that time"


def test_it_is_at_rest_when_everything_has_one_owner_and_everybody_owns_something() -> None:
    found = owning()
    found.owns("a", [ONE, TWO], 10)
    assert not found.is_stable, "b has nothing"
    found.owns("a", [ONE], 20)
    found.owns("b", [TWO], 30)
    assert found.is_stable and found.stable_since(0, 100) == 30
    assert found.stable_since(40, 100) == 40, "it was never disturbed"
    found.removed("b", 60)
    assert found.stable_since(40, 100) is None
    found.owns("a", [ONE, TWO], 80)
    assert found.stable_since(40, 100) == 80


def test_who_goes_owns_nothing_and_who_never_came_owns_nothing() -> None:
    found = owning()
    found.owns("a", [ONE], 10)
    found.removed("a", 20)
    found.owns("a", [ONE], 30)
    assert [(one.owner, one.began_ms, one.ended_ms) for one in found.intervals] == [("a", 10, 20)]


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.frozensets(st.sampled_from([ONE, TWO])), st.integers(1, 5)), max_size=12
    )
)
def test_the_sums_are_those_of_looking_at_every_moment(
    steps: list[tuple[str, frozenset[tuple[str, int]], int]],
) -> None:
    found = owning()
    held: dict[str, frozenset[tuple[str, int]]] = {"a": frozenset(), "b": frozenset()}
    now = two = none = 0
    for who, what, lasts in steps:
        found.owns(who, what, now)
        held[who] = what
        for one in (ONE, TWO):
            owners = sum(one in mine for mine in held.values())
            two += lasts * (owners == 2)
            none += lasts * (owners == 0)
        now += lasts
    assert (Total.of(found.two_owners(0, now)).ms, Total.of(found.unassigned(0, now)).ms) == (two, none)
