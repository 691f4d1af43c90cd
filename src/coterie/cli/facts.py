"""Facts as lines: for people by default, as JSON for machines."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any, TextIO

from coterie.facts import Fact, OffsetsStored
from coterie.ledger import plain
from coterie.log import DataDirectory

__all__ = ["FactLog"]

LONGEST = 300
SHORTENED = 3
"""So many entries of a list or a mapping are shown to people."""


class FactLog:
    def __init__(self, stream: TextIO, *, as_json: bool = False, shows_commits: bool = False) -> None:
        self._stream = stream
        self._as_json = as_json
        self._shows_commits = shows_commits or as_json

    def tell(self, fact: Fact) -> None:
        if isinstance(fact, OffsetsStored) and not self._shows_commits:
            return  # there are thousands of them
        self._write(json.dumps(plain(fact)) if self._as_json else _line(fact))

    def note(self, text: str) -> None:
        self._write(json.dumps({"note": text}) if self._as_json else f"coterie: {text}")

    def opened(self, directory: DataDirectory) -> None:
        """What was found in the data directory, if it is worth a word."""
        if directory.topics and not directory.opening.was_clean:
            self.note("the last stop was not an orderly one: the logs were checked")
        for (topic, partition), log in directory.logs.items():
            for cut in log.recovery.cuts:
                self.note(f"{topic}-{partition}: {cut}")
        for stray in directory.opening.strays:
            self.note(f"{stray} belongs to no topic; it was set aside")

    def _write(self, line: str) -> None:
        with suppress(OSError, ValueError):  # nobody reads it any more, or the disk is full: the broker goes on
            self._stream.write(line + "\n")
            self._stream.flush()


def _line(fact: Fact) -> str:
    at = datetime.fromtimestamp(fact.at_ms / 1000, UTC).strftime("%H:%M:%S.%f")[:-3]
    said = [
        f"{field.name.removesuffix('_id')}={_shown(getattr(fact, field.name))}"
        for field in fields(fact)
        if field.name not in {"at_ms", "group_id"} and getattr(fact, field.name) not in (None, "", (), [], {})
    ]
    group = f" group={_tame(fact.group_id)}" if fact.group_id else ""
    return f"{at} {type(fact).__name__}{group} {' '.join(said)}".rstrip()


def _shown(value: Any) -> str:
    if isinstance(value, bytes):
        return f"<{len(value)} bytes>"
    if isinstance(value, Mapping):
        return _shortened([f"{_shown(key)}:{_shown(one)}" for key, one in list(value.items())[:SHORTENED]], len(value))
    if isinstance(value, list | tuple):
        return _shortened([_shown(one) for one in value[:SHORTENED]], len(value))
    text = getattr(value, "name", None) if isinstance(value, int) and not isinstance(value, bool) else None
    return _tame(str(text or value))


def _tame(text: str) -> str:
    """What a client calls itself must not look like a line of ours, nor fill the log."""
    if len(text) > LONGEST:
        text = f"{text[:LONGEST]}... ({len(text)} letters)"
    return text if text.isprintable() else repr(text)[1:-1]


def _shortened(shown: list[str], count: int) -> str:
    rest = f", and {count - len(shown)} more" if count > len(shown) else ""
    return f"[{', '.join(shown)}{rest}]"
