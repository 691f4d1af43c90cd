"""How one setting is told: a row is a field of a dataclass, its type, bounds and sentence beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any

from coterie.errors import CoterieError
from coterie.settings.kinds import Kind

__all__ = ["Setting", "SettingsError", "dotted", "rows_of", "setting"]


class SettingsError(CoterieError, ValueError):
    """Settings that cannot be: a line for each, with what was given, where, and what is allowed."""


@dataclass(frozen=True, slots=True)
class Setting:
    name: str
    kind: Kind
    default: Any
    part: Enum
    """Who takes it: the heading it stands under."""
    doc: str
    unused: str = ""
    """Accepted, and why it changes nothing here."""
    why: str = ""
    """Why less is allowed than in Kafka, and what to do instead."""

    @property
    def field_name(self) -> str:
        return self.name.replace(".", "_")

    def text(self, value: Any) -> str | None:
        return None if value is None else self.kind.write(value)


def setting(part: Enum, default: object, kind: Kind, doc: str, *, unused: str = "", why: str = "") -> Any:
    """The field's name is the setting's, with underscores for dots."""

    def row(field_name: str) -> Setting:
        return Setting(dotted(field_name), kind, default, part, doc, unused, why)

    return field(default=default, metadata={"setting": row})


def rows_of(table: type) -> Mapping[str, Setting]:
    """The rows of a dataclass, by name; fields that are no settings are left out."""
    return {row.name: row for row in (each.metadata["setting"](each.name) for each in fields(table) if each.metadata)}


def dotted(name: str) -> str:
    """Kafka's names have no underscore, so `num_partitions` can only be `num.partitions`."""
    return name.replace("_", ".")
