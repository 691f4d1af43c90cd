"""Kafka's consumer groups, whole, in Python."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from coterie.version import __version__

if TYPE_CHECKING:
    from coterie.broker.broker import Broker
    from coterie.client.admin import Admin, AsyncAdmin
    from coterie.client.consumer import AsyncConsumer, Consumer
    from coterie.client.delivery import RecordMetadata
    from coterie.client.fetch_errors import LogTruncationError
    from coterie.client.producer import AsyncProducer, Producer
    from coterie.client.types import OffsetAndMetadata, Record, TopicPartition

__all__ = [
    "Admin",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncProducer",
    "Broker",
    "Consumer",
    "LogTruncationError",
    "OffsetAndMetadata",
    "Producer",
    "Record",
    "RecordMetadata",
    "TopicPartition",
    "__version__",
]

_HOMES = {
    "Admin": "coterie.client.admin",
    "AsyncAdmin": "coterie.client.admin",
    "AsyncConsumer": "coterie.client.consumer",
    "AsyncProducer": "coterie.client.producer",
    "Broker": "coterie.broker.broker",
    "Consumer": "coterie.client.consumer",
    "LogTruncationError": "coterie.client.fetch_errors",
    "OffsetAndMetadata": "coterie.client.types",
    "Producer": "coterie.client.producer",
    "Record": "coterie.client.types",
    "RecordMetadata": "coterie.client.delivery",
    "TopicPartition": "coterie.client.types",
}


def __getattr__(name: str) -> Any:
    """Public names load when they are first asked for, so that `import coterie` costs nothing."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'coterie' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the public names, also those that are not loaded yet."""
    return sorted(__all__)
