"""OpenTelemetry's MetricsData as clients push it, written with protobuf's own rules."""

from __future__ import annotations

from collections.abc import Mapping
from struct import pack

__all__ = ["counter", "gauge", "metrics_data"]


def metrics_data(labels: Mapping[str, str], *metrics: bytes) -> bytes:
    """Labels of the resource, and metrics of one scope."""
    resource = b"".join(_field(1, _attribute(key, value)) for key, value in labels.items())
    scope = b"".join(_field(2, metric) for metric in metrics)
    return _field(1, _field(1, resource) + _field(2, scope))


def gauge(name: str, value: float) -> bytes:
    return _field(1, name.encode()) + _field(5, _field(1, _point(value)))


def counter(name: str, value: float, *, is_delta: bool = True) -> bytes:
    total = _field(1, _point(value)) + bytes([2 << 3, 1 if is_delta else 2]) + bytes([3 << 3, 1])
    return _field(1, name.encode()) + _field(7, total)


def _point(value: float) -> bytes:
    time = bytes([3 << 3 | 1]) + bytes(8)
    if isinstance(value, int):
        return time + bytes([6 << 3 | 1]) + pack("<q", value)
    return time + bytes([4 << 3 | 1]) + pack("<d", value)


def _attribute(key: str, value: str) -> bytes:
    return _field(1, key.encode()) + _field(2, _field(1, value.encode()))


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    low = []
    while value > 0x7F:
        low.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*low, value])
