"""What the value of an option may be, beside what settings have (`coterie.settings.kinds`): places, times, patterns."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from coterie.errors import MalformedError
from coterie.settings.kinds import Word, Words
from coterie.spark.places import (
    EARLIEST,
    LATEST,
    AtOffsets,
    AtTimes,
    Committed,
    Everywhere,
    parse_assignment,
    parse_numbers,
)

__all__ = ["Assignment", "Duration", "Offsets", "Regex", "Times"]


class Assignment(Words):
    @property
    def allowed(self) -> str:
        return 'JSON of topics and their partitions, as in {"orders": [0, 1]}'

    def read(self, text: str) -> Any:
        return parse_assignment(text)


class Regex(Word):
    @property
    def allowed(self) -> str:
        return "a regular expression for the whole name of a topic"

    def read(self, text: str) -> Any:
        try:
            return re.compile(text)
        except re.error as error:
            raise ValueError(error) from None


class Offsets(Word):
    """Some words, or JSON of offsets."""

    @property
    def allowed(self) -> str:
        return f'{", ".join(self.choices)}, or JSON of offsets, as in {{"orders": {{"0": 23, "1": -2}}}}'

    def read(self, text: str) -> Any:
        word = text.strip().lower()
        if word in self.choices:
            return {"earliest": Everywhere(EARLIEST), "latest": Everywhere(LATEST), "committed": Committed()}[word]
        offsets = parse_numbers(text)
        for partition, offset in offsets.items():
            if offset < EARLIEST:
                raise MalformedError(f"{partition} has {offset}: offsets begin at 0; -1 is the latest, -2 the earliest")
        return AtOffsets(offsets)


class Times(Word):
    @property
    def allowed(self) -> str:
        return 'JSON of times in milliseconds, as in {"orders": {"0": 1700000000000}}'

    def read(self, text: str) -> Any:
        times = parse_numbers(text)
        for partition, time in times.items():
            if time < 0:
                raise MalformedError(f"{partition} has {time}: a time is milliseconds since 1970")
        return AtTimes(times)


class Duration(Word):
    _UNITS: Mapping[str, int] = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}

    @property
    def allowed(self) -> str:
        return f"a whole number and one of {', '.join(self._UNITS)}, as in 15m"

    def read(self, text: str) -> Any:
        found = re.fullmatch(r"\s*([0-9]{1,15})\s*([a-z]*)\s*", text.lower(), re.ASCII)
        if found is None or (found[2] or "ms") not in self._UNITS:
            raise ValueError(text)
        return int(found[1]) * self._UNITS[found[2] or "ms"]
