"""`coterie produce`: send lines or JSON objects to a topic."""

from __future__ import annotations

import base64
import binascii
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from io import BufferedIOBase
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

import typer

from coterie.cli.options import BOOTSTRAP, properties_of
from coterie.cli.output import warnings_shown
from coterie.client.event_log import ClosedWithRecords, DeliveryFailed
from coterie.client.producer.delivery import RecordMetadata
from coterie.client.producer.producer import Content, Producer
from coterie.errors import CoterieError, KafkaError
from coterie.settings.producer_settings import ProducerSettings

DEFAULTS = {"bootstrap.servers": (BOOTSTRAP,)}
SHOWN_AFTER_S = 1.0
SHOWN_EVERY_S = 0.5
PROBLEMS_SHOWN = 5
FIELDS = ("key", "value", "headers", "partition", "timestamp")
IGNORED_FIELDS = {"topic", "offset"}
"""Fields that `coterie consume --json` prints and that have no meaning here."""
NO_TIMESTAMP = -1


class InputError(CoterieError):
    """A line that cannot be sent; the message says which and why."""


class InputRecord(NamedTuple):
    key: Content
    value: Content
    headers: Sequence[tuple[str, Content]] = ()
    partition: int | None = None
    timestamp: int | None = None


# --- reading ----------------------------------------------------------------------------------------------------------


def split_lines(lines: Iterable[bytes], key_delimiter: str | None, *, empty_is_null: bool) -> Iterator[InputRecord]:
    """Return one record per line. The text before the first delimiter is the key; without one there is no key."""
    delimiter = key_delimiter.replace(r"\t", "\t").encode() if key_delimiter else b""  # -K '\t', as kcat takes it
    for line in lines:
        content = line.removesuffix(b"\n")
        key: bytes | None = None
        if delimiter and delimiter in content:
            key, _, content = content.partition(delimiter)
        value = None if empty_is_null and not content else content
        yield InputRecord((key or None) if empty_is_null else key, value)


def read_json(lines: Iterable[bytes]) -> Iterator[InputRecord]:
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                yield parse_record(json.loads(line))
            except (ValueError, InputError) as error:
                raise InputError(f"line {number}: {error}") from None
            except RecursionError:
                raise InputError(f"line {number}: the JSON is nested too deeply") from None


def parse_record(fields: Any) -> InputRecord:
    """Return the record of a JSON object. A value that is not a string is sent as JSON; {"base64": "..."} is bytes."""
    if not isinstance(fields, dict):
        raise InputError(f"a record must be a JSON object with {', '.join(FIELDS)}, not {type(fields).__name__}")
    unknown = sorted(fields.keys() - set(FIELDS) - IGNORED_FIELDS)
    if unknown:
        raise InputError(f"unknown field {unknown[0]!r}; a record can have {', '.join(FIELDS)}")
    partition, timestamp = fields.get("partition"), fields.get("timestamp")
    for name, number, least in (("partition", partition, 0), ("timestamp", timestamp, NO_TIMESTAMP)):
        if number is not None and (type(number) is not int or number < least):
            raise InputError(f"{name} must be a whole number of at least {least}, not {json.dumps(number)}")
    return InputRecord(
        _content(fields.get("key")),
        _content(fields.get("value")),
        _headers(fields.get("headers")),
        partition,
        timestamp,
    )


def _content(value: Any) -> Content:
    if value is None:
        return None
    if isinstance(value, str):
        return _encoded(value)
    if isinstance(value, dict) and value.keys() == {"base64"}:
        try:
            return base64.b64decode(value["base64"], validate=True)
        except (binascii.Error, ValueError, TypeError) as error:
            raise InputError(f"the base64 text cannot be decoded: {error}") from None
    return _encoded(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def _encoded(text: str) -> bytes:
    r"""Encode a text. JSON may contain \ud800, half of a character, which UTF-8 cannot encode."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        half = f"\\u{ord(text[error.start]):04x}"
        raise InputError(f"{half} is only half of a character; send bytes that are not text as base64") from None


def _headers(value: Any) -> Sequence[tuple[str, Content]]:
    """Return headers from an object, or from a list of pairs, in which a name may come twice."""
    if value is None:
        return ()
    if isinstance(value, dict):
        value = list(value.items())
    if isinstance(value, list) and all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in value):
        return [(_encoded(str(name)).decode(), _content(content)) for name, content in value]
    raise InputError("headers must be a JSON object, or a list of [name, value] pairs")


def parse_headers(texts: Sequence[str]) -> list[tuple[str, Content]]:
    """Parse headers in the form of kcat: name=value; a name alone has a null value."""
    found: list[tuple[str, Content]] = []
    for text in texts:
        name, equals, content = text.partition("=")
        if not name:
            raise InputError(f"{text!r} is not a header: give name=value")
        found.append((name, content if equals else None))
    return found


# --- sending ----------------------------------------------------------------------------------------------------------


@dataclass
class DeliveryCounts:
    """Counts of sent, delivered and failed records."""

    sent: int = 0
    delivered: int = 0
    failed: int = 0
    problems: Counter[str] = field(default_factory=Counter)
    partitions: set[int] = field(default_factory=set)

    def settled(self, metadata: RecordMetadata | None, error: KafkaError | None) -> None:
        """Count one record. Only the background thread calls this."""
        if metadata is not None:
            self.delivered += 1
            self.partitions.add(metadata.partition)
        else:
            self.failed += 1
            self.problems[str(error)] += 1

    def summary(self, topic: str, seconds: float) -> str:
        where = f" in {len(self.partitions)} partitions" if len(self.partitions) > 1 else ""
        rate = f", {self.delivered / seconds:,.0f} records/s" if seconds >= SHOWN_AFTER_S else ""
        records = "record" if self.delivered == 1 else "records"
        text = f"{self.delivered:,} {records} delivered to {topic}{where} in {seconds:.1f} s{rate}"
        missing = self.sent - self.delivered
        return f"{text}; {missing:,} failed" if missing else text


class ProgressLine:
    """Show progress in one line on stderr, after a second, and only on a terminal."""

    def __init__(self, tally: DeliveryCounts, clock: Callable[[], float]) -> None:
        self._tally = tally
        self._clock = clock
        self._began = clock()
        self._next = self._began + SHOWN_AFTER_S
        self._is_shown = False
        self._is_wanted = sys.stderr.isatty()

    @property
    def seconds(self) -> float:
        return self._clock() - self._began

    def look(self) -> None:
        now = self._clock()
        if self._is_wanted and now >= self._next:
            self._next = now + SHOWN_EVERY_S
            self._is_shown = True
            seconds = now - self._began
            rate = self._tally.delivered / seconds
            typer.echo(f"\r{self._tally.delivered:,} delivered, {rate:,.0f} records/s  ", err=True, nl=False)

    def end(self) -> None:
        if self._is_shown:
            typer.echo("\r\033[K", err=True, nl=False)


def produce(
    topic: str,
    files: Sequence[Path],
    *,
    bootstrap: str | None,
    key_delimiter: str | None,
    headers: Sequence[str],
    as_json: bool,
    partition: int | None,
    compression: str | None,
    acks: str | None,
    count: int | None,
    empty_is_null: bool,
    config: Path | None,
    sets: Sequence[str],
) -> None:
    """Send the input. The exit status is 0 if every record was delivered, 1 if not, and 130 after Ctrl-C."""
    try:
        if as_json and key_delimiter is not None:
            raise InputError("--json and --key-delimiter contradict each other: the key is a field of the JSON object")
        more = parse_headers(headers)
        properties = properties_of(config)
        settings = ProducerSettings.load(
            properties,
            sets,
            DEFAULTS,
            compression_type=compression,
            acks=acks,
            bootstrap_servers=bootstrap,
        )
        with ExitStack() as stack:
            inputs = [cast("BinaryIO", stack.enter_context(path.open("rb"))) for path in files] or [sys.stdin.buffer]
            lines: Iterator[bytes] = (line for each in inputs for line in _lines(each))
            found = read_json(lines) if as_json else split_lines(lines, key_delimiter, empty_is_null=empty_is_null)
            stack.enter_context(warnings_shown("coterie.producer", _say, _is_in_summary))
            status = _send_all(topic, islice(found, count), more, partition, settings)
    except (CoterieError, OSError, UnicodeDecodeError) as error:
        typer.echo(f"coterie: {error}", err=True)
        raise typer.Exit(1) from None
    if status:
        raise typer.Exit(status)


def _say(warning: str) -> None:
    typer.echo(f"% {warning}", err=True)


def _is_in_summary(event: object) -> bool:
    """Return whether the summary reports this event."""
    return isinstance(event, DeliveryFailed | ClosedWithRecords)


def _lines(source: BinaryIO | BufferedIOBase) -> Iterator[bytes]:
    yield from source


def _send_all(
    topic: str,
    found: Iterable[InputRecord],
    headers: Sequence[tuple[str, Content]],
    partition: int | None,
    settings: ProducerSettings,
) -> int:
    tally = DeliveryCounts()
    progress = ProgressLine(tally, time.perf_counter)  # noqa: TID251  the duration is part of the output
    problem: CoterieError | OSError | None = None
    interrupted = False
    producer = Producer(settings)
    try:
        for each in found:
            producer.send(
                topic,
                each.value,
                key=each.key,
                headers=[*headers, *each.headers],
                partition=partition if each.partition is None else each.partition,
                timestamp=each.timestamp,
                on_delivery=tally.settled,
            )
            tally.sent += 1
            progress.look()
    except (CoterieError, OSError) as error:  # also from the input; what was read is delivered
        problem = error
    except KeyboardInterrupt:
        interrupted = True
        typer.echo("interrupted: delivering what was read (press Ctrl-C again to exit immediately)", err=True)
    try:
        producer.close()
    except KeyboardInterrupt:
        interrupted = True
    except KafkaError as error:
        problem = problem or error
    progress.end()
    for problem_text, times in tally.problems.most_common(PROBLEMS_SHOWN):
        typer.echo(f"coterie: {problem_text}" + (f" ({times:,} records)" if times > 1 else ""), err=True)
    if problem is not None:
        typer.echo(f"coterie: {problem}", err=True)
    typer.echo(tally.summary(topic, progress.seconds), err=True)
    if interrupted:
        return 130
    return 1 if problem is not None or tally.delivered < tally.sent else 0
