"""Which API is answered where: one table from the files that hold the answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from coterie.broker import cluster_apis, config_apis, fetch, groups, offsets, produce, topic_changes, topics

__all__ = ["HANDLERS"]

HANDLERS: Mapping[int, Callable[[Any, Any, bytes, int, int], None]] = {
    **groups.HANDLERS,
    **produce.HANDLERS,
    **fetch.HANDLERS,
    **topics.HANDLERS,
    **topic_changes.HANDLERS,
    **offsets.HANDLERS,
    **cluster_apis.HANDLERS,
    **config_apis.HANDLERS,
}
