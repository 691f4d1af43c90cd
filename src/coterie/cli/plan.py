"""`coterie plan`: read a group, simulate a change many times, and print what it costs and what would be better."""

from __future__ import annotations

import json
import os
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from coterie.cli.diagnosis_sources import CATCH_UP_S, DiagnosisOptions, gather, watching
from coterie.cli.options import CommandError
from coterie.cli.output import Rows, message_of, show, show_objects
from coterie.cli.plan_worlds import Worlds, WorldsOnSpark, note
from coterie.cli.sim import parse_numbers
from coterie.diagnosis.recorded_group import recorded_group
from coterie.forecast.changes import Change
from coterie.forecast.costs import COSTS
from coterie.forecast.group_model import GroupModel, group_file, parse_group, settings_of
from coterie.forecast.simulated_group import Question, simulate_owners
from coterie.forecast.variants import (
    AS_IT_IS,
    Choice,
    Forecast,
    Requirement,
    advice,
    choose,
    forecasts,
    parse_requirement,
    tune,
    variants_of,
)

if TYPE_CHECKING:
    from coterie.cli.options import OutputChoice

MEASURE_S = 10.0
PAGE = "plan.html"
SHOWN = ("rebalances", "unassigned_s", "unread_s", "records_delayed", "worst_lag_s", "catch_up_s", "duplicates")
"""The costs of the plain table; `wide` has all."""
PERCENTILES = (10, 50, 90, 99)
INTERRUPTED = 130


@dataclass(frozen=True)
class PlanOptions:
    """The group to read, the variants to try, and the way to run them."""

    file: Path | None
    group: str | None
    ledger: Path | None
    bootstrap: str | None
    config: Path | None
    settings: Sequence[str]
    compare: Sequence[str]
    requirements: Sequence[Requirement]
    seeds: Sequence[int]
    jobs: int
    out: Path | None
    spark: bool
    master: str | None
    output: str

    @classmethod
    def of(
        cls,
        file: Path | None,
        *,
        set_: Sequence[str] | None,
        compare: Sequence[str] | None,
        at_most: Sequence[str] | None,
        seeds: str,
        jobs: int | None,
        output: OutputChoice,
        **more: Any,
    ) -> PlanOptions:
        if more["spark"] and more["out"] is None:
            raise CommandError("--spark needs --out DIR: its tables are written there")
        if more["master"] is not None and not more["spark"]:
            raise CommandError("--master is of no use without --spark: add --spark, or leave --master out")
        return cls(
            file,
            settings=set_ or (),
            compare=compare or (),
            requirements=[parse_requirement(one) for one in at_most or ()],
            seeds=parse_numbers(seeds),
            jobs=jobs or os.cpu_count() or 1,
            output=output.value,
            **more,
        )


def ask(change: Change, options: PlanOptions) -> None:
    """Forecast a change, and its variants."""
    question = Question(_model(options), change, AS_IT_IS)
    _say_load(question.model)
    with _worlds(options) as run:
        found = forecasts(variants_of(question, options.compare), options.seeds, run)
    _answer(found, options, "unread_s", run)


def ask_tune(change: Change, options: PlanOptions, minimize: str) -> None:
    """Search for settings."""
    if minimize not in COSTS:
        raise CommandError(f"--minimize {minimize}: there is no such cost; give one of {', '.join(COSTS)}")
    question = Question(_model(options), change, AS_IT_IS)
    _say_load(question.model)
    with _worlds(options) as run:
        found = tune(question, options.requirements, options.seeds, run, minimize, note)
    _answer(found, options, minimize, run)


def _worlds(options: PlanOptions) -> Worlds:
    if not options.spark:
        return Worlds(options.out, options.jobs)
    assert options.out is not None
    return WorldsOnSpark(options.out, options.master)


def show_group(group: str, *, ledger: Path | None, bootstrap: str | None, config: Path | None, seconds: float) -> None:
    typer.echo(group_file(_recorded(group, ledger, bootstrap, config, seconds)), nl=False)


# --- the group --------------------------------------------------------------------------------------------------------


def _model(options: PlanOptions) -> GroupModel:
    if (options.file is None) == (options.group is None):
        raise CommandError(
            "give either a FILE with the group, or --group NAME with --ledger DIR or --bootstrap HOST:PORT"
        )
    if options.file is not None:
        model = _read(options.file)
    else:
        assert options.group is not None
        model = _recorded(options.group, options.ledger, options.bootstrap, options.config, MEASURE_S)
    return model.with_settings(settings_of(options.settings))


def _read(file: Path) -> GroupModel:
    how = (
        "describe the group in TOML or JSON as docs/plan.md shows, or let coterie plan group NAME --bootstrap "
        "HOST:PORT write the file"
    )
    try:
        text = file.read_text(encoding="utf-8")
        data = json.loads(text) if file.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise CommandError(f"{message_of(error)}; {how}") from None
    except ValueError as error:  # no UTF-8, no TOML, no JSON
        kind = "JSON" if file.suffix == ".json" else "TOML"
        raise CommandError(f"{file} cannot be read as {kind}: {error}; {how}") from None
    if not isinstance(data, dict):
        raise CommandError(f"{file} is not a group: it must be an object. docs/plan.md has the format")
    return parse_group(data, str(file))


def _recorded(
    group: str, ledger: Path | None, bootstrap: str | None, config: Path | None, seconds: float
) -> GroupModel:
    """Read a group from a ledger, or measure a live one for some seconds."""
    sources = DiagnosisOptions(bootstrap, config, ledger=ledger, group=group)
    if not sources.is_live:
        return recorded_group(gather(sources, note, time.time_ns() // 1_000_000)[group])
    with watching(sources) as watch:
        watch.catch_up(CATCH_UP_S)
        watch.sample([group])
        note(f"measuring group {group} for {seconds:g} s")
        until = time.monotonic() + seconds  # noqa: TID251
        while time.monotonic() < until:  # noqa: TID251
            watch.poll(min(max(until - time.monotonic(), 0.05), 1.0))  # noqa: TID251
        watch.sample([group])
        found = watch.histories()
    if group not in found:
        raise CommandError(f'nothing is known about group "{group}"; coterie groups list lists the groups')
    return recorded_group(found[group])


def _say_load(model: GroupModel) -> None:
    if model.load > 1:
        note(
            f"the group falls behind without any change: {model.records_per_s:g} records/s need {model.load:.0%} of "
            "the time of its members. Check records_per_s and ms_per_record"
        )


# --- the answer -------------------------------------------------------------------------------------------------------


def _answer(found: Sequence[Forecast], options: PlanOptions, minimize: str, run: Worlds) -> None:
    if run.is_interrupted:
        _say_what_is_missing(found, options, run)
    if not found[0].costs:
        raise typer.Exit(INTERRUPTED)
    choice = choose(found, options.requirements, minimize)
    paste = advice(choice)
    if options.output in {"json", "yaml"}:
        show_objects([_object(choice, found, paste)], options.output)
    else:
        show(_rows(found, options.output), options.output)
    if options.output == "table":
        _print_text(choice, found, paste)
    if options.out is not None:
        _write(options.out, choice, found, paste)
    if run.is_interrupted:
        raise typer.Exit(INTERRUPTED)
    if not choice.meets_all:
        raise typer.Exit(1)


def _say_what_is_missing(found: Sequence[Forecast], options: PlanOptions, run: Worlds) -> None:
    whole = len(found[0].costs)
    text = f"interrupted: {run.ran} of {run.asked} worlds ran"
    if run.rows_in is not None and run.ran:
        text += f"; their rows are in {run.rows_in}"
    missing = options.seeds[whole:]
    if missing and whole:
        text += (
            f". The answer rests on {whole} of {len(options.seeds)} seeds, those that all variants have; "
            f"{len(missing)} are missing, from {missing[0]} on"
        )
    elif missing:
        text += ". No seed has all variants yet, so there is no answer"
    note(text)


def _rows(found: Sequence[Forecast], output: str) -> Rows:
    names = SHOWN if output == "table" else tuple(COSTS)
    if output == "table":  # a cost that matters in this question
        names += tuple(
            name
            for name in ("detection_s", "evictions")
            if any(value for one in found for value in one.spread(name).values)
        )
    rows = [(one.question.name, *(one.spread(name).text for name in names)) for one in found]
    return Rows(("VARIANT", *(COSTS[name].title.upper() for name in names)), rows)


def _print_text(choice: Choice, found: Sequence[Forecast], paste: Sequence[str]) -> None:
    question = found[0].question
    members, partitions = len(question.model.members), question.model.partitions
    typer.echo("")
    typer.echo(f"{question.change.described}; {members} members, {partitions} partitions, {len(found[0].costs)} seeds")
    typer.echo("Each figure is the median, with p10-p90 in brackets.")
    if not all(cost.is_stable for one in found for cost in one.costs):
        bad = [one.question.name for one in found if not all(cost.is_stable for cost in one.costs)]
        typer.echo(f"Partitions were left without an owner at the end: {', '.join(bad)}")
    if len(found) > 1 or choice.requirements:
        typer.echo("")
        typer.echo(f"Recommendation: {choice.reason}")
        for line in paste:
            typer.echo(f"  {line}")
    typer.echo("")
    typer.echo("It rests on:")
    for name, origin in question.model.origins.items():
        typer.echo(f"  {name:14} {origin}")


def _object(choice: Choice, found: Sequence[Forecast], paste: Sequence[str]) -> dict[str, Any]:
    question = found[0].question
    return {
        "group": question.model.group_id,
        "question": question.change.described,
        "seeds": len(found[0].costs),
        "variants": [
            {
                "name": one.question.name,
                "settings": dict(one.question.model.settings),
                "costs": {name: _percentiles(one, name) for name in COSTS},
            }
            for one in found
        ],
        "recommendation": {
            "variant": choice.best.question.name,
            "reason": choice.reason,
            "meets_requirements": choice.meets_all,
            "paste": list(paste),
        },
        "rests_on": {name: str(origin) for name, origin in question.model.origins.items()},
    }


def _percentiles(one: Forecast, name: str) -> dict[str, float | str] | str:
    spread = one.spread(name)
    if not spread.values:
        return "did not occur"
    found = {f"p{percentile}": spread.at(percentile) for percentile in PERCENTILES}
    return {key: "never" if value == inf else value for key, value in found.items() if value is not None}


def _write(out: Path, choice: Choice, found: Sequence[Forecast], paste: Sequence[str]) -> None:
    """Write the page. The table of all worlds was written as they ended."""
    from coterie.web.plan_page import PlanPage

    out.mkdir(parents=True, exist_ok=True)
    shown = [found[0], *([choice.best] if choice.is_change else [])]
    question = found[0].question
    page = PlanPage(
        f"Plan for group {question.model.group_id}",
        f"{question.change.described}; {len(question.model.members)} members, {question.model.partitions} partitions",
        found,
        choice.best,
        choice.reason,
        paste,
        question.model.origins,
        {one.question.name: simulate_owners(one.question, one.costs[0].seed) for one in shown},
    )
    (out / PAGE).write_text(page.html(), encoding="utf-8")
    note(str(out / PAGE))
