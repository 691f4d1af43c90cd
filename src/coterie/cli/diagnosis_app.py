"""The commands that explain rebalances, and their options. The work is in `diagnosis.py`, loaded when one runs."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coterie.cli.options import Bootstrap, Config, Output, OutputChoice, Sets

if TYPE_CHECKING:
    from coterie.cli.diagnosis_sources import DiagnosisOptions

Group = Annotated[str, typer.Argument(metavar="GROUP")]
OneGroup = Annotated[str | None, typer.Argument(metavar="[GROUP]", help="Only this group (default: all).")]
Ledger = Annotated[
    Path | None, typer.Option("--ledger", metavar="DIR", file_okay=False, help="A ledger of coterie watch.")
]
Data = Annotated[
    Path | None, typer.Option("--data", metavar="DIR", file_okay=False, help="A data directory of a broker.")
]
Logs = Annotated[
    list[str] | None,
    typer.Option("--log", metavar="FILE", help="Log of a broker, plain or gzip; - is stdin. Repeatable."),
]
Zone = Annotated[
    str, typer.Option("--zone", metavar="ZONE", help="Zone of times in logs: UTC, local, +02:00 or a name.")
]
Since = Annotated[
    str | None, typer.Option("--since", metavar="TIME", help="Only since TIME: 2026-01-31T13:00 (UTC), or 2h for ago.")
]
Until = Annotated[str | None, typer.Option("--until", metavar="TIME", help="Only until TIME.")]
Every = Annotated[float, typer.Option("--every", min=0.5, metavar="SECONDS", help="Time between two samples.")]
For = Annotated[
    float | None, typer.Option("--for", min=0, metavar="SECONDS", help="End after this time.", show_default="never")
]
Simulate = Annotated[
    bool, typer.Option("--simulate/--no-simulate", help="Compute what static members or cooperative would save.")
]

_SOURCES: dict[str, tuple[Any, object]] = {
    "ledger": (Ledger, None),
    "data": (Data, None),
    "log": (Logs, None),
    "zone": (Zone, "UTC"),
    "since": (Since, None),
    "until": (Until, None),
    "bootstrap": (Bootstrap, None),
    "config": (Config, None),
    "set_": (Sets, None),
}


def _uses_sources(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of the sources, and pass them to it as `sources`."""

    def run(**options: Any) -> None:
        from coterie.cli.diagnosis_sources import DiagnosisOptions

        found = {name: options.pop(name) for name in _SOURCES}
        found["logs"], found["sets"] = found.pop("log") or (), found.pop("set_") or ()
        command(sources=DiagnosisOptions(**found, group=options.get("group")), **options)

    own = signature(command, eval_str=True, globals={**globals(), "DiagnosisOptions": object})
    shared = [
        Parameter(name, Parameter.KEYWORD_ONLY, annotation=kind, default=default)
        for name, (kind, default) in _SOURCES.items()
    ]
    mine = [one for one in own.parameters.values() if one.name != "sources"]
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__signature__ = own.replace(parameters=[*mine, *shared])  # type: ignore[attr-defined]
    return run


@_uses_sources
def why(
    group: Group,  # noqa: ARG001  it is in the sources
    simulate: Simulate = True,
    output: Output = OutputChoice.table,
    *,
    sources: DiagnosisOptions,
) -> None:
    """Explain the last rebalance of a group: cause, member, duration, moves and cost, each with its evidence.

    It asks the cluster and reads its __consumer_offsets. A log of the group's coordinator (--log) adds the cause and
    the times of classic groups. What no source says is unknown.

    Try it: coterie groups why orders --log server.log

    Try it: coterie groups why orders --ledger ledger -o json
    """
    from coterie.cli import diagnosis

    diagnosis.why(sources, output.value, simulate=simulate)


@_uses_sources
def findings(
    group: OneGroup = None,  # noqa: ARG001  it is in the sources
    simulate: Simulate = True,
    output: Output = OutputChoice.table,
    *,
    sources: DiagnosisOptions,
) -> None:
    """List what is wrong with groups, the worst first: evidence, cost and what to do.

    Try it: coterie groups findings --ledger ledger --since 12h

    Try it: coterie groups findings orders -o json | jq '.[].advice'
    """
    from coterie.cli import diagnosis

    diagnosis.findings(sources, output.value, simulate=simulate)


@_uses_sources
def timeline(
    group: Group,  # noqa: ARG001  it is in the sources
    rows: Annotated[int, typer.Option("--rows", min=1, help="Partitions to show.")] = 40,
    output: Output = OutputChoice.table,
    *,
    sources: DiagnosisOptions,
) -> None:
    """Draw who owned which partition when, in the terminal.

    Try it: coterie groups timeline orders --since 30m
    """
    from coterie.cli import diagnosis

    diagnosis.show_timeline(sources, output.value, rows)


def groups_watch(
    group: OneGroup = None,
    every: Every = 5.0,
    for_: For = None,
    output: Output = OutputChoice.table,
    bootstrap: Bootstrap = None,
    config: Config = None,
    set_: Sets = None,
) -> None:
    """Print rebalances and findings of a live cluster as they happen.

    Try it: coterie groups watch orders
    """
    from coterie.cli import diagnosis
    from coterie.cli.diagnosis_sources import DiagnosisOptions

    sources = DiagnosisOptions(bootstrap, config, set_ or (), group=group)
    diagnosis.groups_watch(sources, output.value, every_s=every, for_s=for_)


def watch(
    ledger: Annotated[
        Path, typer.Option("--ledger", metavar="DIR", file_okay=False, help="Directory for what was read.")
    ] = Path("coterie-ledger"),
    every: Every = 10.0,
    for_: For = None,
    keep_days: Annotated[float, typer.Option("--keep-days", min=0.01, help="Delete what is older.")] = 30.0,
    bootstrap: Bootstrap = None,
    config: Config = None,
    set_: Sets = None,
) -> None:
    """Read the groups of any Kafka cluster into a ledger, which other commands explain.

    It reads __consumer_offsets, describes all groups every few seconds, and stores both in one SQLite file. It joins no
    group and commits nothing. If it is killed and started again it continues where it stopped. On a Coterie broker it
    also reads what the coordinator recorded. It needs the rights Describe on the cluster and the groups, and Read on
    __consumer_offsets.

    Try it: coterie watch --bootstrap localhost:9092 --ledger ledger
    """
    from coterie.cli import diagnosis
    from coterie.cli.diagnosis_sources import DiagnosisOptions

    sources = DiagnosisOptions(bootstrap, config, set_ or ())
    diagnosis.watch(sources, ledger, every_s=every, for_s=for_, keep_days=keep_days)


def explain(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Logs of brokers, plain or gzip; - is stdin.")],
    group: Annotated[str | None, typer.Option("--group", "-g", help="Only this group.")] = None,
    since: Since = None,
    until: Until = None,
    zone: Zone = "UTC",
    ledger: Annotated[
        Path | None, typer.Option("--ledger", metavar="DIR", file_okay=False, help="Also store the lines here.")
    ] = None,
    output: Output = OutputChoice.table,
) -> None:
    """Explain every rebalance in the logs of Apache Kafka brokers: cause, member and reason.

    It knows the lines of Kafka 1.0 to 4.3, in any layout. The loggers kafka.coordinator.group and
    org.apache.kafka.coordinator.group must have the level INFO, as they have by default.

    Try it: coterie explain server.log

    Try it: zcat server.log.2026-01-31-*.gz | coterie explain - --group orders
    """
    from coterie.cli import diagnosis
    from coterie.cli.diagnosis_sources import DiagnosisOptions

    sources = DiagnosisOptions(logs=files, zone=zone, since=since, until=until, group=group)
    diagnosis.explain(sources, output.value, ledger)
