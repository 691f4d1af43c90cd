"""`coterie consume`: records of topics on standard output, as a member of a group or alone."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import BinaryIO, TextIO

import typer

from coterie.cli.record_format import Writer, as_format, as_json
from coterie.cli.warnings_shown import warnings_shown
from coterie.client.consumer.consumer import Consumer
from coterie.client.consumer.engine import WakeupError
from coterie.client.member.facts import TopicMissing
from coterie.client.types import Records, TopicPartition
from coterie.errors import CoterieError
from coterie.settings.client_settings import ConsumerSettings

__all__ = ["Wanted", "consume"]

POLL_S = 0.5
KNOWN_WITHIN_MS = 10_000
"""Whoever waits at a terminal wants to know sooner than after Kafka's minute that nobody is there."""
_NUMBER = re.compile(r"-?\d+")


@dataclass(frozen=True)
class Wanted:
    """What was typed."""

    topics: Sequence[str]
    bootstrap: str | None = None
    group: str | None = None
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


def consume(wanted: Wanted) -> None:
    try:
        write = _writer(wanted)
        with Consumer(_settings(wanted)) as consumer:
            Run(consumer, wanted, write, sys.stdout.buffer, sys.stderr).run()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nobody reads on, as after | head
    except (CoterieError, OSError, UnicodeDecodeError) as error:
        typer.echo(f"coterie: {error}", err=True)
        raise typer.Exit(1) from None


def _writer(wanted: Wanted) -> Writer:
    if wanted.json and (wanted.format or wanted.key_delimiter):
        raise CoterieError("--json cannot be combined with --format or --key-delimiter")
    if wanted.json:
        return as_json
    if wanted.format and wanted.key_delimiter:
        raise CoterieError("--format cannot be combined with --key-delimiter: use %k in the format")
    text = wanted.format or (f"%k{wanted.key_delimiter}%v\\n" if wanted.key_delimiter else "%v\\n")
    return as_format(text, b"NULL" if wanted.null else b"")


def _settings(wanted: Wanted) -> ConsumerSettings:
    if wanted.group is not None and wanted.partitions:
        raise CoterieError("--group and --partition contradict each other: a group assigns the partitions itself")
    if wanted.group is not None and wanted.start not in {"beginning", "end"}:
        raise CoterieError(
            "with --group, --from must be beginning or end: it applies only where the group has no committed offset. "
            "To change committed offsets: coterie groups reset"
        )
    properties = wanted.config.read_text(encoding="utf-8") if wanted.config else ""
    defaults = {
        "bootstrap.servers": ("127.0.0.1:9092",),
        "client.id": "coterie-consume",
        "default.api.timeout.ms": KNOWN_WITHIN_MS,
        "auto.offset.reset": "latest" if wanted.start == "end" else "earliest",
    }
    return ConsumerSettings.load(
        properties, wanted.sets, defaults, bootstrap_servers=wanted.bootstrap, group_id=wanted.group
    )


class Run:
    """Until it is told to stop. A signal is taken between two polls, so that what is printed is what is committed."""

    def __init__(self, consumer: Consumer, wanted: Wanted, write: Writer, out: BinaryIO, err: TextIO) -> None:
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
            with warnings_shown("coterie.consumer", self._say, self._is_told):
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

    def _is_told(self, event: object) -> bool:
        return isinstance(event, TopicMissing) and event.topic in self._missing

    def _stop(self, number: int, _frame: FrameType | None) -> None:
        """A second signal does what it always does."""
        self._is_stopping = True
        signal.signal(number, signal.SIG_DFL if number == signal.SIGTERM else signal.default_int_handler)
        self._consumer.wakeup()

    def _say(self, text: str) -> None:
        if not self._wanted.quiet:
            self._err.write(f"% {text}\n")
            self._err.flush()

    @property
    def _left(self) -> int | None:
        """The next poll brings at most so many."""
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

    # --- where to begin -----------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        if self._wanted.group is not None:
            for topic in self._wanted.topics:  # a member would wait for ever, and say nothing
                if not self._consumer.partitions_for(topic):
                    self._missing.add(topic)
                    self._say(f'topic "{topic}" does not exist yet; waiting for it')
            self._consumer.subscribe(
                self._wanted.topics,
                on_assigned=lambda partitions: self._told("assigned", partitions),
                on_revoked=lambda partitions: self._told("revoked", partitions),
                on_lost=lambda partitions: self._told("lost", partitions),
            )
            return
        partitions = self._partitions()
        self._consumer.assign(partitions)
        for one, offset in self._starts(partitions).items():
            self._consumer.seek(one, offset)

    def _told(self, what: str, partitions: Sequence[TopicPartition]) -> None:
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
        """For beginning and end there is auto.offset.reset."""
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
        """Whether all that was there when the partitions were taken on has been printed."""
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
