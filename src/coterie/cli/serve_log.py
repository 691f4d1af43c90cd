"""The log of `coterie serve`: the facts of groups and of the broker as lines of logfmt or JSON on stderr.

A line of logfmt has its time, its level, what happened, and fields; a value with blanks is quoted. A group that
rebalances all the time has thousands of facts a second, so all facts of one turn of the event loop are one write.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache, lru_cache
from itertools import islice
from typing import Any, Literal, TextIO

from coterie import facts
from coterie.broker import broker_facts
from coterie.broker.io.clock import wall_ms
from coterie.errors import MalformedError
from coterie.facts import Fact
from coterie.ledger import plain, rejoins_of
from coterie.protocol.subscription import read_assignment, read_subscription
from coterie.storage import DataDirectory
from coterie.structs import field_names

Level = Literal["debug", "info", "warn", "error"]
MAX_TEXT = 300
MAX_ENTRIES = 3
"""The number of entries of a list or a mapping that a line of text shows."""
MAX_RANGES = 8
"""The number of ranges of partitions of one topic that a line of text shows."""

_LEVELS: Mapping[type[Fact], Level] = {
    facts.OffsetsStored: "debug",
    facts.MemberRejoined: "debug",
    facts.MemberAssigned: "debug",
    facts.MemberExpired: "warn",
    facts.MemberMissedJoin: "warn",
    facts.MemberMissedSync: "warn",
    facts.MemberMissedRevocation: "warn",
    facts.MemberTurnedAway: "warn",
    facts.MemberIdExpired: "warn",
    facts.InstanceIdFenced: "warn",
    facts.JoinPhaseStuck: "warn",
    facts.AssignorFailed: "warn",
    facts.RecordsSkipped: "warn",
    facts.ClockSet: "warn",
    facts.AssignmentFailed: "error",
    facts.WriteFailed: "error",
    facts.Mistake: "error",
    broker_facts.AuthenticationFailed: "warn",
    broker_facts.AuthorizationDenied: "warn",
    broker_facts.FactsLeftOut: "warn",
    broker_facts.Trouble: "error",
}
"""The levels of facts; the others are of level info. Healthy groups cause those of level debug all the time."""


_NAMES = {"metadata": "owns"}
"""Fields that a line names after what it shows of them."""
_CONTAINERS = frozenset({str, tuple, list, dict})
_BY_TOPIC = frozenset({"assigned", "pending_revocation"})
"""Fields that have partitions by topic."""
_NOT_SHOWN = frozenset({"at_ms", "group_id", "took_ms", "rejoined"})
"""Fields that have a place of their own in a line of text, or lines of their own."""


class FactLog:
    """Writes facts and notes. Text leaves out facts of level debug, unless all are asked for."""

    def __init__(
        self,
        stream: TextIO,
        *,
        as_json: bool = False,
        shows_all: bool = False,
        now_ms: Callable[[], int] = wall_ms,
    ) -> None:
        self._stream = stream
        self._as_json = as_json
        self._shows_all = shows_all
        self._now_ms = now_ms
        self._lines: list[str] = []
        self.soon: Callable[[Callable[[], None]], object] | None = None
        """Calls a function at the end of this turn of the event loop. Without it every line is written at once."""

    def tell(self, fact: Fact) -> None:
        kind = type(fact)
        level = _LEVELS.get(kind, "info")
        if level == "debug" and not self._shows_all:
            return
        if self._shows_all and kind is facts.JoinPhaseCompleted:
            for one in rejoins_of(fact):  # type: ignore[arg-type]
                self.tell(one)
        self._lines.append(_json_line(fact, level) if self._as_json else _line(fact, level))
        if self.soon is None:
            self.flush()
        elif len(self._lines) == 1:
            self.soon(self.flush)

    def note(self, text: str, fields: Mapping[str, str | int] | None = None, *, level: Level = "info") -> None:
        """Write a line about the broker itself, with fields."""
        fields = fields or {}
        time = _time(self._now_ms())
        if self._as_json:
            line = json.dumps({"time": time, "level": level, "note": text, **fields})
        else:
            line = " ".join([f"time={time} level={level} msg={_quoted(text)}", *_pairs(fields.items())])
        self._lines.append(line)
        self.flush()

    def flush(self) -> None:
        """Write what is pending. Call it when the loop has ended, too."""
        if not self._lines:
            return
        text = "\n".join(self._lines) + "\n"
        self._lines.clear()
        with suppress(OSError, ValueError):  # a closed pipe or a full disk does not stop the broker
            self._stream.write(text)
            self._stream.flush()

    def opened(self, directory: DataDirectory) -> None:
        """Write what was unusual about the data directory."""
        if directory.topics and not directory.opening.was_clean:
            self.note("the last shutdown was not clean: the logs were checked", level="warn")
        if directory.topics and not directory.opening.knew_ends:
            self.note(
                "the data directory was written by an earlier release, which did not record how far its logs were "
                "durable: data missing at the end of a log cannot be detected at this start",
                level="warn",
            )
        for (topic, partition), log in directory.logs.items():
            for cut in log.recovery.cuts:
                self.note(f"{topic}-{partition}: {cut}", level="warn")
        for stray in directory.opening.strays:
            self.note(f"{stray} belongs to no topic; it was moved aside", level="warn")


def _json_line(fact: Fact, level: Level) -> str:
    return json.dumps({"time": _time(fact.at_ms), "level": level, **plain(fact)})


def _line(fact: Fact, level: Level) -> str:
    kind, at_ms = type(fact), fact.at_ms
    group = f" group={_quoted(fact.group_id)}" if fact.group_id else ""
    line = f"time={_second(at_ms // 1_000)}.{at_ms % 1_000:03}Z level={level} event={kind.__name__}{group}"
    for name, shown in _shown(kind):
        value = getattr(fact, name)
        of = type(value)
        if of is int:
            line += f"{shown}{value}"
        elif of is str:
            if value:
                line += shown + _quoted(value)
        elif of is dict and name not in _BY_TOPIC:
            if value:
                line += shown + _quoted(_entries(value))
        elif _says_something(value):
            line += shown + _quoted(_text(name, value))
    return line


@cache
def _shown(kind: type[Fact]) -> list[tuple[str, str]]:
    """Return the fields of a line of text, each with what stands before its value."""
    return [(name, f" {_name_of(name)}=") for name in field_names(kind) if name not in _NOT_SHOWN]


def _name_of(field: str) -> str:
    return _NAMES.get(field) or field.removesuffix("_id")


def _pairs(named: Iterable[tuple[str, Any]]) -> list[str]:
    return [f"{_name_of(name)}={_quoted(_text(name, value))}" for name, value in named if _says_something(value)]


def _says_something(value: Any) -> bool:
    """Return whether a value says something: a flag that is false, or an empty list, does not."""
    if type(value) in _CONTAINERS:
        return bool(value)
    return value is not None and value is not False


def _time(at_ms: int) -> str:
    return f"{_second(at_ms // 1_000)}.{at_ms % 1_000:03}Z"


@lru_cache(maxsize=8)
def _second(at_s: int) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%S")


# --- values -----------------------------------------------------------------------------------------------------------


_PLAIN = re.compile(r'[^ "=\\]+')
"""A text that stands in a line as it is."""


def _quoted(text: str) -> str:
    """Quote a text that logfmt could not read back, and shorten it: a client id must not look like a field."""
    return _quoted_short(text) if len(text) < _SHORT else _quoted_now(text)


def _quoted_now(text: str) -> str:
    if len(text) > MAX_TEXT:
        text = f"{text[:MAX_TEXT]}... ({len(text)} characters)"
    if _PLAIN.fullmatch(text) and text.isprintable():
        return text
    return json.dumps(text, ensure_ascii=not text.isprintable())


_SHORT = 100
_quoted_short = lru_cache(maxsize=1_024)(_quoted_now)
"""Short texts are ids of groups and members most often, which come again in the next lines."""


def _text(name: str, value: Any) -> str:
    if isinstance(value, str):  # most are, and isinstance of Mapping is slow
        return str(value)
    if isinstance(value, bytes):
        return _owned(value)
    if name in _BY_TOPIC:
        return _partitions(value)
    if name in {"offsets", "partitions"} and isinstance(value, Sequence):
        return _shortened([_place(*one) for one in value[:MAX_ENTRIES]], len(value))
    if isinstance(value, Mapping):
        return _entries(value)
    if type(value) is list or isinstance(value, Sequence):
        return _shortened([_text("", one) for one in value[:MAX_ENTRIES]], len(value))
    if isinstance(value, bool):
        return "true"
    return str(getattr(value, "name", value) if isinstance(value, int) else value)


def _entries(value: Mapping[Any, Any]) -> str:
    first = islice(value.items(), MAX_ENTRIES)
    return _shortened([f"{key}:{_content(one)}" for key, one in first], len(value))


def _content(value: Any) -> str:
    """Return an entry of a mapping: the assignment of a member, or anything else."""
    if type(value) is int:
        return str(value)
    if not isinstance(value, bytes):
        return _text("", value)
    return _short_assignment(value) if len(value) <= _SHORT_ASSIGNMENT else _assignment(value)


def _assignment(value: bytes) -> str:
    try:
        return _partitions(read_assignment(value).partitions) or "nothing"
    except MalformedError:
        return "unknown" if value else "nothing"


_SHORT_ASSIGNMENT = 256
_short_assignment = lru_cache(maxsize=1_024)(_assignment)
"""Most members keep their partitions from one rebalance to the next."""


def _owned(metadata: bytes) -> str:
    """Return what a member that joins says it still owns; unknown if it is not a consumer."""
    try:
        return _partitions(read_subscription(metadata).owned) or "nothing"
    except MalformedError:
        return "unknown"


def _place(topic: str, partition: int, offset: int | None = None) -> str:
    return f"{topic}-{partition}" if offset is None else f"{topic}-{partition}@{offset}"


def _partitions(by_topic: Mapping[str, Sequence[int]]) -> str:
    """Return partitions by topic, with ranges: `orders[0-3,7] payments[1]`."""
    first = islice(by_topic.items(), MAX_ENTRIES)
    shown = [f"{topic}[{_ranges(sorted(numbers))}]" for topic, numbers in first if numbers]
    return _shortened(shown, sum(1 for numbers in by_topic.values() if numbers), " ")


def _ranges(numbers: Sequence[int]) -> str:
    ranges: list[tuple[int, int]] = []
    for number in numbers:
        if ranges and number <= ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    shown = [str(low) if low == high else f"{low}-{high}" for low, high in ranges[:MAX_RANGES]]
    left = sum(high - low + 1 for low, high in ranges[MAX_RANGES:])
    return ",".join([*shown, f"and {left} more"] if left else shown)


def _shortened(shown: list[str], count: int, between: str = ", ") -> str:
    rest = [f"and {count - len(shown)} more"] if count > len(shown) else []
    return between.join([*shown, *rest])
