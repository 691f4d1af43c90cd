"""Variants of a question: other settings, another way to deploy. They are compared, or searched for the best one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from coterie.errors import CoterieError
from coterie.forecast.changes import Change, Deploy, InTurn
from coterie.forecast.costs import COSTS, Spread, WorldCost, figure, percentile_name, spread_of
from coterie.forecast.group_model import ASSUMED, STATIC, STATIC_EACH, GroupModel, settings_of
from coterie.forecast.simulated_group import Question, simulate_group
from coterie.settings.broker_settings import BrokerSettings
from coterie.structs import replace

AS_IT_IS = "as it is"
USUAL = "usual"
ASSIGNOR, PROTOCOL = "partition.assignment.strategy", "group.protocol"
COOPERATIVE = {ASSIGNOR: "cooperative-sticky", PROTOCOL: "classic"}
CONSUMER = {PROTOCOL: "consumer"}
STATIC_MEMBERS = {STATIC: STATIC_EACH}
_USUAL: Mapping[str, Mapping[str, str]] = {
    "cooperative": COOPERATIVE,
    "static members": STATIC_MEMBERS,
    "cooperative, static members": COOPERATIVE | STATIC_MEMBERS,
    "KIP-848": CONSUMER,
    "KIP-848, static members": CONSUMER | STATIC_MEMBERS,
}
"""The variants that are usually compared."""
_OF_DEPLOY: Mapping[str, tuple[str, Callable[[str], object]]] = {
    "deploy.batch": ("batch", int),
    "deploy.pause": ("pause_s", float),
    "deploy.order": ("order", str),
}
"""The parts of a deploy that a variant may change, by the name on the command line."""

World = tuple[Question, int]
"""A question and a seed: one simulation."""
Outcome = WorldCost | str
"""The costs of a change in a world, or the reason why that world cannot be simulated."""
Runner = Callable[[Sequence[World]], Iterable[WorldCost]]
"""Runs worlds and returns their costs in the same order."""


@dataclass(frozen=True)
class Forecast:
    """The costs of a question, over many seeds."""

    question: Question
    costs: Sequence[WorldCost]

    def spread(self, name: str) -> Spread:
        return spread_of(self.costs, name)


def outcome_of(world: World) -> Outcome:
    """Run one world, in whatever process: this is all that a task does."""
    try:
        return simulate_group(*world)
    except CoterieError as error:  # it would be the same if it were tried again
        return str(error)


def forecasts(questions: Sequence[Question], seeds: Sequence[int], run: Runner) -> list[Forecast]:
    """Run every question with every seed, seed by seed: if the run ends early, all questions have the same seeds."""
    worlds = [(question, seed) for seed in seeds for question in questions]
    found = list(run(worlds))
    each = len(questions)
    whole = len(found) // each * each
    return [Forecast(question, found[at:whole:each]) for at, question in enumerate(questions)]


# --- variants ---------------------------------------------------------------------------------------------------------


def variants_of(question: Question, wanted: Iterable[str]) -> list[Question]:
    """Return the question as it is, and a variant for each text: SETTING=VALUE,SETTING=VALUE, or `usual`."""
    found = [question]
    for text in wanted:
        if text == USUAL:
            found += [varied(question, settings, name) for name, settings in _USUAL.items()]
        else:
            found.append(varied(question, settings_of(_split(text)), text))
    different: list[Question] = []
    for one in found:
        if not any(one.model.settings == other.model.settings and one.change == other.change for other in different):
            different.append(one)
    return different


def _split(text: str) -> list[str]:
    """Split at commas that a name follows: a value may be a list, as range,cooperative-sticky."""
    parts: list[str] = []
    for part in text.split(","):
        if "=" in part or not parts:
            parts.append(part)
        else:
            parts[-1] += f",{part}"
    return parts


def varied(question: Question, settings: Mapping[str, str], name: str) -> Question:
    """Return a variant of a question: settings by Kafka's names, and deploy.batch or deploy.pause."""
    own = {key: value for key, value in settings.items() if key not in _OF_DEPLOY and not _is_so(question, key, value)}
    changed = question.model.with_settings(own)
    return Question(changed, _with_deploy(question.change, settings), name)


def _is_so(question: Question, name: str, value: str) -> bool:
    """Return whether the group has the classic protocol already, which is the default."""
    return name == PROTOCOL and value == "classic" and question.model.settings.get(PROTOCOL, value) == value


def _with_deploy(change: Change, settings: Mapping[str, str]) -> Change:
    wanted = {}
    for key, (attribute, kind) in _OF_DEPLOY.items():
        if key in settings:
            try:
                wanted[attribute] = kind(settings[key])
            except ValueError:
                raise CoterieError(f"{key}={settings[key]} is not a number") from None
    if not wanted:
        return change
    if isinstance(change, InTurn):
        return InTurn(tuple(_with_deploy(one, settings) if isinstance(one, Deploy) else one for one in change.changes))
    if not isinstance(change, Deploy):
        raise CoterieError(f"{', '.join(settings)}: only a deploy can be varied in this way")
    return replace(change, **wanted)


# --- requirements -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Requirement:
    """A bound for a cost at a percentile of the seeds."""

    cost: str
    percentile: float
    most: float
    text: str = field(compare=False, default="")

    def value(self, forecast: Forecast) -> float | None:
        return forecast.spread(self.cost).at(self.percentile)

    def is_met(self, forecast: Forecast) -> bool:
        """Return whether it is met. A cost that did not occur in any world of this variant meets every bound."""
        found = self.value(forecast)
        return found is None or found <= self.most

    def __str__(self) -> str:
        at = "max" if self.percentile == 100 else f"p{self.percentile:g}"
        return f"{self.cost}@{at} of at most {self.most:g}"


def parse_requirement(text: str) -> Requirement:
    """Parse COST=NUMBER or COST@p99=NUMBER, the most that a cost may be; without a percentile, p90."""
    left, sign, right = text.replace(" ", "").partition("=")
    name, _, percentile = left.partition("@")
    rule = f"give COST@PERCENTILE=NUMBER, as in worst_lag_s@p99=10; the costs are {', '.join(COSTS)}"
    if not sign or name not in COSTS:
        raise CoterieError(f"--at-most {text!r} is not a bound: {rule}")
    try:
        return Requirement(name, percentile_name(percentile or "p90"), float(right), text)
    except ValueError as error:
        raise CoterieError(f"--at-most {text!r}: {error}; {rule}") from None


# --- the best one -----------------------------------------------------------------------------------------------------

WORTH = 0.10
"""A variant is recommended only if it costs at least this share less."""
AS_GOOD = 0.05
"""A variant is as good as the best one if it costs at most this share more. Then fewer changes are better."""


@dataclass(frozen=True)
class Choice:
    """The best of several forecasts."""

    best: Forecast
    before: Forecast
    """The group as it is."""
    requirements: Sequence[Requirement]
    minimize: str
    meets_all: bool
    """Whether the best one meets all requirements; if not, no one does."""

    @property
    def is_change(self) -> bool:
        return self.best is not self.before

    @property
    def reason(self) -> str:
        title = COSTS[self.minimize].title
        before, after = (figure(one.spread(self.minimize).median) for one in (self.before, self.best))
        if not self.meets_all:
            missed = [one for one in self.requirements if not one.is_met(self.best)]
            found = "; ".join(f"{one} is not met: {figure(one.value(self.best))}" for one in missed)
            return f"no variant meets all requirements. The nearest is {self.best.question.name!r}: {found}"
        if not self.is_change:
            return f"keep the settings: no variant has {WORTH:.0%} less {title} than {before}"
        return f"{self.best.question.name}: {title} {after} instead of {before} (median)"


def choose(found: Sequence[Forecast], requirements: Sequence[Requirement], minimize: str) -> Choice:
    """Choose the forecast that meets all requirements, and has the least of a cost. The first is the group as it is."""
    before = found[0]
    for each in requirements:
        if all(each.value(one) is None for one in found):
            raise CoterieError(
                f"{each} cannot be judged: it did not occur in any world. A detection needs a crash, and a lag needs "
                "records_per_s of the topics"
            )
    fit = [one for one in found if all(each.is_met(one) for each in requirements)]
    if not fit:
        nearest = min(found, key=lambda one: _miss(one, requirements))
        return Choice(nearest, before, requirements, minimize, meets_all=False)

    def score(one: Forecast) -> tuple[float, float, float]:
        values = (one.spread(name).median for name in (minimize, "worst_lag_s", "rebalances"))
        first, second, third = (0.0 if value is None else value for value in values)
        return first, second, third

    def changes(one: Forecast) -> int:
        new, old = one.question.model.settings, before.question.model.settings
        return len(dict(new.items() - old.items())) + (one.question.change != before.question.change)

    least = min(score(one)[0] for one in fit)
    as_good = [one for one in fit if score(one)[0] <= least * (1 + AS_GOOD)]
    best = min(as_good, key=lambda one: (changes(one), score(one)))
    if before in fit and score(best)[0] > score(before)[0] * (1 - WORTH):
        best = before
    return Choice(best, before, requirements, minimize, meets_all=True)


def _miss(one: Forecast, requirements: Sequence[Requirement]) -> float:
    """Return by how much requirements are missed, as factors that are added."""
    return sum(max((each.value(one) or 0.0) / max(each.most, 1e-9) - 1, 0.0) for each in requirements)


# --- the search -------------------------------------------------------------------------------------------------------

SESSIONS_S = (6, 10, 15, 20, 30, 45)
FEW_SEEDS, FINALISTS = 3, 6
"""All candidates are tried with a few seeds, and so many of them with all seeds."""
BEATS = 3
"""Heartbeats within a session, as Kafka recommends."""
MOST_BEAT_MS = 3_000


def candidates(question: Question, requirements: Sequence[Requirement]) -> Iterator[Question]:
    """Return the question as it is, and all combinations of protocol, static membership, session and way to deploy.

    A session that is longer than the required detection of a crash is left out.
    """
    yield question
    bound = min((one.most for one in requirements if one.cost == "detection_s"), default=float("inf"))
    deploys: Sequence[Mapping[str, str]] = [{}]
    if _deploy_of(question.change) is not None:
        deploys = [{}, *({"deploy.batch": str(size)} for size in _batches(question.model))]
    kinds: Sequence[Mapping[str, str]] = ({}, COOPERATIVE, CONSUMER)
    for kind, static, session_s, deploy in product(kinds, ({}, STATIC_MEMBERS), SESSIONS_S, deploys):
        if session_s > bound:
            continue
        is_consumer = {**question.model.settings, **kind}.get(PROTOCOL) == "consumer"
        beat_ms = min(session_s * 1_000 // BEATS, MOST_BEAT_MS)
        prefix = "group.consumer." if is_consumer else ""
        times = {
            f"{prefix}session.timeout.ms": str(session_s * 1_000),
            f"{prefix}heartbeat.interval.ms": str(beat_ms),
        }
        settings = {**kind, **static, **times, **deploy}
        shown = (f"{name}={value}" for name, value in settings.items() if not _is_so(question, name, value))
        candidate = varied(question, settings, ", ".join(shown))
        if not _is_same(candidate, question):
            yield candidate


def _is_same(one: Question, other: Question) -> bool:
    """Return whether two questions have the same settings, also if one of them spells out a default."""
    return (
        one.change == other.change
        and one.model.is_static == other.model.is_static
        and one.model.consumer_settings() == other.model.consumer_settings()
        and BrokerSettings.of(one.model.broker_settings()) == BrokerSettings.of(other.model.broker_settings())
    )


def _deploy_of(change: Change) -> Deploy | None:
    changes = change.changes if isinstance(change, InTurn) else (change,)
    return next((one for one in changes if isinstance(one, Deploy)), None)


def _batches(model: GroupModel) -> list[int]:
    """Return sizes of a batch to try: a quarter of the group."""
    quarter = len(model.members) // 4
    return [quarter] if quarter > 1 else []


def tune(
    question: Question,
    requirements: Sequence[Requirement],
    seeds: Sequence[int],
    run: Runner,
    minimize: str,
    note: Callable[[str], None],
) -> list[Forecast]:
    """Search for settings: try all candidates with a few seeds, then the best ones with all. The first is as it is."""
    tried = list(candidates(question, requirements))
    few = list(seeds[:FEW_SEEDS])
    note(f"{len(tried)} candidates with {len(few)} seeds each")
    first = forecasts(tried, few, run)

    def rank(one: Forecast) -> tuple[float, float, float]:
        cost = one.spread(minimize).median
        lag = one.spread("worst_lag_s").median
        return _miss(one, requirements), 0.0 if cost is None else cost, 0.0 if lag is None else lag

    best = sorted(first[1:], key=rank)[:FINALISTS]
    rest = list(seeds[FEW_SEEDS:])
    chosen = [first[0], *best]
    if not rest:
        return chosen
    note(f"the best {len(best)} with {len(rest)} more seeds each")
    more = forecasts([one.question for one in chosen], rest, run)
    return [Forecast(one.question, [*one.costs, *two.costs]) for one, two in zip(chosen, more, strict=True)]


# --- what to paste ----------------------------------------------------------------------------------------------------

_REMARKS: Sequence[tuple[str, str, str]] = (
    (
        ASSIGNOR,
        "cooperative-sticky",
        (
            "Change from an eager assignor in two deploys (KIP-429): first partition.assignment.strategy="
            "cooperative-sticky,{old}, then cooperative-sticky alone."
        ),
    ),
    (PROTOCOL, "consumer", "Needs brokers and clients with KIP-848 (Apache Kafka 4.0 or later)."),
    (
        STATIC,
        STATIC_EACH,
        (
            "Give each process a name that stays the same over restarts, as the name of its pod in a StatefulSet. A "
            "static member that is stopped for good keeps its partitions until its session times out."
        ),
    ),
)


_SHORT_SESSION = (
    "The shorter session rests on processes that never pause, which is assumed. Give pause_s and pause_every_s if they "
    "do: a pause that is longer than the session is a rebalance."
)


def advice(choice: Choice) -> list[str]:
    """Return the settings of the best variant, as lines that can be pasted, with what to know about them."""
    if not choice.is_change:
        return []
    before, after = choice.before.question, choice.best.question
    changed = {name: value for name, value in after.model.settings.items() if before.model.settings.get(name) != value}
    clients = {name: value for name, value in changed.items() if not name.startswith("group.consumer.")}
    brokers = {name: value for name, value in changed.items() if name.startswith("group.consumer.")}
    lines = []
    if clients:
        lines += ["# consumers"]
        lines += [f"{name}={'NAME OF THE MEMBER' if name == STATIC else value}" for name, value in clients.items()]
    if brokers:
        lines += ["# configs of the group (the brokers' group.consumer.min.* must allow them)"]
        lines += [f"{name.removeprefix('group.')}={value}" for name, value in brokers.items()]
    deploys = _deploy_of(before.change), _deploy_of(after.change)
    if deploys[0] != deploys[1] and deploys[1] is not None:
        lines.append(f"# {deploys[1].described}")
    old = before.model.settings.get(ASSIGNOR, "range")
    lines += [f"# {remark.format(old=old)}" for name, value, remark in _REMARKS if changed.get(name) == value]
    pauses = before.model.origins.get("pauses")
    is_shorter = after.model.detection_bound_ms < before.model.detection_bound_ms
    if is_shorter and pauses is not None and pauses.grade == ASSUMED:
        lines.append(f"# {_SHORT_SESSION}")
    return lines
