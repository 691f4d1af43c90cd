"""Which API is answered where: one table from the files that hold the answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from coterie.broker.handlers import (
    cluster_apis,
    config_apis,
    fetch,
    group_apis,
    log_offsets,
    metadata,
    produce,
    topic_changes,
)

__all__ = ["HANDLERS"]

HANDLERS: Mapping[int, Callable[[Any, Any, bytes, int, int], None]] = {
    **group_apis.HANDLERS,
    **produce.HANDLERS,
    **fetch.HANDLERS,
    **metadata.HANDLERS,
    **topic_changes.HANDLERS,
    **log_offsets.HANDLERS,
    **cluster_apis.HANDLERS,
    **config_apis.HANDLERS,
}
