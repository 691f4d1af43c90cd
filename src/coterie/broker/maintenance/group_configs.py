"""The configs of consumer groups (K29), in a file of the data directory."""

from __future__ import annotations

from coterie.broker.maintenance.stored_configs import StoredConfigs
from coterie.storage import Files
from coterie.storage.metadata_files import GROUP_CONFIGS


class GroupConfigs(StoredConfigs):
    def __init__(self, files: Files) -> None:
        super().__init__(files, GROUP_CONFIGS, "groups", _number)


def _number(text: str) -> str:
    return str(int(text))
