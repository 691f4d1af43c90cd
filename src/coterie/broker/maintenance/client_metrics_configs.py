"""The configs of client metrics (KIP-714), in a file of the data directory: which clients are asked for what."""

from __future__ import annotations

from coterie.broker.maintenance.stored_configs import StoredConfigs
from coterie.storage import Files
from coterie.storage.metadata_files import CLIENT_METRICS_CONFIGS


class ClientMetricsConfigs(StoredConfigs):
    def __init__(self, files: Files) -> None:
        super().__init__(files, CLIENT_METRICS_CONFIGS, "subscriptions", str)
