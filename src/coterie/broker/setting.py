"""How one setting is told: a row is a field of `Settings`, its type, bounds and sentence beside it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from coterie.broker.kinds import Kind
from coterie.errors import CoterieError

__all__ = ["Part", "Setting", "SettingsError", "dotted", "setting"]


class SettingsError(CoterieError, ValueError):
    """Settings that cannot be: a line for each, with what was given, where, and what is allowed."""


class Part(Enum):
    """Who takes a setting."""

    GROUPS = "Groups and their offsets"
    TOPICS = "Topics"
    LOG = "Logs, and the default of a topic's own config"
    REQUESTS = "Connections and requests"
    NODE = "The node"


@dataclass(frozen=True, slots=True)
class Setting:
    name: str
    kind: Kind
    default: Any
    part: Part
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


def setting(part: Part, default: object, kind: Kind, doc: str, *, unused: str = "", why: str = "") -> Any:
    """The field's name is the setting's, with underscores for dots."""

    def row(field_name: str) -> Setting:
        return Setting(dotted(field_name), kind, default, part, doc, unused, why)

    return field(default=default, metadata={"setting": row})


def dotted(name: str) -> str:
    """Kafka's names have no underscore, so `num_partitions` can only be `num.partitions`."""
    return name.replace("_", ".")
