"""What a setting may be: how its text becomes a value, what is allowed, and the type DescribeConfigs says.

As Kafka reads settings: blanks around a value do not count, `true` may be `TRUE`, a list has commas.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Protocol

__all__ = ["Flag", "Kind", "Number", "Ratio", "Word", "Words", "int32", "int64", "text_of"]

_INTEGER = re.compile(r"[+-]?[0-9]{1,40}", re.ASCII)
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?", re.ASCII)
_REPLICAS = re.compile(r"\*?|([0-9]+:[0-9]+)(,[0-9]+:[0-9]+)*", re.ASCII)


class Kind(Protocol):
    @property
    def code(self) -> int:
        """Kafka's number for the type."""

    @property
    def allowed(self) -> str:
        """What may be given, to follow the words "must be"."""

    def read(self, text: str) -> Any:
        """The value; ValueError if it is not allowed."""

    def write(self, value: Any) -> str:
        """The text of a value, as DescribeConfigs says it."""


@dataclass(frozen=True, slots=True)
class Number:
    code: int
    least: int
    most: int
    also: tuple[int, ...] = ()

    @property
    def allowed(self) -> str:
        if self.least == self.most:
            return str(self.least)
        return " or ".join([f"a whole number from {self.least} to {self.most}", *map(str, self.also)])

    def read(self, text: str) -> int:
        if not _INTEGER.fullmatch(text.strip()):
            raise ValueError(text)
        value = int(text)
        if not self.least <= value <= self.most and value not in self.also:
            raise ValueError(text)
        return value

    def write(self, value: int) -> str:
        return str(value)


def int32(least: int = -(2**31), most: int = 2**31 - 1, also: tuple[int, ...] = ()) -> Number:
    return Number(3, least, most, also)


def int64(least: int = -(2**63), most: int = 2**63 - 1) -> Number:
    return Number(5, least, most)


@dataclass(frozen=True, slots=True)
class Ratio:
    code: int = 6

    @property
    def allowed(self) -> str:
        return "a number from 0 to 1"

    def read(self, text: str) -> float:
        if not _DECIMAL.fullmatch(text.strip()) or not 0 <= float(text) <= 1:
            raise ValueError(text)
        return float(text)

    def write(self, value: float) -> str:
        return str(value)


@dataclass(frozen=True, slots=True)
class Flag:
    code: int = 1

    @property
    def allowed(self) -> str:
        return "true or false"

    def read(self, text: str) -> bool:
        value = {"true": True, "false": False}.get(text.strip().lower())
        if value is None:
            raise ValueError(text)
        return value

    def write(self, value: bool) -> str:
        return text_of(value)


@dataclass(frozen=True, slots=True)
class Word:
    """One of some words; any text if none are named. `any_case`: read as it is written in `choices`."""

    choices: tuple[str, ...] = ()
    code: int = 2
    any_case: bool = False
    is_empty_allowed: bool = True

    @property
    def allowed(self) -> str:
        if not self.choices:
            return "any text" if self.is_empty_allowed else "any text that is not empty"
        return " or ".join(choice or "empty" for choice in self.choices)

    def read(self, text: str) -> str:
        value = text.strip()
        if self.any_case:
            value = next((choice for choice in self.choices if choice.lower() == value.lower()), value)
        if (self.choices and value not in self.choices) or not (value or self.is_empty_allowed or self.choices):
            raise ValueError(text)
        return value

    def write(self, value: str) -> str:
        return value


@dataclass(frozen=True, slots=True)
class Words:
    """A list of words, each once, in the order given; `replicas` are `partition:broker`, or `*` alone."""

    choices: tuple[str, ...] = ()
    replicas: bool = False
    code: int = 7

    @property
    def allowed(self) -> str:
        if self.replicas:
            return "* or a comma-separated list of partition:broker"
        return f"a comma-separated list of {', '.join(self.choices) or 'any words'}"

    def read(self, text: str) -> tuple[str, ...]:
        stripped = text.strip()
        values = tuple(dict.fromkeys(part.strip() for part in stripped.split(","))) if stripped else ()
        if "" in values or (self.choices and not set(values) <= set(self.choices)):
            raise ValueError(text)
        if self.replicas and not _REPLICAS.fullmatch(self.write(values)):
            raise ValueError(text)
        return values

    def write(self, value: tuple[str, ...]) -> str:
        return ",".join(value)


def text_of(value: object) -> str:
    """How a value given in Python would be written in a file."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return str(value)
