"""Cases as text: what is wrong is said, with the place, and never by a traceback from the depths."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.assignors import Member, Topic
from coterie.assignors.cases import Case, CaseError, grow, join, leave, owned_in, parse_case, read_case, run, score
from coterie.assignors.registry import assignor


def text(**changes: Any) -> str:
    return json.dumps({"id": "x", "topics": {"t": 2}, "members": [{"id": "m", "topics": ["t"]}], **changes})


def member(**changes: Any) -> str:
    return text(members=[{"id": "m", "topics": ["t"], **changes}])


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "not JSON: .* at column 2"),
        ("[" * 100_000, "not JSON that can be read"),
        ("1" * 5000, "not JSON that can be read"),
        ("[]", "a case is an object"),
        (text(topics=None), "topics must be an object"),
        (text(topics={"t": -1}), 'topic "t": the number of partitions must be 0 or more, not -1'),
        (text(topics={"t": True}), "must be 0 or more, not True"),
        (text(topics={"t": 10**9}), "1000000000 partitions are more than"),
        (text(racks={"t": ["a"]}), 'racks of topic "t" must be a list of lists'),
        (text(racks=[1]), "racks must be an object"),
        (text(members={}), "members must be a list"),
        (text(members=[{"topics": []}]), "every member needs an id"),
        (text(members=[{"id": "m", "topics": []}] * 2), "two members have the same id"),
        (member(topics="t"), 'member "m": topics must be a list of strings'),
        (member(rack=1), "rack must be a string"),
        (member(generation="5"), "generation must be a number"),
        (member(user_data_hex="0"), "user_data_hex must be hexadecimal"),
        (member(owned=[["t", 0]]), r"owned must be \[\[topic"),
        (member(owned=[["t", ["0"]]]), r"owned must be \[\[topic"),
        (member(owned=7), r"owned must be \[\[topic"),
    ],
)
def test_what_is_wrong_is_said(line: str, says: str) -> None:
    with pytest.raises(CaseError, match=says):
        parse_case(line)


def test_an_error_knows_the_id_of_its_case() -> None:
    with pytest.raises(CaseError) as caught:
        parse_case(text(topics=None))
    assert caught.value.case_id == "x"


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.floats(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(anything, anything, anything, anything)
def test_no_json_is_a_traceback(topics: Any, racks: Any, owned: Any, generation: Any) -> None:
    raw = {
        "topics": topics,
        "racks": racks,
        "members": [{"id": "m", "topics": ["t"], "owned": owned, "generation": generation}],
    }
    for case in (raw, {**raw, "topics": {"t": 3}}, {**raw, "topics": {"t": 3}, "racks": None}):
        try:
            parsed = read_case(case)
        except CaseError:
            continue
        for name in ("range", "cooperative-sticky"):
            assignor(name).assign(parsed.members, parsed.topics)


CASE = Case(
    "c",
    {"t": Topic(4, [["a"], ["b"], ["a"], ["b"]])},
    [Member("m1", ["t"], rack="a", owned={"t": [0, 1, 2]}), Member("m2", ["t"], rack="b", owned={"t": [3]})],
)


def test_a_score_counts_loads_moves_and_rack_matches() -> None:
    held = owned_in(CASE)
    assert score(held, held, CASE).moves == 0
    told = score({"m1": {"t": [0, 2]}, "m2": {"t": [3, 1]}}, held, CASE)
    assert (told.lightest, told.heaviest, told.squares, told.moves, told.matches, told.unread) == (2, 2, 8, 1, 4, 0)


def test_what_a_dead_member_had_is_not_moved() -> None:
    alone = leave(CASE, "m1")
    assert score({"m2": {"t": [0, 1, 2, 3]}}, owned_in(CASE), alone).moves == 0


def test_what_ifs_change_the_group() -> None:
    changed = grow(join(leave(CASE, "m1"), "m9"), "t", 6)
    assert [(one.id, list(one.topics)) for one in changed.members] == [("m2", ["t"]), ("m9", ["t"])]
    assert changed.topics["t"].partitions == 6
    assert [one.topics for one in join(CASE, "m9", ["u"]).members] == [["t"], ["t"], ["u"]]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda: leave(CASE, "m7"), 'no member "m7" to leave; members are m1, m2'),
        (lambda: join(CASE, "m1"), 'member "m1" is there already'),
        (lambda: grow(CASE, "t", 3), 'topic "t" has 4 partitions and cannot shrink to 3'),
    ],
)
def test_what_cannot_happen_is_refused(change: Any, says: str) -> None:
    with pytest.raises(CaseError, match=says):
        change()


def test_a_cooperative_group_is_run_to_its_end() -> None:
    final, rebalances = run(assignor("cooperative-sticky"), CASE)
    assert rebalances == 2
    assert sorted(len(shares["t"]) for shares in final.values()) == [2, 2]
