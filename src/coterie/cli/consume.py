"""`coterie consume`: print the records of topics, as a member of a group or without one."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import BinaryIO, TextIO

import typer

from coterie.cli.options import BOOTSTRAP, properties_of
from coterie.cli.output import warnings_shown
from coterie.client.consumer.consumer import Consumer
from coterie.client.consumer.engine import WakeupError
from coterie.client.member.facts import TopicMissing
from coterie.client.types import Records, TopicPartition
from coterie.errors import CoterieError
from coterie.protocol.records import Record
from coterie.settings.consumer_settings import ConsumerSettings

Writer = Callable[[Record], bytes]
"""Returns a record as it is printed."""
POLL_S = 0.5
API_TIMEOUT_MS = 10_000
"""Shorter than Kafka's minute, since a user waits at the terminal."""
_NUMBER = re.compile(r"-?\d+")


@dataclass(frozen=True)
class ConsumeOptions:
    """The options of the command."""

    topics: Sequence[str]
    bootstrap: str | None = None
    group: str | None = None
    protocol: str | None = None
    start: str = "beginning"
    count: int | None = None
    exit_at_end: bool = False
    partitions: Sequence[int] = ()
    format: str | None = None
    json: bool = False
    key_delimiter: str | None = None
    null: bool = False
    quiet: bool = False
    config: Path | None = None
    sets: Sequence[str] = ()


def consume(wanted: ConsumeOptions) -> None:
    try:
        write = _writer(wanted)
        with Consumer(_settings(wanted)) as consumer:
            ConsumeRun(consumer, wanted, write, sys.stdout.buffer, sys.stderr).run()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # as after | head
    except (CoterieError, OSError, UnicodeDecodeError) as error:
        typer.echo(f"coterie: {error}", err=True)
        raise typer.Exit(1) from None


def _writer(wanted: ConsumeOptions) -> Writer:
    if wanted.json and (wanted.format or wanted.key_delimiter):
        raise CoterieError("--json cannot be combined with --format or --key-delimiter")
    if wanted.json:
        return as_json
    if wanted.format and wanted.key_delimiter:
        raise CoterieError("--format cannot be combined with --key-delimiter: use %k in the format")
    text = wanted.format or (f"%k{wanted.key_delimiter}%v\\n" if wanted.key_delimiter else "%v\\n")
    return as_format(text, b"NULL" if wanted.null else b"")


def _settings(wanted: ConsumeOptions) -> ConsumerSettings:
    if wanted.group is not None and wanted.partitions:
        raise CoterieError("--group and --partition contradict each other: a group assigns the partitions itself")
    if wanted.protocol is not None and wanted.group is None:
        raise CoterieError("--protocol is that of a group: give --group, too")
    if wanted.group is not None and wanted.start not in {"beginning", "end"}:
        raise CoterieError(
            "with --group, --from must be beginning or end: it applies only where the group has no committed offset. "
            "To change committed offsets: coterie groups reset"
        )
    properties = properties_of(wanted.config)
    defaults = {
        "bootstrap.servers": (BOOTSTRAP,),
        "client.id": "coterie-consume",
        "default.api.timeout.ms": API_TIMEOUT_MS,
        "auto.offset.reset": "latest" if wanted.start == "end" else "earliest",
    }
    return ConsumerSettings.load(
        properties,
        wanted.sets,
        defaults,
        bootstrap_servers=wanted.bootstrap,
        group_id=wanted.group,
        group_protocol=wanted.protocol,
    )


class ConsumeRun:
    """Print records until a signal or the end. A signal waits for the end of a poll: what is printed is committed."""

    def __init__(self, consumer: Consumer, wanted: ConsumeOptions, write: Writer, out: BinaryIO, err: TextIO) -> None:
        self._consumer = consumer
        self._wanted = wanted
        self._write = write
        self._out = out
        self._err = err
        self._is_stopping = False
        self._printed = 0
        self._ends: dict[TopicPartition, int] = {}
        self._missing: set[str] = set()

    def run(self) -> None:
        handlers = {number: signal.signal(number, self._stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            self._begin()
            with warnings_shown("coterie.consumer", self._say, self._is_reported):
                self._read()
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
        self._say(f"{self._printed} record{'' if self._printed == 1 else 's'}")

    def _read(self) -> None:
        while not self._is_stopping and not self._has_enough:
            try:
                records = self._consumer.poll(POLL_S, max_records=self._left)
            except WakeupError:
                break
            self._print(records)
            if self._wanted.exit_at_end and self._is_at_end():
                break

    def _is_reported(self, event: object) -> bool:
        return isinstance(event, TopicMissing) and event.topic in self._missing

    def _stop(self, number: int, _frame: FrameType | None) -> None:
        """Stop after this poll. A second signal has its default effect."""
        self._is_stopping = True
        signal.signal(number, signal.SIG_DFL if number == signal.SIGTERM else signal.default_int_handler)
        self._consumer.wakeup()

    def _say(self, text: str) -> None:
        if not self._wanted.quiet:
            self._err.write(f"% {text}\n")
            self._err.flush()

    @property
    def _left(self) -> int | None:
        """Return how many records the next poll may return."""
        if self._wanted.count is None:
            return None
        return min(self._wanted.count - self._printed, self._consumer.settings.max_poll_records)

    @property
    def _has_enough(self) -> bool:
        return self._wanted.count is not None and self._printed >= self._wanted.count

    def _print(self, records: Records) -> None:
        if records:
            self._out.write(b"".join(map(self._write, records)))
            self._out.flush()
            self._printed += len(records)

    # --- start --------------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        if self._wanted.group is not None:
            for topic in self._wanted.topics:  # a member would wait for ever without a message
                if not self._consumer.partitions_for(topic):
                    self._missing.add(topic)
                    self._say(f'topic "{topic}" does not exist yet; waiting for it')
            self._consumer.subscribe(
                self._wanted.topics,
                on_assigned=lambda partitions: self._report("assigned", partitions),
                on_revoked=lambda partitions: self._report("revoked", partitions),
                on_lost=lambda partitions: self._report("lost", partitions),
            )
            return
        partitions = self._partitions()
        self._consumer.assign(partitions)
        for one, offset in self._starts(partitions).items():
            self._consumer.seek(one, offset)

    def _report(self, what: str, partitions: Sequence[TopicPartition]) -> None:
        if partitions:
            self._say(f"{what} {', '.join(map(str, partitions))}")

    def _partitions(self) -> list[TopicPartition]:
        found = []
        for topic in self._wanted.topics:
            there = self._consumer.partitions_for(topic)
            if not there:
                raise CoterieError(f'topic "{topic}" does not exist')
            missing = set(self._wanted.partitions) - {one.partition for one in there}
            if missing:
                raise CoterieError(f'topic "{topic}" has no partition {min(missing)}; it has 0 to {len(there) - 1}')
            found += [one for one in there if not self._wanted.partitions or one.partition in self._wanted.partitions]
        return found

    def _starts(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the offsets to seek to. Beginning and end are left to auto.offset.reset."""
        start = self._wanted.start
        if start in {"beginning", "end"}:
            return {}
        ends = self._consumer.end_offsets(partitions)
        if start.startswith("@"):
            times = dict.fromkeys(partitions, _timestamp(start[1:]))
            found = self._consumer.offsets_for_times(times)
            return {one: ends[one] if first is None else first.offset for one, first in found.items()}
        if not _NUMBER.fullmatch(start):
            raise CoterieError(
                f'--from cannot be "{start}"; give beginning, end, an offset, -N for the last N, or @TIME '
                "(milliseconds since 1970, or 2026-01-31T12:00)"
            )
        beginnings = self._consumer.beginning_offsets(partitions)
        offset = int(start)
        return {
            one: max(ends[one] + offset, beginnings[one]) if offset < 0 else max(offset, beginnings[one])
            for one in partitions
        }

    def _is_at_end(self) -> bool:
        """Return whether everything up to the end offsets at the time of assignment is printed."""
        assigned = self._consumer.assignment()
        if not assigned:
            return False
        new = [one for one in assigned if one not in self._ends]
        if new:
            self._ends |= self._consumer.end_offsets(new)
        return all(self._consumer.position(one) >= self._ends[one] for one in assigned)


def _timestamp(text: str) -> int:
    if _NUMBER.fullmatch(text):
        return max(int(text), 0)
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise CoterieError(
            f'"{text}" is not a time: give milliseconds since 1970, or 2026-01-31T12:00 (UTC unless it has a zone)'
        ) from None
    return round((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * 1000)


# --- formats ----------------------------------------------------------------------------------------------------------

_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
_TOKEN = re.compile(r"%(.)|\\x([0-9a-fA-F]{2})|\\(.)|%\Z|\\\Z", re.DOTALL)


def _letters(null: bytes) -> dict[str, Writer]:
    def or_null(value: bytes | None) -> bytes:
        return null if value is None else value

    return {
        "v": lambda record: or_null(record.value),
        "s": lambda record: or_null(record.value),
        "k": lambda record: or_null(record.key),
        "o": lambda record: b"%d" % record.offset,
        "p": lambda record: b"%d" % record.partition,
        "t": lambda record: record.topic.encode(),
        "T": lambda record: b"%d" % record.timestamp,
        "h": lambda record: b",".join(name.encode() + b"=" + or_null(value) for name, value in record.headers),
        "S": lambda record: b"%d" % (-1 if record.value is None else len(record.value)),
        "K": lambda record: b"%d" % (-1 if record.key is None else len(record.key)),
        "%": lambda _record: b"%",
    }


def as_format(text: str, null: bytes = b"") -> Writer:
    r"""Return a writer for a format.

    It knows %v or %s value, %k key, %o offset, %p partition, %t topic, %T timestamp, %h headers, \n, \t and \x1f.

    `null` is written for a key or value that is null.
    """
    letters = _letters(null)
    parts: list[Writer] = []
    at = 0
    for token in _TOKEN.finditer(text):
        if token.start() > at:
            parts.append(_constant(text[at : token.start()].encode()))
        parts.append(_part(token, letters))
        at = token.end()
    if at < len(text):
        parts.append(_constant(text[at:].encode()))
    return lambda record: b"".join([part(record) for part in parts])


def _part(token: re.Match[str], letters: dict[str, Writer]) -> Writer:
    letter, code, escaped = token.groups()
    if code is not None:
        return _constant(bytes([int(code, 16)]))
    if escaped is not None and escaped in _ESCAPES:
        return _constant(_ESCAPES[escaped])
    if letter is not None and letter in letters:
        return letters[letter]
    known = " ".join(f"%{one}" for one in letters)
    raise CoterieError(f'--format does not know "{token.group()}"; it knows {known} and \\n \\t \\r \\0 \\\\ \\xHH')


def _constant(value: bytes) -> Writer:
    return lambda _record: value


def as_json(record: Record) -> bytes:
    """Return a record as one line of JSON. Bytes that are not UTF-8 are {"base64": ...}."""
    line = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _text(record.key),
        "value": _text(record.value),
        "headers": [[name, _text(value)] for name, value in record.headers],
    }
    return json.dumps(line, ensure_ascii=False).encode() + b"\n"


def _text(value: bytes | None) -> str | dict[str, str] | None:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}
