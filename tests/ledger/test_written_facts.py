"""Facts as lines of JSON: what is written is read back, and nothing else is taken for a fact."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie import facts
from coterie.errors import ErrorCode, MalformedError
from coterie.facts import Cause, Fact, MemberLeft
from coterie.ledger import plain, read_fact, write_fact
from coterie.structs import field_names

KINDS = sorted(
    (kind for kind in vars(facts).values() if isinstance(kind, type) and issubclass(kind, Fact)),
    key=lambda kind: kind.__name__,
)


def facts_of(kind: type[Fact]) -> st.SearchStrategy[Fact]:
    """A text is a sequence to hypothesis, but to nobody who tells a fact."""
    hints = get_type_hints(kind)
    lists = {
        name: st.lists(st.from_type(get_args(hints[name])[0]))
        for name in field_names(kind)
        if get_origin(hints[name]) is Sequence
    }
    return st.builds(kind, **lists)


@given(st.data(), st.sampled_from(KINDS))
def test_every_kind_is_read_back_as_it_was_written(data: st.DataObject, kind: type[Fact]) -> None:
    fact = data.draw(facts_of(kind))
    assert _comparable(read_fact(write_fact(fact))) == _comparable(fact)


@given(st.data(), st.sampled_from(KINDS))
def test_what_is_written_out_for_speed_is_plain_json(data: st.DataObject, kind: type[Fact]) -> None:
    fact = data.draw(facts_of(kind))
    written, expected = write_fact(fact), json.dumps(plain(fact), separators=(",", ":")).encode()
    assert json.loads(written) == json.loads(expected)
    assert written == expected or not written.isascii()  # a name may be written with escapes or as it is


def _comparable(fact: Fact | None) -> object:
    """Lists and tuples are the same in JSON."""
    assert fact is not None

    def same(value: object) -> object:
        if isinstance(value, list | tuple):
            return [same(one) for one in value]
        return value

    return type(fact), [same(getattr(fact, name)) for name in field_names(fact)]


def test_a_line_looks_as_it_is_documented() -> None:
    fact = facts.RebalanceStarted(5, "g", Cause.MEMBER_LEFT, "a", "because", 3, ["b"])
    assert json.loads(write_fact(fact)) == {
        "fact": "RebalanceStarted",
        "at_ms": 5,
        "group_id": "g",
        "cause": "member left",
        "member_id": "a",
        "reason": "because",
        "generation_id": 3,
        "waits_for": ["b"],
        "group_type": "classic",
    }
    assert b'"error":"REQUEST_TIMED_OUT"' in write_fact(facts.WriteFailed(1, "g", "x", ErrorCode.REQUEST_TIMED_OUT))


def test_facts_of_release_0_1_0_are_read() -> None:
    fact = facts.RebalanceStarted(5, "g", Cause.MEMBER_LEFT, "a", "because", 3, ["b"])
    assert read_fact(write_fact(fact).replace(b"RebalanceStarted", b"RoundStarted")) == fact


def test_kinds_and_fields_of_a_newer_broker_are_passed_over() -> None:
    assert read_fact(b'{"fact": "MoonRose", "at_ms": 1}') is None
    line = json.loads(write_fact(MemberLeft(1, "g", "a", None, None))) | {"mood": "good"}
    assert read_fact(json.dumps(line).encode()) == MemberLeft(1, "g", "a", None, None)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"[]",
        b"1",
        b'{"fact": 1}',
        b'{"fact": "MemberLeft"}',
        b'{"fact": "MemberLeft", "at_ms": "1", "group_id": "g", "member_id": "a", "instance_id": null, "reason": null}',
        b'{"fact": "AssignmentStored", "at_ms": 1, "group_id": "g", "generation_id": 1, "assignments": {"a": "xyz"}}',
        b'{"fact": "WriteFailed", "at_ms": 1, "group_id": "g", "what": "x", "error": "NO_SUCH_ERROR"}',
        b"\xff\xfe",
    ],
)
def test_what_is_not_a_fact_is_refused(line: bytes) -> None:
    with pytest.raises(MalformedError):
        read_fact(line)


def test_half_a_surrogate_pair_is_written_as_an_escape() -> None:
    fact = MemberLeft(1, "g\ud800", "a", None, None)
    assert b'"g\\ud800"' in write_fact(fact)
    assert read_fact(write_fact(fact)) == fact
