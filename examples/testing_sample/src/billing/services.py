"""The service with each client library, by the name of the library."""

from __future__ import annotations

from importlib import import_module
from typing import Any

LIBRARIES = ("confluent-kafka", "kafka-python", "aiokafka")


def service(library: str) -> Any:
    """Return the class of the service that uses a client library."""
    return import_module(f"billing.with_{library.replace('-', '_')}").Billing
