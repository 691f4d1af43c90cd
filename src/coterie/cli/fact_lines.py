"""Facts as lines: for people by default, as JSON for machines.

A storm of rebalances tells thousands of facts a second, so what is told in one turn of the loop is one write.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from itertools import islice
from typing import Any, TextIO

from coterie.facts import Fact, MemberRejoined, OffsetsStored
from coterie.ledger import field_names, plain
from coterie.storage import DataDirectory

__all__ = ["FactLog"]

LONGEST = 300
SHORTENED = 3
"""So many entries of a list or a mapping are shown to people."""
FREQUENT = (OffsetsStored, MemberRejoined)
"""What healthy members do all the time: there are thousands of them. A rebalance says itself who was in it."""


class FactLog:
    def __init__(self, stream: TextIO, *, as_json: bool = False, shows_all: bool = False) -> None:
        self._stream = stream
        self._as_json = as_json
        self._left_out = () if shows_all or as_json else FREQUENT
        self._lines: list[str] = []
        self.soon: Callable[[Callable[[], None]], object] | None = None
        """Does what it is given when the turn of the loop is over; without it every line is written at once."""

    def tell(self, fact: Fact) -> None:
        if type(fact) in self._left_out:
            return
        line = json.dumps(plain(fact)) if self._as_json else _line(fact)
        self._lines.append(line)
        if self.soon is None:
            self.flush()
        elif len(self._lines) == 1:
            self.soon(self.flush)

    def note(self, text: str) -> None:
        self._lines.append(json.dumps({"note": text}) if self._as_json else f"coterie: {text}")
        self.flush()

    def flush(self) -> None:
        """Write what was told: also to be called when the loop has ended."""
        if not self._lines:
            return
        text = "\n".join(self._lines) + "\n"
        self._lines.clear()
        with suppress(OSError, ValueError):  # nobody reads it any more, or the disk is full: the broker goes on
            self._stream.write(text)
            self._stream.flush()

    def opened(self, directory: DataDirectory) -> None:
        """What was found in the data directory, if it is worth a word."""
        if directory.topics and not directory.opening.was_clean:
            self.note("the last shutdown was not clean: the logs were checked")
        if directory.topics and not directory.opening.knew_ends:
            self.note(
                "the data directory was written by an earlier release, which did not record how far its logs were "
                "durable: data missing at the end of a log cannot be detected at this start"
            )
        for (topic, partition), log in directory.logs.items():
            for cut in log.recovery.cuts:
                self.note(f"{topic}-{partition}: {cut}")
        for stray in directory.opening.strays:
            self.note(f"{stray} belongs to no topic; it was moved aside")


def _line(fact: Fact) -> str:
    said = [
        f"{name.removesuffix('_id')}={_shown(value)}"
        for name in field_names(type(fact))
        if name not in {"at_ms", "group_id"} and _says_something(value := getattr(fact, name))
    ]
    group = f" group={_tame(fact.group_id)}" if fact.group_id else ""
    return (
        f"{_second(fact.at_ms // 1000)}.{fact.at_ms % 1000:03} {type(fact).__name__}{group} {' '.join(said)}".rstrip()
    )


@lru_cache(maxsize=8)
def _second(at_s: int) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%H:%M:%S")


def _says_something(value: Any) -> bool:
    return value is not None and value is not False and value not in ("", (), [], {})


def _shown(value: Any) -> str:
    if type(value) is str:  # most are, and to ask whether one is a Mapping takes long
        return _tame(value)
    if isinstance(value, bytes):
        return f"<{len(value)} bytes>"
    if isinstance(value, Mapping):
        return _shortened([f"{_shown(key)}:{_shown(one)}" for key, one in islice(value.items(), SHORTENED)], len(value))
    if isinstance(value, Sequence) and not isinstance(value, str):
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
