"""IncrementalAlterConfigs: single settings of a resource (KIP-339). Its answer is that of AlterConfigs."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from coterie.protocol.api import api
from coterie.protocol.apis.alter_configs import Response, Result
from coterie.protocol.codec.codec import codec
from coterie.protocol.codec.fields import Int8, message

__all__ = [
    "API",
    "AlterConfigOp",
    "Config",
    "Request",
    "Resource",
    "Response",
    "Result",
    "read_request",
    "read_response",
    "write_request",
    "write_response",
]

API = api("IncrementalAlterConfigs")


class AlterConfigOp(IntEnum):
    """The operation on a config."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@message
class Config:
    name: str
    operation: Int8
    """See `AlterConfigOp`."""
    value: str | None


@message
class Resource:
    resource_type: Int8
    resource_name: str
    configs: Sequence[Config]


@message
class Request:
    resources: Sequence[Resource]
    validate_only: bool = False


read_request, write_request = codec(API, Request)
read_response, write_response = codec(API, Response)
