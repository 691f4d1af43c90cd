"""Read OpenTelemetry's MetricsData (protobuf), which clients push (KIP-714): the numbers, their labels, nothing else.

The bytes come from anybody. So the number of fields that are looked at is limited, lengths are checked before they are
followed, and whatever is not as it should be is a `MalformedError`. Only metrics are looked into whose name is wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import IntEnum
from math import isfinite
from struct import Struct
from typing import Final, NamedTuple

from coterie.errors import MalformedError
from coterie.protocol.buffer import Buffer

MOST_FIELDS: Final = 50_000
"""Fields that are looked at in one message. A Java client with all metrics sends about a tenth of that."""
MOST_LABELS: Final = 100
"""Labels of a resource or a number; the others are left out."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_SIZES: Final = {_FIXED64: 8, _FIXED32: 4}
_DOUBLE, _SFIXED64 = Struct("<d"), Struct("<q")

# The numbers of the fields, in opentelemetry.proto.metrics.v1, resource.v1 and common.v1.
_RESOURCE_METRICS = 1
_RESOURCE, _SCOPE_METRICS = 1, 2
_RESOURCE_ATTRIBUTES = 1
_METRICS = 2
_NAME, _GAUGE, _SUM = 1, 5, 7
_DATA_POINTS, _TEMPORALITY = 1, 2
_AS_DOUBLE, _AS_INT, _POINT_ATTRIBUTES = 4, 6, 7
_KEY, _VALUE = 1, 2
_STRING_VALUE = 1


class Temporality(IntEnum):
    """The kind of a number: a gauge, what was added since the last push, or a sum since the start."""

    GAUGE = 0
    DELTA = 1
    CUMULATIVE = 2


class NumberPoint(NamedTuple):
    """A number of one metric. A number that is not finite is left out: the client has none."""

    name: str
    value: float
    temporality: Temporality
    labels: Mapping[str, str]
    """The labels of the resource, and of the number itself, if they are text."""


_Field = tuple[int, int, int | memoryview]
"""Number, wire type and content; the bytes of a fixed or a length-delimited field."""


class _Reader:
    def __init__(self) -> None:
        self._left = MOST_FIELDS

    def fields(self, data: memoryview) -> Iterator[_Field]:
        """Yield the fields of a message."""
        at, end = 0, len(data)
        while at < end:
            self._left -= 1
            if self._left < 0:
                raise MalformedError(f"metrics with more than {MOST_FIELDS} fields")
            tag, at = _varint(data, at)
            number, kind = tag >> 3, tag & 7
            if kind == _VARINT:
                value, at = _varint(data, at)
                yield number, kind, value
                continue
            if kind == _BYTES:
                size, at = _varint(data, at)
            elif kind in _SIZES:
                size = _SIZES[kind]
            else:
                raise MalformedError(f"a field of wire type {kind}, which protobuf does not have")
            if size > end - at:
                raise MalformedError(f"a field of {size} bytes where {end - at} are left")
            yield number, kind, data[at : at + size]
            at += size

    def messages(self, data: memoryview, number: int) -> Iterator[memoryview]:
        """Yield the messages of one field of a message."""
        for found, kind, content in self.fields(data):
            if found == number and kind == _BYTES:
                assert isinstance(content, memoryview)  # it is, by its wire type
                yield content

    def labels(self, data: memoryview, number: int) -> dict[str, str]:
        """Return the attributes of a resource or a number that are text."""
        found: dict[str, str] = {}
        for pair in self.messages(data, number):
            key = value = None
            for field, kind, content in self.fields(pair):
                if kind == _BYTES and isinstance(content, memoryview):
                    if field == _KEY:
                        key = _text(content)
                    elif field == _VALUE:
                        value = next((_text(one) for one in self.messages(content, _STRING_VALUE)), None)
            if key is not None and value is not None and len(found) < MOST_LABELS:
                found[key] = value
        return found


def read_metrics(data: Buffer, is_wanted: Callable[[str], bool]) -> list[NumberPoint]:
    """Return the numbers of the wanted metrics. Raises `MalformedError`."""
    reader = _Reader()
    found: list[NumberPoint] = []
    for resource_metrics in reader.messages(memoryview(data), _RESOURCE_METRICS):
        resource: dict[str, str] = {}
        scopes = []
        for number, kind, content in reader.fields(resource_metrics):
            if kind == _BYTES and isinstance(content, memoryview):
                if number == _RESOURCE:
                    resource = reader.labels(content, _RESOURCE_ATTRIBUTES)
                elif number == _SCOPE_METRICS:
                    scopes.append(content)
        for scope in scopes:
            for metric in reader.messages(scope, _METRICS):
                found += _metric(reader, metric, resource, is_wanted)
    return found


def _metric(
    reader: _Reader, data: memoryview, resource: Mapping[str, str], is_wanted: Callable[[str], bool]
) -> Iterator[NumberPoint]:
    name = ""
    kinds: list[tuple[int, memoryview]] = []
    for number, kind, content in reader.fields(data):
        if kind == _BYTES and isinstance(content, memoryview):
            if number == _NAME:
                name = _text(content)
            elif number in (_GAUGE, _SUM):
                kinds.append((number, content))
    if not is_wanted(name):
        return
    for number, content in kinds:
        points, temporality = [], Temporality.GAUGE if number == _GAUGE else Temporality.CUMULATIVE
        for field, kind, value in reader.fields(content):
            if field == _DATA_POINTS and kind == _BYTES and isinstance(value, memoryview):
                points.append(value)
            elif field == _TEMPORALITY and number == _SUM and value == Temporality.DELTA:
                temporality = Temporality.DELTA
        for point in points:
            value_of = _number(reader, point)
            if value_of is not None:
                labels = reader.labels(point, _POINT_ATTRIBUTES)
                yield NumberPoint(name, value_of, temporality, {**resource, **labels})


def _number(reader: _Reader, point: memoryview) -> float | None:
    """Return the value of a number data point; None if it has none, or none that is finite."""
    found: float | None = None
    for field, kind, content in reader.fields(point):
        if kind == _FIXED64 and isinstance(content, memoryview):
            if field == _AS_DOUBLE:
                (found,) = _DOUBLE.unpack(content)
            elif field == _AS_INT:
                (found,) = _SFIXED64.unpack(content)
    return found if found is not None and isfinite(found) else None


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """Return a varint of at most ten bytes, and where it ends."""
    value = shift = 0
    while True:
        if at >= len(data):
            raise MalformedError("a varint that does not end")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise MalformedError("a varint of more than ten bytes")


def _text(content: memoryview) -> str:
    return bytes(content).decode("utf-8", "replace")
