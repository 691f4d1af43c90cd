"""Data structs: the classes of plain data in this package, such as requests, events, effects and facts.

    class Heartbeat(DataStruct, frozen=True):
        member_id: str
        generation_id: int = -1

They are msgspec's, and are written like dataclasses. Defining one takes a tenth of the time of a dataclass, and there
are 700 of them to define when a broker starts. Making a frozen one takes a tenth of the time, too. A class needs
`dataclass` if one of its fields is left out of comparisons or of its repr, or is set after the others.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

from msgspec import NODEFAULT as REQUIRED
from msgspec import Struct as DataStruct
from msgspec import ValidationError as InvalidDataError
from msgspec import convert, field, json, structs

__all__ = [
    "REQUIRED",
    "DataStruct",
    "InvalidDataError",
    "asdict",
    "convert",
    "default_of",
    "field",
    "field_names",
    "is_data",
    "replace",
    "to_json",
]

T = TypeVar("T")


def is_data(value: Any) -> bool:
    """Return whether it is a data struct or a dataclass, or an instance of one."""
    return hasattr(value, "__struct_fields__") or dataclasses.is_dataclass(value)


def field_names(data: Any) -> tuple[str, ...]:
    """Return the names of the fields of a data struct or a dataclass, in their order."""
    names: tuple[str, ...] | None = getattr(data, "__struct_fields__", None)
    return tuple(each.name for each in dataclasses.fields(data)) if names is None else names


def default_of(struct: Any, name: str) -> Any:
    """Return the default of a field of a data struct, or `REQUIRED`."""
    names, defaults = struct.__struct_fields__, struct.__struct_defaults__
    at = names.index(name) - (len(names) - len(defaults))
    return defaults[at] if at >= 0 else REQUIRED


def replace(data: T, /, **changes: Any) -> T:
    """Return a copy of a data struct or a dataclass, with other values of these fields."""
    copied: Any = structs.replace if isinstance(data, DataStruct) else dataclasses.replace
    changed: T = copied(data, **changes)
    return changed


def asdict(data: Any) -> Any:
    """Return a data struct or a dataclass as a dict of its fields, and so those inside it, in lists and dicts too."""
    if is_data(data) and not isinstance(data, type):
        return {name: asdict(getattr(data, name)) for name in field_names(data)}
    if isinstance(data, dict):
        return {asdict(key): asdict(value) for key, value in data.items()}
    if type(data) in {list, tuple}:
        return type(data)(map(asdict, data))
    return data


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else list(value)


to_json = json.Encoder(enc_hook=_plain).encode
"""Return a data struct as JSON. Bytes are written in base64, an enum as its value, any mapping or sequence as such.

It raises a UnicodeEncodeError for half a surrogate pair.
"""
