"""The configs of consumer groups (K29), in a file of the data directory."""

from __future__ import annotations

import json
from collections.abc import Mapping

from coterie.storage import DiskChange, Files, LogWriteError
from coterie.storage.metadata_files import GROUP_CONFIGS


class GroupConfigs:
    def __init__(self, files: Files) -> None:
        self._files = files
        self.by_group: dict[str, dict[str, str]] = self._read()
        """The configs that are set for a group, by its id. Coordinators keep this object, so it is never replaced."""

    def _read(self) -> dict[str, dict[str, str]]:
        if not self._files.exists(GROUP_CONFIGS.path):
            return {}
        content = GROUP_CONFIGS.read(self._files)
        try:
            groups = json.loads(content.payload)["groups"]
            return {str(name): {str(key): str(int(text)) for key, text in own.items()} for name, own in groups.items()}
        except (ValueError, KeyError, TypeError, AttributeError):
            raise GROUP_CONFIGS.damaged("is not what we write") from None

    def replace(self, group_id: str, configs: Mapping[str, str]) -> DiskChange[None]:
        """Give a group these configs, in place of those it has. They count when the disk has them."""
        groups = {name: own for name, own in self.by_group.items() if name != group_id}
        if configs:
            groups[group_id] = dict(configs)

        def work() -> None:
            payload = json.dumps({"groups": groups}, indent=1, sort_keys=True).encode() + b"\n"
            try:
                GROUP_CONFIGS.write(self._files, payload)
            except OSError as error:
                raise LogWriteError.of(f"cannot write {GROUP_CONFIGS.path}", error) from error

        def take(_: None) -> None:
            self.by_group.pop(group_id, None)
            self.by_group.update(groups)

        return DiskChange(work, take)
