"""The judge of the soak: what it calls an overlap and a gap."""

from __future__ import annotations

from soak.stretches import Stretch, gaps, overlaps

A = Stretch("a", 0, 1.0, 2.0, 0, 10)
B = Stretch("b", 0, 2.0, 3.0, 10, 20)


def test_two_at_once_are_found_however_long_ago_the_first_began() -> None:
    assert overlaps([B, A]) == []
    late = B._replace(began_s=1.9)
    assert overlaps([A, late]) == [(A, late)]
    long, short = A._replace(ended_s=9.0), A._replace(began_s=1.5, ended_s=1.6)
    assert overlaps([long, short, B]) == [(long, B)]
    assert overlaps([A, late._replace(is_repeated=True)]) == []
    assert overlaps([A, late._replace(partition=1)]) == overlaps([A, late._replace(member="a")]) == []


def test_a_gap_is_one_that_nobody_else_was_in() -> None:
    after = A._replace(began_s=4.0, ended_s=5.0, from_offset=20, until_offset=30)
    assert gaps([A, B, after]) == []
    assert gaps([after, A]) == [(A, after)]
    assert gaps([A, after._replace(from_offset=10)]) == []
    assert gaps([A, after._replace(partition=3)]) == []
