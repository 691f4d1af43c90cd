"""The sources of a diagnosis: a live cluster, a ledger, a data directory, logs of brokers."""

from __future__ import annotations

import gzip
import io
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from pathlib import Path
from typing import TextIO
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from coterie.cli.options import CONNECT_MS, DEFAULTS, CommandError, properties_of
from coterie.diagnosis.broker_log import BrokerLog
from coterie.diagnosis.cluster_watch import SETTINGS, ClusterWatch
from coterie.diagnosis.evidence import Grade
from coterie.diagnosis.from_facts import HistoryBuilder
from coterie.diagnosis.ledger_file import LedgerFile
from coterie.diagnosis.merge import merge_all
from coterie.diagnosis.model import GroupHistory
from coterie.diagnosis.records import OffsetsTopic
from coterie.ledger.written_facts import FACTS_TOPIC
from coterie.protocol.offsets_topic import OFFSETS_TOPIC
from coterie.settings.client_settings import AdminSettings
from coterie.settings.consumer_settings import ConsumerSettings, duration_ms
from coterie.structs import replace

Histories = dict[str, GroupHistory]
CATCH_UP_S = 30.0
"""How long a command reads `__consumer_offsets` of a live cluster before it goes on with what it has."""
STDIN = "-"
_GZIP = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class DiagnosisOptions:
    """The sources to read, and the time to read of them."""

    bootstrap: str | None = None
    config: Path | None = None
    sets: Sequence[str] = ()
    ledger: Path | None = None
    data: Path | None = None
    logs: Sequence[str] = ()
    zone: str = "UTC"
    since: str | None = None
    until: str | None = None
    group: str | None = None

    @property
    def is_live(self) -> bool:
        """Return whether a cluster is asked: if it is named, or if nothing else is."""
        return self.bootstrap is not None or not (self.ledger or self.data or self.logs)


def gather(options: DiagnosisOptions, note: Callable[[str], None], now_ms: int) -> Histories:
    """Return the history of each group from all sources, within the wanted time."""
    since, until = parse_time(options.since, now_ms), parse_time(options.until, now_ms)
    if since is not None and until is not None and since > until:
        raise CommandError("--since is later than --until: nothing is between them")
    sources: list[Histories] = []
    if options.ledger is not None:
        with LedgerFile(options.ledger) as ledger:
            sources.append(ledger.histories(options.group))
    if options.data is not None:
        sources.append(from_data_directory(options.data))
    if options.logs:
        sources.append(read_logs(options.logs, parse_zone(options.zone), note).histories())
    if options.is_live:
        with watching(options) as watch:
            if not watch.catch_up(CATCH_UP_S):
                note(
                    f"__consumer_offsets was not read to its end within {CATCH_UP_S:.0f} s: use coterie watch --ledger"
                )
            watch.sample([options.group] if options.group is not None else None)
            sources.append(watch.histories())
    found = merge_all(sources)
    if options.group is not None:
        found = {name: one for name, one in found.items() if name == options.group}
        if not found:
            raise CommandError(f'nothing is known about group "{options.group}"; coterie groups list lists the groups')
    return {name: within(one, since, until) for name, one in found.items()}


def settings_of(options: DiagnosisOptions) -> tuple[AdminSettings, ConsumerSettings]:
    properties = properties_of(options.config)
    admin = AdminSettings.load(properties, options.sets, DEFAULTS, bootstrap_servers=options.bootstrap or None)
    consumer = ConsumerSettings.load(
        properties, options.sets, {**DEFAULTS, **SETTINGS}, bootstrap_servers=options.bootstrap or None
    )
    return admin, consumer


@contextmanager
def watching(options: DiagnosisOptions, ledger: LedgerFile | None = None) -> Iterator[ClusterWatch]:
    """Connect to the cluster, for as long as the block runs."""
    watch = ClusterWatch(*settings_of(options), ledger)
    try:
        watch.open(CONNECT_MS)
        yield watch
    finally:
        watch.close()


def from_data_directory(data: Path) -> Histories:
    """Read a data directory: the facts of Coterie's broker, else `__consumer_offsets`."""
    from coterie.cli.report import OBSERVED, all_facts, records_of, topic_names

    group_facts, note = all_facts(data)
    if note is OBSERVED:
        builder = HistoryBuilder(Grade.OBSERVED)
        for fact in group_facts:
            builder.add(fact, f"{data}/{FACTS_TOPIC}-0")
        return builder.histories()
    topic = OffsetsTopic(topic_names(data))
    for partition in sorted(data.glob(f"{OFFSETS_TOPIC}-*")):
        number = int(partition.name.rpartition("-")[2])
        for record in records_of(partition):
            topic.add(number, record.offset, record.timestamp, record.key, record.value)
    return topic.histories()


def within(history: GroupHistory, since: int | None, until: int | None) -> GroupHistory:
    """Return the part of a history between two times."""
    if since is None and until is None:
        return history
    first = since if since is not None else -(1 << 62)
    last = until if until is not None else 1 << 62
    return replace(
        history,
        rebalances=[one for one in history.rebalances if first <= one.at_ms <= last],
        past=[one for one in history.past if (one.gone_ms.value or last) >= first],
        intervals=[
            one for one in history.intervals if one.began_ms <= last and (one.ended_ms is None or one.ended_ms >= first)
        ],
        samples=[one for one in history.samples if first <= one.at_ms <= last],
        events=[one for one in history.events if first <= one.at_ms <= last],
        from_ms=max(history.from_ms or first, first),
        to_ms=min(history.to_ms or last, last),
    )


# --- logs -------------------------------------------------------------------------------------------------------------


def read_logs(files: Sequence[str], zone: tzinfo, note: Callable[[str], None]) -> BrokerLog:
    log = BrokerLog(zone)
    for name, _, lines in log_lines(files):
        log.read(lines, name)
    if not log.used:
        note(
            f"none of {log.lines} lines is about a consumer group: is this the log of a broker, with the level INFO "
            "for kafka.coordinator.group and org.apache.kafka.coordinator.group?"
        )
    return log


def log_lines(files: Sequence[str]) -> Iterator[tuple[str, str, TextIO]]:
    """Return each file's short name, its path and its lines; `-` is standard input, and gzip is recognised."""
    for file in files:
        if file == STDIN:
            yield "stdin", STDIN, _text(io.BufferedReader(io.FileIO(sys.stdin.fileno(), closefd=False)))
            continue
        try:
            with Path(file).open("rb") as raw:
                yield Path(file).name, file, _text(raw)
        except (gzip.BadGzipFile, EOFError) as error:
            raise CommandError(f"{file} is a damaged gzip file: {error}") from None


def _text(raw: io.BufferedReader) -> TextIO:
    is_gzip = raw.peek(2)[:2] == _GZIP
    return io.TextIOWrapper(gzip.GzipFile(fileobj=raw) if is_gzip else raw, encoding="utf-8", errors="replace")


# --- times ------------------------------------------------------------------------------------------------------------

_AGO = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|min|h|d)")
_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_time(text: str | None, now_ms: int) -> int | None:
    """Parse --since or --until: 2026-01-31T13:00 (UTC if there is no zone), or how long ago: 90s, 15m, 2h, 1d, PT1H."""
    if text is None:
        return None
    ago = _AGO.fullmatch(text.strip())
    if ago:
        return now_ms - round(float(ago[1]) * _UNITS[ago[2]])
    if text[:1] in ("P", "p"):
        try:
            return now_ms - duration_ms(text)
        except ValueError as error:
            raise CommandError(f"{text!r} is not a duration: {error}") from None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise CommandError(
            f"{text!r} is not a time: give 2026-01-31T13:00:00, with a zone such as +02:00 unless it is UTC, or how "
            "long ago it was: 90s, 15m, 2h, 1d"
        ) from None
    return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1_000)


def parse_zone(text: str) -> tzinfo:
    """Parse the zone of times in a log: UTC, local, +02:00 or Europe/Paris."""
    if text.upper() == "UTC":
        return UTC
    if text == "local":
        local = datetime.fromtimestamp(0, UTC).astimezone().tzinfo
        return local if local is not None else UTC
    found = re.fullmatch(r"([+-])(\d\d):?(\d\d)", text)
    if found:
        sign = -1 if found[1] == "-" else 1
        return timezone(sign * timedelta(hours=int(found[2]), minutes=int(found[3])))
    try:
        return ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError):
        raise CommandError(
            f"--zone {text}: unknown zone; give UTC, local, +02:00 or a name such as Europe/Paris"
        ) from None
