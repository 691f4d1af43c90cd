"""The configs of resources that are no topics, in a file of the data directory for each type of resource."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from coterie.storage import DiskChange, Files, LogWriteError
from coterie.storage.metadata_files import CLIENT_METRICS_CONFIGS, GROUP_CONFIGS, ChecksummedFile


class StoredConfigs:
    """The configs of all resources of one type."""

    def __init__(self, files: Files, file: ChecksummedFile, title: str, check: Callable[[str], str]) -> None:
        """`title` is the key of the file's only entry. `check` returns a stored value, or raises ValueError."""
        self._files = files
        self._file = file
        self._title = title
        self._by_name = self._read(check)
        """It is never replaced: others keep this object."""
        self.version = 0
        """How often configs were changed since the start."""

    @property
    def by_name(self) -> Mapping[str, Mapping[str, str]]:
        """The configs that are set for a resource, by its name."""
        return self._by_name

    def _read(self, check: Callable[[str], str]) -> dict[str, dict[str, str]]:
        if not self._files.exists(self._file.path):
            return {}
        content = self._file.read(self._files)
        try:
            named = json.loads(content.payload)[self._title]
            return {str(name): {str(key): check(text) for key, text in own.items()} for name, own in named.items()}
        except (ValueError, KeyError, TypeError, AttributeError):
            raise self._file.damaged("is not what we write") from None

    def replace(self, name: str, configs: Mapping[str, str]) -> DiskChange[None]:
        """Give a resource these configs, in place of those it has. They count when the disk has them."""
        named = {other: own for other, own in self._by_name.items() if other != name}
        if configs:
            named[name] = dict(configs)

        def work() -> None:
            payload = json.dumps({self._title: named}, indent=1, sort_keys=True).encode() + b"\n"
            try:
                self._file.write(self._files, payload)
            except OSError as error:
                raise LogWriteError.of(f"cannot write {self._file.path}", error) from error

        def take(_: None) -> None:
            self._by_name.pop(name, None)
            self._by_name.update(named)
            self.version += 1

        return DiskChange(work, take)


class GroupConfigs(StoredConfigs):
    """The configs of consumer groups (K29)."""

    def __init__(self, files: Files) -> None:
        super().__init__(files, GROUP_CONFIGS, "groups", _number)


class ClientMetricsConfigs(StoredConfigs):
    """The configs of client metrics (KIP-714): which clients are asked for what."""

    def __init__(self, files: Files) -> None:
        super().__init__(files, CLIENT_METRICS_CONFIGS, "subscriptions", str)


def _number(text: str) -> str:
    return str(int(text))
