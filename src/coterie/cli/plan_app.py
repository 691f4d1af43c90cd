"""`coterie plan`: its commands and their options. The work is in `plan.py`, loaded when a command runs."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coterie.cli.diagnosis_app import Ledger
from coterie.cli.options import Bootstrap, Config, Output, OutputChoice

if TYPE_CHECKING:
    from coterie.forecast.changes import Change

plan_app = typer.Typer(
    no_args_is_help=True,
    help="Forecast what a change will cost a consumer group, before you make it.\n\n"
    "It simulates the group with Coterie's broker and consumers in virtual time, once for each seed, and "
    "prints the median of each cost, with p10 and p90. Ctrl-C prints the answer from the worlds so far.\n\n"
    "Begin with a file that describes the group (docs/plan.md), or let 'coterie plan group' measure one.\n\n"
    "Try it: coterie plan deploy group.toml --compare usual",
)

File = Annotated[
    Path | None,
    typer.Argument(
        metavar="[FILE]",
        help="The group, in TOML or JSON, as plan group writes it.",
    ),
]
Group = Annotated[str | None, typer.Option("--group", "-g", help="A live or recorded group, in place of FILE.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A setting for all variants. Repeatable."),
]
Compare = Annotated[
    list[str] | None,
    typer.Option(
        "--compare",
        metavar="SETTINGS",
        help="Variant: NAME=VALUE,... or usual. Repeatable.",
    ),
]
AtMost = Annotated[
    list[str] | None,
    typer.Option(
        "--at-most",
        metavar="COST=NUMBER",
        help="A bound, as worst_lag_s@p99=10. Repeatable.",
    ),
]
Seeds = Annotated[
    str,
    typer.Option(
        "--seeds",
        metavar="FIRST-LAST",
        help="Seeds of each variant.",
    ),
]
Jobs = Annotated[
    int | None, typer.Option("--jobs", min=1, help="Processes that simulate.", show_default="one per core")
]
Out = Annotated[
    Path | None,
    typer.Option("--out", metavar="DIR", file_okay=False, help="Write plan.html and a row for each world."),
]
Spark = Annotated[
    bool,
    typer.Option("--spark", help="Simulate with Spark; needs --out and Java 17."),
]
Master = Annotated[
    str | None,
    typer.Option("--master", help="Spark master.", show_default="local[*]"),
]

_SHARED: dict[str, tuple[Any, object]] = {
    "group": (Group, None),
    "ledger": (Ledger, None),
    "bootstrap": (Bootstrap, None),
    "config": (Config, None),
    "set_": (SetOption, None),
    "compare": (Compare, None),
    "at_most": (AtMost, None),
    "seeds": (Seeds, "0-9"),
    "jobs": (Jobs, None),
    "out": (Out, None),
    "spark": (Spark, False),
    "master": (Master, None),
    "output": (Output, OutputChoice.table),
}


def _asks(command: Callable[..., Change]) -> Callable[..., None]:
    """Give a command the file and the shared options, and forecast the change that it returns."""

    def run(file: Path | None, **options: Any) -> None:
        from coterie.cli.plan import PlanOptions, ask

        shared = {name: options.pop(name) for name in _SHARED}
        ask(command(**options), PlanOptions.of(file, **shared))

    own = signature(command, eval_str=True, globals={**globals(), "Change": object})
    first = Parameter("file", Parameter.POSITIONAL_OR_KEYWORD, annotation=File, default=None)
    mine = [one.replace(kind=Parameter.KEYWORD_ONLY) for one in own.parameters.values()]
    shared = [
        Parameter(name, Parameter.KEYWORD_ONLY, annotation=kind, default=default)
        for name, (kind, default) in _SHARED.items()
    ]
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__signature__ = own.replace(  # type: ignore[attr-defined]
        parameters=[first, *mine, *shared], return_annotation=None
    )
    return run


class OrderChoice(StrEnum):
    listed = "listed"
    reversed = "reversed"
    random = "random"


Batch = Annotated[int, typer.Option(min=1, help="Members that are down at the same time.")]
Pause = Annotated[float, typer.Option(min=0, metavar="SECONDS", help="Time between two batches.")]


@plan_app.command()
@_asks
def deploy(
    batch: Batch = 1,
    pause: Pause = 10.0,
    order: Annotated[OrderChoice, typer.Option(help="Order of members.")] = OrderChoice.listed,
    kill: Annotated[bool, typer.Option("--kill", help="Members do not close.")] = False,
    new: Annotated[
        list[str] | None, typer.Option("--new", metavar="NAME=VALUE", help="A setting of the new processes.")
    ] = None,
) -> Change:
    """Forecast a rolling deploy.

    Try it: coterie plan deploy group.toml --batch 3 --compare usual

    Try it: coterie plan deploy -g orders --ledger ledger --out plan
    """
    from coterie.forecast.changes import Deploy
    from coterie.forecast.group_model import settings_of

    return Deploy(batch, pause, order.value, kill, settings_of(new or []))


@plan_app.command()
@_asks
def scale(
    to: Annotated[int, typer.Option("--to", min=1, help="The new number of members.")],
) -> Change:
    """Forecast a change of the number of members.

    Try it: coterie plan scale group.toml --to 20
    """
    from coterie.forecast.changes import Scale

    return Scale(to)


@plan_app.command()
@_asks
def autoscale(
    threshold: Annotated[int, typer.Option(min=1, help="Lag, in records, for one member.")],
    every: Annotated[float, typer.Option(min=1, metavar="SECONDS", help="Time between two checks of the lag.")] = 30.0,
    cool_down: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="Wait before members are removed.")
    ] = 300.0,
    least: Annotated[int, typer.Option("--min", min=1, help="The fewest members.")] = 1,
    most: Annotated[int, typer.Option("--max", min=1, help="The most members.")] = 100,
    surge: Annotated[float, typer.Option(min=0, help="Factor for the record rate at the start.")] = 3.0,
    surge_minutes: Annotated[float, typer.Option(min=0, help="Its duration.")] = 5.0,
    minutes: Annotated[float, typer.Option(min=1, help="Simulated time.")] = 20.0,
) -> Change:
    """Forecast an autoscaler with the rule of KEDA: ceil(lag / threshold) members.

    Try it: coterie plan autoscale group.toml --threshold 1000 --max 12
    """
    from coterie.forecast.changes import Autoscale

    return Autoscale(threshold, every, cool_down, least, most, surge, surge_minutes, minutes)


@plan_app.command()
@_asks
def crash(
    per_hour: Annotated[
        float | None, typer.Option(min=0, help="Crashes of all members per hour.", show_default="one crash")
    ] = None,
    hours: Annotated[float, typer.Option(min=0, help="With --per-hour: simulated time.")] = 0.5,
    restart: Annotated[bool, typer.Option("--restart/--no-restart", help="Start the process again.")] = True,
) -> Change:
    """Forecast crashes of members.

    Try it: coterie plan crash group.toml --compare session.timeout.ms=10000
    """
    from coterie.forecast.changes import Crashes

    return Crashes(per_hour, hours, restart)


@plan_app.command()
@_asks
def slow(
    factor: Annotated[float, typer.Option(min=1, help="How many times slower.")] = 10.0,
    minutes: Annotated[float, typer.Option(min=0, help="For how long.")] = 5.0,
    stall: Annotated[
        float | None, typer.Option(min=0, metavar="SECONDS", help="Instead: one poll's records take longer.")
    ] = None,
) -> Change:
    """Forecast a member whose processing is slow for a while, or stalls once.

    Try it: coterie plan slow group.toml --factor 30 --compare max.poll.records=50
    """
    from coterie.forecast.changes import Slow

    return Slow(factor, minutes, stall)


@plan_app.command()
@_asks
def partitions(
    topic: Annotated[str, typer.Option(help="The topic that grows.")],
    to: Annotated[int, typer.Option("--to", min=2, help="Its new number of partitions.")],
) -> Change:
    """Forecast the addition of partitions to a topic.

    Try it: coterie plan partitions group.toml --topic orders --to 48
    """
    from coterie.forecast.changes import Grow

    return Grow(topic, to)


@plan_app.command()
@_asks
def steady(
    minutes: Annotated[float, typer.Option(min=0, help="Simulated time.")] = 10.0,
) -> Change:
    """Forecast the group by itself: its lag, and what its pauses cost.

    Try it: coterie plan steady group.toml --compare session.timeout.ms=6000
    """
    from coterie.forecast.changes import Nothing

    return Nothing(minutes)


@plan_app.command()
def tune(
    file: File = None,
    batch: Batch = 1,
    pause: Pause = 10.0,
    crash: Annotated[bool, typer.Option("--crash/--no-crash", help="A member crashes after the deploy.")] = True,
    minimize: Annotated[str, typer.Option(metavar="COST", help="The cost to minimize.")] = "unread_s",
    group: Group = None,
    ledger: Ledger = None,
    bootstrap: Bootstrap = None,
    config: Config = None,
    set_: SetOption = None,
    at_most: AtMost = None,
    seeds: Seeds = "0-9",
    jobs: Jobs = None,
    out: Out = None,
    spark: Spark = False,
    master: Master = None,
    output: Output = OutputChoice.table,
) -> None:
    """Search for settings that make a deploy and a crash cheap, within bounds.

    It tries protocols, static membership, session timeouts and batch sizes: all of them with three seeds, and the
    best six with all seeds.

    Try it: coterie plan tune group.toml --at-most worst_lag_s@p99=10 --at-most detection_s=15

    Try it: coterie plan tune group.toml --seeds 0-272 --spark --master 'local[2]' --out sweep
    """
    from coterie.cli.plan import PlanOptions, ask_tune
    from coterie.forecast.changes import Crashes, Deploy, InTurn

    change = InTurn((Deploy(batch, pause), *((Crashes(),) if crash else ())))
    options = PlanOptions.of(
        file,
        group=group,
        ledger=ledger,
        bootstrap=bootstrap,
        config=config,
        set_=set_,
        compare=None,
        at_most=at_most,
        seeds=seeds,
        jobs=jobs,
        out=out,
        spark=spark,
        master=master,
        output=output,
    )
    ask_tune(change, options, minimize)


@plan_app.command("group")
def group_command(
    group: Annotated[str, typer.Argument(metavar="GROUP")],
    ledger: Ledger = None,
    bootstrap: Bootstrap = None,
    config: Config = None,
    seconds: Annotated[float, typer.Option("--for", min=1, help="Seconds to measure a live group.")] = 10.0,
) -> None:
    """Print a group as a file for the other commands: what was measured, and what is assumed.

    Try it: coterie plan group orders --bootstrap localhost:9092
    """
    from coterie.cli.plan import show_group

    show_group(group, ledger=ledger, bootstrap=bootstrap, config=config, seconds=seconds)
