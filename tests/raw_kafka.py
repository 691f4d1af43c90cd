"""Single requests to any broker, any version, with nothing done behind the caller's back.

    with RawConnection(kafka.bootstrap) as connection:
        answer = connection.ask("find_coordinator", 6, key_type=0, coordinator_keys=("orders",))

Field names are kio's. Nested entities are given as dicts, durations as milliseconds. `send` and `receive` are apart, so
that a test can park a request; a broker answers the requests of one connection in order.
"""

from __future__ import annotations

import io
import socket
import struct
from dataclasses import fields
from datetime import timedelta
from functools import cache
from types import TracebackType
from typing import Any, Literal, Self, get_args, get_type_hints

from kio.index import load_entity_schema
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

__all__ = ["RawConnection", "fields_of", "frame_of", "read_answer"]


class RawConnection:
    def __init__(self, bootstrap: str, client_id: str | None = "raw", timeout_seconds: float = 60) -> None:
        host, _, port = bootstrap.rpartition(":")
        self.client_id = client_id
        self._socket = socket.create_connection((host, int(port)), timeout=timeout_seconds)
        self._waiting: list[tuple[str, int]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def ask(self, api: str, version: int, **values: Any) -> Any:
        self.send(api, version, **values)
        return self.receive()

    def send(self, api: str, version: int, **values: Any) -> None:
        frame = frame_of(api, version, len(self._waiting), self.client_id, values)
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)
        self._waiting.append((api, version))

    def receive(self) -> Any:
        """The answer to the oldest request that has none yet."""
        api, version = self._waiting.pop(0)
        (size,) = struct.unpack(">i", self._read(4))
        return read_answer(api, version, self._read(size))

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            if not part:
                raise ConnectionError(f"the broker closed the connection; waiting for {self._waiting}")
            data += part
        return data


def frame_of(api: str, version: int, correlation_id: int, client_id: str | None, values: dict[str, Any]) -> bytes:
    """A request as it travels, without its size."""
    schema = _schema(api, version, EntityType.request)
    header = schema.__header_schema__(
        request_api_key=schema.__api_key__,
        request_api_version=schema.__version__,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    frame = io.BytesIO()
    entity_writer(schema.__header_schema__)(frame, header)
    entity_writer(schema)(frame, _entity(schema, values))
    return frame.getvalue()


def read_answer(api: str, version: int, frame: bytes) -> Any:
    schema = _schema(api, version, EntityType.response)
    _, header_size = entity_reader(schema.__header_schema__)(frame, 0)
    answer, _ = entity_reader(schema)(frame, header_size)
    return answer


def fields_of(api: str, version: int) -> frozenset[str]:
    """What a request of this version can say."""
    return frozenset(_hints(_schema(api, version, EntityType.request)))


@cache
def _schema(api: str, version: int, kind: Literal[EntityType.request, EntityType.response]) -> Any:
    return load_entity_schema(api, version, kind)


@cache
def _hints(schema: Any) -> dict[str, Any]:
    hints = get_type_hints(schema)
    return {field.name: hints[field.name] for field in fields(schema)}


def _entity(schema: Any, values: dict[str, Any]) -> Any:
    hints = _hints(schema)
    unknown = values.keys() - hints.keys()
    if unknown:
        raise TypeError(f"{schema.__name__} has no {', '.join(unknown)}; it has {', '.join(hints)}")
    return schema(**{name: _value(hints[name], value) for name, value in values.items()})


def _value(hint: Any, value: Any) -> Any:
    """Dicts become the entities the schema asks for, at any depth, and numbers durations."""
    if isinstance(value, (tuple, list)):
        return tuple(_value(_element(hint), each) for each in value)
    if isinstance(value, dict):
        return _entity(_one_of(hint, lambda each: hasattr(each, "__flexible__")), value)
    if isinstance(value, int) and "Timedelta" in repr(hint):
        return timedelta(milliseconds=value)
    return value


@cache
def _element(hint: Any) -> Any:
    return get_args(_one_of(hint, lambda each: bool(get_args(each))))[0]


def _one_of(hint: Any, wanted: Any) -> Any:
    """The wanted part of `X` or of `X | None`."""
    return next(each for each in (hint, *get_args(hint)) if wanted(each) and type(None) not in get_args(each))
