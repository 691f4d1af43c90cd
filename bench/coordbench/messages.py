"""Messages encoded and decoded by kio, at the versions negotiated with the target."""

from __future__ import annotations

import importlib
import io
import struct
from dataclasses import fields
from typing import Any

from kio.serial import entity_reader, entity_writer

from coordbench.types import MisbehavedError

# name: (api key, lowest version encoded here, highest)
APIS = {
    "produce": (0, 9, 9),
    "metadata": (3, 4, 8),
    "offset_commit": (8, 5, 8),
    "offset_fetch": (9, 5, 8),
    "find_coordinator": (10, 1, 4),
    "join_group": (11, 4, 9),
    "heartbeat": (12, 1, 4),
    "leave_group": (13, 1, 5),
    "sync_group": (14, 1, 5),
    "api_versions": (18, 0, 0),
    "create_topics": (19, 2, 5),
}
OPTIONAL_APIS = {"create_topics", "produce"}
PLACEHOLDER = 0x5A17C0DE  # a generation id to be found in an encoded frame and overwritten
CORRELATION_AT = 8  # size int32, api key int16, version int16, then the correlation id


def _filled(entity: type, values: dict[str, Any]) -> Any:
    """An entity from those values that its version has a field for."""
    known = {field.name for field in fields(entity)}
    return entity(**{name: value for name, value in values.items() if name in known})


class Wire:
    """Encodes requests and decodes replies at the versions one target speaks."""

    def __init__(self, at_most: dict[str, int]) -> None:
        self.versions = {"api_versions": 0}
        self._at_most = at_most
        self._readers: dict[str, tuple[Any, Any]] = {}

    def negotiate(self, reply: bytes) -> None:
        offered = {
            int(api.api_key): (int(api.min_version), int(api.max_version))
            for api in self.parse("api_versions", reply).api_keys
        }
        for name, (key, lowest, highest) in APIS.items():
            low, high = offered.get(key, (0, -1))
            version = min(high, highest, self._at_most.get(name, highest))
            if version >= max(low, lowest):
                self.versions[name] = 0 if name == "api_versions" else version
            elif name not in OPTIONAL_APIS:
                raise MisbehavedError(f"{name}: target speaks v{low} to v{high}, this program v{lowest} to v{highest}")

    def has(self, api: str) -> bool:
        return api in self.versions

    def part(self, api: str, entity: str, **values: Any) -> Any:
        """A nested entity of a request."""
        return _filled(getattr(self._module(api, "request"), entity), values)

    def frame(self, api: str, **values: Any) -> bytearray:
        request_type = getattr(self._module(api, "request"), _camel(api) + "Request")
        header = _filled(
            request_type.__header_schema__,
            {
                "request_api_key": APIS[api][0],
                "request_api_version": self.versions[api],
                "correlation_id": 0,
                "client_id": "coordbench",
            },
        )
        buffer = io.BytesIO()
        buffer.write(bytes(4))
        entity_writer(type(header))(buffer, header)
        entity_writer(request_type)(buffer, _filled(request_type, values))
        frame = bytearray(buffer.getvalue())
        struct.pack_into(">i", frame, 0, len(frame) - 4)
        return frame

    def parse(self, api: str, reply: bytes) -> Any:
        if api not in self._readers:
            response_type = getattr(self._module(api, "response"), _camel(api) + "Response")
            self._readers[api] = (
                entity_reader(response_type.__header_schema__),
                entity_reader(response_type),
            )
        read_header, read_body = self._readers[api]
        try:
            _, at = read_header(reply, 0)
            return read_body(reply, at)[0]
        except Exception as problem:
            version = self.versions[api]
            raise MisbehavedError(f"{api} v{version}: reply does not parse: {problem!r}") from problem

    def flexible(self, api: str) -> bool:
        module = self._module(api, "request")
        return bool(getattr(module, _camel(api) + "Request").__flexible__)

    def _module(self, api: str, side: str) -> Any:
        return importlib.import_module(f"kio.schema.{api}.v{self.versions[api]}.{side}")


def _camel(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


def unsigned_varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def subscription(topic: str, index: int, flavour: int) -> bytes:
    """A consumer's subscription (version 0) of about 100 bytes; `flavour` makes it differ."""
    name = topic.encode()
    user_data = b"%08d%d" % (index, flavour)
    user_data = user_data.ljust(88 - len(name), b".")
    return struct.pack(f">hih{len(name)}si", 0, 1, len(name), name, len(user_data)) + user_data


def assignment(topic: str, index: int) -> bytes:
    """A consumer's assignment (version 0) of about 100 bytes; no two members' are equal."""
    name = topic.encode()
    partitions = range(index * 4, index * 4 + 4)
    user_data = b"%08d" % index
    user_data = user_data.ljust(68 - len(name), b".")
    return (
        struct.pack(f">hih{len(name)}si", 0, 1, len(name), name, len(partitions))
        + struct.pack(">4i", *partitions)
        + struct.pack(">i", len(user_data))
        + user_data
    )
