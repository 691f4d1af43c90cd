"""kio's messages beside ours: which class is which, random values of kio's, and comparing the two.

kio knows the schemas of Apache Kafka, generated from its sources. It is the judge here, and only here: its native
reader ends the process when a compact array announces 2^32 - 1 elements, so it may not see a stranger's bytes.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from random import Random  # noqa: TID251  (hypothesis throws the rng)
from typing import Any, get_args, get_origin, get_type_hints
from uuid import UUID

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_writer

from coterie.protocol.apis import APIS, Api
from coterie.protocol.codec.codec import codec
from coterie.structs import field_names, is_data

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DIRECTIONS = ("Request", "Response")
TEXTS = ("", "a", "orders", "größe", "x" * 126, "y" * 127, "z" * 128, "long " * 60, "\U0001f40d")
NUMBERS = {
    "int8": (0, 1, -1, 127, -128),
    "int16": (0, 1, -1, 2**15 - 1, -(2**15)),
    "int32": (0, 1, -1, 7, 2**31 - 1, -(2**31)),
    "int64": (0, 1, -1, 99, 2**63 - 1, -(2**63)),
    "uint16": (0, 1, 9092, 2**16 - 1),
    "float64": (0.0, 1.5, -2.25, 1e300),
    "timedelta_i32": (0, 1, -1, 30_000, 2**31 - 1, -(2**31)),
    "timedelta_i64": (0, 1, -1, 86_400_000, 2**50),
}


def served(api: Api) -> list[int]:
    return [version for version in api.versions if api.serves(version)]


def our_message(api: Api, direction: str) -> Any:
    """The message as it is on the wire; `_Request` where the version-free one has another shape."""
    module = api.module
    return getattr(module, f"_{direction}", None) or getattr(module, direction)


def our_codec(api: Api, direction: str) -> tuple[Callable[[bytes, int, int], Any], Callable[[Any, int], bytes]]:
    return codec(api, our_message(api, direction))


def kio_message(api: Api, version: int, direction: str) -> Any:
    load: Any = load_request_schema if direction == "Request" else load_response_schema
    return load(api.key, version)


def every_message() -> Iterator[tuple[Api, int, str]]:
    for api in APIS:
        for version in served(api):
            for direction in DIRECTIONS:
                yield api, version, direction


def kio_bytes(value: Any) -> bytes:
    with io.BytesIO() as out:
        entity_writer(type(value))(out, value)
        return out.getvalue()


class KioField:
    """What kio's annotations say about a field."""

    def __init__(self, field: Field[Any], hint: Any) -> None:
        self.name = field.name
        self.kafka_type: str = field.metadata.get("kafka_type", "")
        self.tag = field.metadata.get("tag")
        self.default = field.default
        parts = get_args(hint)
        self.optional = type(None) in parts
        inner = next((part for part in parts if part is not type(None)), hint) if self.optional else hint
        self.array = get_origin(inner) is tuple
        element = get_args(inner)[0] if self.array else inner
        self.message = element if is_dataclass(element) else None


def kio_fields(message: Any) -> list[KioField]:
    hints = get_type_hints(message)
    return [KioField(field, hints[field.name]) for field in fields(message)]


# --- random values of kio's -------------------------------------------------------------------------------------------


def random_message(message: Any, rng: Random) -> Any:
    return message(**{field.name: _random_field(field, rng) for field in kio_fields(message)})


def _random_field(field: KioField, rng: Random) -> Any:
    if field.default is not MISSING and field.tag is not None and rng.random() < 0.5:
        return field.default
    nullable = field.optional and field.tag is None and field.kafka_type != "datetime_i64"
    if nullable and rng.random() < 0.3:
        return None
    if field.array:
        return tuple(_random_value(field, rng) for _ in range(rng.choice((0, 1, 2, 3))))
    return _random_value(field, rng)


def _random_value(field: KioField, rng: Random) -> Any:
    kind = field.kafka_type
    if field.message is not None:
        return random_message(field.message, rng)
    if kind in {"timedelta_i32", "timedelta_i64"}:
        return timedelta(milliseconds=rng.choice(NUMBERS[kind]))
    if kind in NUMBERS:
        return rng.choice(NUMBERS[kind])
    if kind == "datetime_i64":
        time = EPOCH + timedelta(milliseconds=rng.choice((0, 1, 1_700_000_000_123)))
        return rng.choice((None, time)) if field.optional else time
    others: dict[Any, Callable[[], Any]] = {
        "string": lambda: rng.choice(TEXTS),
        "bytes": lambda: rng.randbytes(rng.choice((0, 1, 127, 300))),
        "records": lambda: rng.randbytes(rng.choice((0, 61, 20_000))),
        "bool": lambda: rng.random() < 0.5,
        "error_code": lambda: rng.choice(list(KioErrorCode)),
        "uuid": lambda: rng.choice((None, UUID(bytes=rng.randbytes(16)))),
    }
    return others[kind]()


# --- comparing --------------------------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """Either's value as numbers, texts, bytes and lists, field by field in the order of the wire."""
    if is_data(value) and not isinstance(value, type):
        return [plain(getattr(value, name)) for name in field_names(value)]
    if isinstance(value, list | tuple):
        return [plain(element) for element in value]
    if isinstance(value, timedelta):
        return round(value.total_seconds() * 1000)
    if isinstance(value, datetime):
        return round((value - EPOCH).total_seconds() * 1000)
    if isinstance(value, memoryview):
        return bytes(value)
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else value
