"""ApiVersions: the supported APIs and versions; clients ask first (KIP-35, KIP-511, KIP-584)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from coterie.errors import ErrorCode
from coterie.protocol.api import APIS, api, by_key
from coterie.protocol.codec.codec import codec
from coterie.protocol.codec.fields import Int16, Int32, Int64, message, wire
from coterie.structs import replace

__all__ = [
    "ADVERTISED",
    "ADVERTISED_WITH_TELEMETRY",
    "API",
    "FINALIZED",
    "SUPPORTED",
    "ApiVersion",
    "FinalizedFeature",
    "Request",
    "Response",
    "SupportedFeature",
    "names_its_client",
    "read_request",
    "read_response",
    "refuse_version",
    "write_request",
    "write_response",
]

API = api("ApiVersions")


@message
class Request:
    client_software_name: str = wire(since=3, default="")
    client_software_version: str = wire(since=3, default="")


@message
class ApiVersion:
    api_key: Int16
    min_version: Int16
    max_version: Int16


@message
class SupportedFeature:
    name: str
    min_version: Int16
    max_version: Int16


@message
class FinalizedFeature:
    name: str
    max_version_level: Int16
    min_version_level: Int16


@message
class Response:
    error: ErrorCode = ErrorCode.NONE
    api_keys: Sequence[ApiVersion] = ()
    throttle_time_ms: Int32 = wire(since=1, default=0)
    supported_features: Sequence[SupportedFeature] = wire(since=3, tag=0, default=())
    finalized_features_epoch: Int64 = wire(since=3, tag=1, default=-1)
    finalized_features: Sequence[FinalizedFeature] = wire(since=3, tag=2, default=())
    zk_migration_ready: bool = wire(since=3, tag=3, default=False)


read_request, write_request = codec(API, Request)
read_response, _write_response = codec(API, Response)

ALLOWS_LEVEL_ZERO = 4
"""Older clients stumble over a supported feature whose lowest level is 0 (KAFKA-17011)."""

ADVERTISED_WITH_TELEMETRY = tuple(
    ApiVersion(api_key=row.key, min_version=row.versions[0], max_version=row.versions[-1]) for row in APIS
)
"""The answer of a broker that receives the metrics of clients (KIP-714)."""
ADVERTISED = tuple(row for row in ADVERTISED_WITH_TELEMETRY if by_key[row.api_key].advertised)

GROUP_VERSION = "group.version"
"""The feature that clients look for before they use KIP-848's groups."""
TRANSACTION_VERSION = "transaction.version"
"""The feature that clients look for before they use KIP-890's transactions."""
SUPPORTED = (
    SupportedFeature(name=GROUP_VERSION, min_version=0, max_version=1),
    SupportedFeature(name=TRANSACTION_VERSION, min_version=0, max_version=2),
)
FINALIZED = (
    FinalizedFeature(name=GROUP_VERSION, max_version_level=1, min_version_level=1),
    FinalizedFeature(name=TRANSACTION_VERSION, max_version_level=2, min_version_level=2),
)

_CLIENT_SOFTWARE = re.compile(r"[a-zA-Z0-9]([a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def write_response(response: Response, version: int) -> bytes:
    if version < ALLOWS_LEVEL_ZERO and response.supported_features:
        features = [feature for feature in response.supported_features if feature.min_version > 0]
        response = replace(response, supported_features=features)
    return _write_response(response, version)


def names_its_client(request: Request, version: int) -> bool:
    """False is answered INVALID_REQUEST: from version 3 on a client says properly what it is (rule C7, KIP-511)."""
    return version < 3 or all(
        _CLIENT_SOFTWARE.fullmatch(text) for text in (request.client_software_name, request.client_software_version)
    )


def refuse_version() -> bytes:
    """Answer an unsupported version in the form of version 0, with the supported versions (rule C5)."""
    ours = [row for row in ADVERTISED if row.api_key == API.key]
    return _write_response(Response(error=ErrorCode.UNSUPPORTED_VERSION, api_keys=ours), 0)
