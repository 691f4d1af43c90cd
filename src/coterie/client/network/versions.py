"""Which version of an API a client and a broker speak with each other: the highest that both know. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType

from coterie.errors import UnsupportedVersionError
from coterie.protocol.api import Api
from coterie.protocol.apis import api_versions

__all__ = ["Versions", "version_after_refusal"]


class Versions:
    def __init__(self, whose: object, told: api_versions.Response) -> None:
        """`whose`: the broker, as errors name it."""
        self._whose = whose
        self._theirs = {each.api_key: range(each.min_version, each.max_version + 1) for each in told.api_keys}
        self._chosen: dict[tuple[int, int | None], int] = {}

    def of(self, api: ModuleType, at_most: int | None = None) -> int:
        """Not above `at_most`."""
        row: Api = api.API
        key = (row.key, at_most)
        version = self._chosen.get(key)
        if version is None:
            version = self._chosen[key] = self._highest(row, at_most)
        return version

    def _highest(self, row: Api, at_most: int | None) -> int:
        theirs = self._theirs.get(row.key, range(0))
        limit = row.versions[-1] if at_most is None else at_most
        ours = [version for version in row.versions if row.serves(version) and version <= limit]
        if not theirs:
            raise UnsupportedVersionError(
                f"{self._whose} does not speak {row.name} at all, of which we speak versions {_span(ours)}"
            )
        common = [version for version in ours if version in theirs]
        if not common:
            raise UnsupportedVersionError(
                f"{self._whose} speaks {row.name} in versions {_span(theirs)}, we in {_span(ours)}: "
                "there is none in common"
            )
        return common[-1]


def version_after_refusal(refusal: api_versions.Response) -> int:
    """A broker that does not know our latest version of ApiVersions says in version 0 which it knows (KIP-511)."""
    row = api_versions.API
    theirs = [each.max_version for each in refusal.api_keys if each.api_key == row.key]
    return min([row.versions[-1], *theirs]) if theirs else 0


def _span(versions: Sequence[int]) -> str:
    return f"{versions[0]} to {versions[-1]}"
