"""`coterie repair`: check a data directory for damage, list what is lost, and repair it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import typer

from coterie.broker.broker import fresh_id
from coterie.broker.io.clock import wall_ms
from coterie.errors import CoterieError, MalformedError
from coterie.protocol.batch import parse_header
from coterie.protocol.offsets_topic import OFFSETS_TOPIC, Skipped, read_key
from coterie.protocol.records import raw_records
from coterie.settings.broker_settings import BrokerSettings
from coterie.storage import DiskFiles, Files
from coterie.storage.data_directory import LOCK_FILE
from coterie.storage.log_inspection import LogFinding, batches_left
from coterie.storage.metadata_files import id_text
from coterie.storage.repair import Findings, carry_out, inspect

MAX_GROUPS = 50


def repair(data: Path, *, accept_loss: bool, cluster_id: str | None, node_id: int | None) -> None:
    """Check and repair a directory. The exit status is 1 if there is damage that was not repaired."""
    if not data.is_dir():
        raise CoterieError(f"{data} is not a directory: give the data directory of a broker")
    files = DiskFiles(data)
    try:
        lock = files.lock(LOCK_FILE)
    except BlockingIOError:
        raise CoterieError(f"a broker is using {data}: stop it first") from None
    try:
        chosen = BrokerSettings().node_id if node_id is None else node_id
        found = inspect(files, cluster_id=cluster_id or id_text(fresh_id()), node_id=chosen)
        checked = f"read {len(found.logs)} logs with {found.batches} batches"
        if not found.is_damaged:
            typer.echo(f"no damage found: {checked}, all checksums match")
            return
        lines = list(_lines(files, found))
        typer.echo(f"{data} is damaged ({checked}):")
        typer.echo("\n".join(lines))
        if not accept_loss:
            typer.echo(
                f"Nothing was changed. To repair it: coterie repair {data} --accept-loss (keeps copies of the damaged "
                "files and a report)"
            )
            raise typer.Exit(1)
        aside = f"damaged-{datetime.fromtimestamp(wall_ms() / 1000, UTC):%Y%m%dT%H%M%S}"
        carry_out(files, found, aside, ("\n".join(lines) + "\n").encode())
        typer.echo(f"Repaired. Copies of the damaged files and report.txt are in {data / aside}.")
    finally:
        lock.release()


def _lines(files: Files, found: Findings) -> Iterator[str]:
    for file in found.files:
        yield f"  {file.path} {file.wrong}: {file.remedy}"
    for log in found.damaged_logs:
        for wrong in log.wrong:
            yield f"  {wrong}"
        for first, after in log.lost:
            yield f"    lost: offsets {first} to {after - 1} of {log.path} ({after - first})"
        if not log.lost:
            yield f"    lost: nothing of {log.path}"
        if log.topic.name == OFFSETS_TOPIC:
            yield f"    groups in {log.path} whose offsets may be old or lost: {_groups(files, log)}"


def _groups(files: Files, log: LogFinding) -> str:
    """Return the groups named in what is left of the log."""
    names = set()
    for data in batches_left(files, log):
        with suppress(MalformedError):
            header = parse_header(data)
            for record in raw_records(data, header, 0):
                key = read_key(record.key or b"")
                if not isinstance(key, Skipped):
                    names.add(key.group_id)
    listed = sorted(names)
    more = f", and {len(listed) - MAX_GROUPS} more" if len(listed) > MAX_GROUPS else ""
    return (", ".join(listed[:MAX_GROUPS]) + more) or "no group found in the remaining records"
