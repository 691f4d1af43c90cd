"""Values of Python as JSON: how they are read, how they are written, and their schemas (JSON Schema 2020-12)."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from coterie.errors import CoterieError
from coterie.structs import field_names, is_data

_MOST = 10**9
"""The largest number of seconds or of anything else that is no whole number."""
_MOST_INT = 2**63 - 1
_BASE64 = {
    "type": "object",
    "properties": {"base64": {"type": "string", "contentEncoding": "base64"}},
    "required": ["base64"],
    "additionalProperties": False,
}


def read(kind: Any, value: Any, where: str) -> Any:
    """Return a value of JSON as what an annotation asks for.

    Raises:
        CoterieError: It is something else.
    """
    wanted = _choices(kind)
    if value is None and NoneType in wanted:
        return None
    for one in wanted:
        origin = get_origin(one) or one
        if one in {bytes, str} and isinstance(value, str):
            return value.encode() if one is bytes else value
        if one is bytes and isinstance(value, dict) and list(value) == ["base64"]:
            return _from_base64(value["base64"], where)
        if one is bool and isinstance(value, bool):
            return value
        if one is int and isinstance(value, int) and not isinstance(value, bool):
            if abs(value) > _MOST_INT:
                raise CoterieError(f"{where} is {value}: the most is {_MOST_INT}")
            return value
        if one is float and isinstance(value, int | float) and not isinstance(value, bool):
            if not abs(value) <= _MOST:
                raise CoterieError(f"{where} is {value}: the most is {_MOST}")
            return float(value)
        if _is_mapping(origin) and isinstance(value, dict):
            of = (get_args(one) or (str, Any))[1]
            return {name: read(of, each, f"{where}.{name}") for name, each in value.items()}
        if _is_list(origin) and isinstance(value, list):
            of = (get_args(one) or (Any,))[0]
            return [read(of, each, f"{where}[{number}]") for number, each in enumerate(value)]
        if is_data(one) and isinstance(value, dict):
            return _read_object(one, value, where)
        if one is Any:
            return value
    raise CoterieError(f"{where} is {_shown(value)}: it must be {_in_words(wanted)}")


def _read_object(kind: Any, value: Mapping[str, Any], where: str) -> Any:
    hints = get_type_hints(kind)
    known = field_names(kind)
    for name in value:
        if name not in known:
            raise CoterieError(f"{where} has no {name!r}: it has {', '.join(known)}")
    return kind(**{name: read(hints[name], each, f"{where}.{name}") for name, each in value.items()})


def _from_base64(text: Any, where: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise CoterieError(f"{where}.base64 is {_shown(text)}: it must be base64") from None


def write(value: Any) -> Any:
    """Return a value as `json.dumps` takes it. Bytes that are no UTF-8 are an object with `base64`."""
    if isinstance(value, Enum):
        return value.name if isinstance(value.value, int) else value.value
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        data = bytes(value)
        try:
            return data.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(data).decode()}
    if is_data(value) and not isinstance(value, type):
        return {name: write(getattr(value, name)) for name in field_names(value) if not name.startswith("_")}
    if isinstance(value, Mapping):
        return {str(write(name)): write(each) for name, each in value.items()}
    if hasattr(value, "_asdict"):
        return write(value._asdict())
    if isinstance(value, Iterable):
        return [write(each) for each in value]
    return str(value)


def schema_of(kind: Any, components: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an annotation. Classes with fields are put into `components`, by their names."""
    wanted = _choices(kind)
    if Any in wanted:
        return {}
    schemas = [_plain_schema(one, components) for one in wanted]
    if len(schemas) == 1:
        return schemas[0]
    if all(list(one) == ["type"] for one in schemas):
        return {"type": [one["type"] for one in schemas]}
    return {"anyOf": schemas}


def _plain_schema(kind: Any, components: dict[str, Any]) -> dict[str, Any]:
    origin = get_origin(kind) or kind
    if kind is bytes:
        return {"anyOf": [{"type": "string"}, _BASE64]}
    names = {str: "string", bool: "boolean", int: "integer", float: "number", NoneType: "null"}
    if kind in names:
        return {"type": names[kind]}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return {"type": "string", "enum": [write(one) for one in kind]}
    if is_data(kind) or (isinstance(kind, type) and hasattr(kind, "_fields")):
        return _object_schema(kind, components)
    if _is_mapping(origin):
        of = (get_args(kind) or (str, Any))[1]
        return {"type": "object", "additionalProperties": schema_of(of, components)}
    if _is_list(origin):
        of = (get_args(kind) or (Any,))[0]
        return {"type": "array", "items": schema_of(of, components)}
    raise AssertionError(f"{kind!r} has no schema")


def _object_schema(kind: Any, components: dict[str, Any]) -> dict[str, Any]:
    name = kind.__name__
    if name not in components:
        components[name] = {}  # it may have itself as a field
        hints = {each: hint for each, hint in get_type_hints(kind).items() if not each.startswith("_")}
        names = field_names(kind) if is_data(kind) else kind._fields
        shown = [each for each in names if not each.startswith("_")]
        components[name] = {
            "type": "object",
            "description": (kind.__doc__ or name).partition("\n")[0],
            "properties": {each: schema_of(hints[each], components) for each in shown},
            "required": shown,
        }
    return {"$ref": f"#/components/schemas/{name}"}


def _choices(kind: Any) -> tuple[Any, ...]:
    """Return the types of a union that JSON tells apart. Where a name in Kafka's spelling may be given, it is text."""
    if get_origin(kind) not in {Union, UnionType}:
        return (kind,)
    found = [
        one for one in get_args(kind) if not (isinstance(one, type) and issubclass(one, Enum) and str in get_args(kind))
    ]
    if bytes in found and str in found:
        found.remove(str)
    return tuple(found)


def _is_mapping(origin: Any) -> bool:
    return isinstance(origin, type) and issubclass(origin, Mapping)


def _is_list(origin: Any) -> bool:
    return isinstance(origin, type) and issubclass(origin, Sequence | Iterable) and origin not in {str, bytes}


def _in_words(wanted: Sequence[Any]) -> str:
    words = {str: "text", bool: "true or false", int: "a whole number", float: "a number", NoneType: "null"}
    words[bytes] = 'text or {"base64": "..."}'
    said = [
        words.get(one) or ("an object" if _is_mapping(get_origin(one) or one) or is_data(one) else "a list")
        for one in wanted
    ]
    return " or ".join(said)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:100]}..."
