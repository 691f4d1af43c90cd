"""Write facts as JSON and read them: the format of the topic `__coterie_facts`.

`{"fact": "MemberLeft", "at_ms": ..., ...}`: the fields are those of the classes in `coterie.facts`. Bytes are in hex,
error codes and causes are names. A reader ignores kinds and fields that it does not know, so an older one can read what
a newer broker wrote.
"""

from __future__ import annotations

import json
import types
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

from coterie import facts
from coterie.errors import ErrorCode, MalformedError
from coterie.facts import Cause, Fact
from coterie.structs import field_names, to_json

FACTS_TOPIC = "__coterie_facts"
"""The topic in which the broker stores facts."""

_KINDS: Mapping[str, type[Fact]] = {
    name: kind for name, kind in vars(facts).items() if isinstance(kind, type) and issubclass(kind, Fact)
} | {"RoundStarted": facts.RebalanceStarted}
"""Facts by their names, and by the names that release 0.1.0 wrote."""


def write_fact(fact: Fact) -> bytes:
    """Return `plain(fact)` as JSON. It must be fast: every group has some in every rebalance."""
    kind = type(fact)
    start = _start(kind)
    try:
        if start is not None:
            return start + to_json(fact)[1:]
        named = {"fact": kind.__name__}
        for name, as_json in _fields(kind):
            value = getattr(fact, name)
            named[name] = value if as_json is None else as_json(value)
        return to_json(named)
    except UnicodeEncodeError:  # half a surrogate pair in a name is written as an escape
        return json.dumps(plain(fact), separators=(",", ":")).encode()


@cache
def _start(kind: type[Fact]) -> bytes | None:
    """Return the first bytes of a fact that is JSON as it is; None: it has bytes or an error code."""
    types = str(get_type_hints(kind))
    return None if "bytes" in types or ErrorCode.__name__ in types else f'{{"fact":"{kind.__name__}",'.encode()


@cache
def _fields(kind: type[Fact]) -> list[tuple[str, Callable[[Any], Any] | None]]:
    """Return the fields of a fact, each with what makes its value one of JSON; None: it is one."""
    hints = get_type_hints(kind)
    return [(name, _AS_JSON.get(hints[name], _plain)) for name in field_names(kind)]


def _hex_by_name(value: Mapping[str, bytes]) -> dict[str, str]:
    return {name: one.hex() for name, one in value.items()}


def _hex_with_names(value: Sequence[tuple[bytes, list[str]]]) -> list[tuple[str, list[str]]]:
    return [(one.hex(), names) for one, names in value]


_AS_JSON: Mapping[Any, Callable[[Any], Any] | None] = {
    int: None,
    str: None,
    bool: None,
    Mapping[str, int]: None,
    Mapping[str, bytes]: _hex_by_name,
    Sequence[tuple[bytes, list[str]]]: _hex_with_names,
}
"""What makes a value of a type one of JSON: those of the facts that every rebalance has. Others go by `_plain`."""


def plain(fact: Fact) -> dict[str, Any]:
    """Return a fact as values of JSON."""
    return {"fact": type(fact).__name__, **{name: _plain(getattr(fact, name)) for name in field_names(type(fact))}}


def read_fact(data: bytes) -> Fact | None:
    """Read a fact. Returns None for an unknown kind, which a newer broker may write."""
    try:
        found = json.loads(data)
    except ValueError as error:
        raise MalformedError(f"a fact is a JSON object on a line: {error}") from None
    if not isinstance(found, dict) or not isinstance(found.get("fact"), str):
        raise MalformedError('a fact is a JSON object that names its kind under "fact"')
    kind = _KINDS.get(found["fact"])
    if kind is None:
        return None
    try:
        return kind(**{name: read(found[name]) for name, read in _readers(kind.__name__).items() if name in found})
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise MalformedError(f"{found['fact']}: a field is not what it should be: {error!r}") from None


_AS_IS = frozenset({str, int, bool, type(None)})


def _plain(value: Any) -> Any:
    kind = type(value)
    if kind in _AS_IS:
        return value
    if isinstance(value, bytes):
        return value.hex()
    if kind is dict or isinstance(value, Mapping):
        return {str(key): one.hex() if type(one) is bytes else _plain(one) for key, one in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(one) for one in value]
    if isinstance(value, ErrorCode):
        return value.name
    return value


_Reader = Callable[[Any], Any]
"""Reads a value of JSON and checks its type."""


@cache
def _readers(kind: str) -> Mapping[str, _Reader]:
    hints = get_type_hints(_KINDS[kind])
    return {name: _reader(hints[name]) for name in field_names(_KINDS[kind])}


def _reader(hint: Any) -> _Reader:
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        (of_value,) = (_reader(one) for one in inner if one is not type(None))
        return lambda value: None if value is None else of_value(value)
    if origin is Mapping:
        of_key, of_value = _reader(inner[0]), _reader(inner[1])
        from_text = int if inner[0] is int else of_key  # keys of JSON are strings
        return lambda value: {from_text(key): of_value(one) for key, one in value.items()}
    if origin in (Sequence, list):
        of_one = _reader(inner[0])
        return lambda value: [of_one(one) for one in value]
    if origin is tuple:
        readers = [_reader(one) for one in inner]
        return lambda value: tuple(read(one) for read, one in zip(readers, value, strict=True))
    return _SIMPLE[hint]


def _exactly(kind: type) -> _Reader:
    def read(value: Any) -> Any:
        if type(value) is not kind:
            raise TypeError(f"{value!r} is not {kind.__name__}")
        return value

    return read


def _number(value: Any) -> float:
    if type(value) not in (int, float):
        raise TypeError(f"{value!r} is not a number")
    return float(value)


_SIMPLE: Mapping[Any, _Reader] = {
    str: _exactly(str),
    int: _exactly(int),
    bool: _exactly(bool),
    float: _number,
    bytes: bytes.fromhex,
    ErrorCode: lambda name: ErrorCode[name],
    Cause: Cause,
}
