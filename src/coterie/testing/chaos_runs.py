"""`chaos`: a test of a consumer is run under faults that are drawn from a seed; a failing run is made shorter.

    @chaos(seeds=20, topics={"orders": 3})
    def test_nothing_is_lost(kafka_broker: KafkaBroker) -> None: ...

A seed says which faults are drawn, the same on every machine. What a fault hits follows from what clients send. A run
that fails is repeated with fewer faults, until no fault can be left out.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random  # noqa: TID251  seeded: this is where faults are drawn
from typing import Any, Literal, TypeVar

from coterie.errors import CoterieError
from coterie.testing.environment import bootstrap_in_environment
from coterie.testing.faults import Fault
from coterie.testing.kafka_broker import KafkaBroker
from coterie.testing.request_faults import RequestFault

T = TypeVar("T")
PARAMETER = "kafka_broker"
SEED = "COTERIE_SEED"
Protocol = Literal["classic", "consumer"]

_MEMBERSHIP = {
    "classic": {"JoinGroup": 4, "SyncGroup": 3, "Heartbeat": 6},
    "consumer": {"ConsumerGroupHeartbeat": 8},
}
_OTHERS = {"OffsetCommit": 6, "OffsetFetch": 3, "FindCoordinator": 3, "Fetch": 12, "Metadata": 4}
"""The APIs that a consumer uses, and which of its requests is hit at most: 1 is the first."""
_COORDINATOR_ERRORS = ("NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS")
_DELAYS_S = (0.01, 0.05, 0.1, 0.3)


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """A fault that was drawn: which request, and what happens to it."""

    api: str
    nth: int
    action: str
    """The name of a method of `FaultBuilder`."""
    arguments: tuple[Any, ...] = ()
    times: int = 1

    def __str__(self) -> str:
        """Return it as code that can be pasted into a test."""
        said = [repr(one).replace("'", '"') for one in self.arguments]
        said += [f"times={self.times}"] if self.times > 1 else []
        return f'{PARAMETER}.faults.on("{self.api}", nth={self.nth}).{self.action}({", ".join(said)})'

    def on(self, broker: KafkaBroker) -> RequestFault:
        """Return it as a fault of a broker."""
        act = getattr(broker.faults.on(self.api, nth=self.nth), self.action)
        fault: RequestFault = act(*self.arguments, times=self.times)
        return fault


def draw(seed: int, *, faults: int = 5, protocol: Protocol = "classic", nodes: int = 2) -> list[PlannedFault]:
    """Draw faults from a seed: the same for the same arguments, everywhere.

    Args:
        seed: The seed.
        faults: How many faults there are at most; there is one at least.
        protocol: The protocol of the groups of the test, which says what members send.
        nodes: How many nodes the broker has. With one, no coordinator moves.

    Returns:
        The faults.
    """
    rng = Random(seed)  # noqa: S311

    def pick(choices: Sequence[T]) -> T:
        return choices[int(rng.random() * len(choices))]  # random() alone is the same in every version of Python

    membership = _MEMBERSHIP[protocol]
    of_groups = [*membership, "OffsetCommit", "OffsetFetch"]
    of_members = [*(api for api in membership if api != "JoinGroup"), "OffsetCommit"]
    last = {**membership, **_OTHERS}
    actions = ["drop_connection", "lose_answer", "delay", "answer", "expire_member"]
    drawn = []
    for _ in range(1 + int(rng.random() * faults)):
        action = pick([*actions, "move_coordinator"] if nodes > 1 else actions)
        arguments: tuple[Any, ...] = ()
        times = 1
        if action == "answer":
            api = pick([*of_groups, "FindCoordinator"])
            arguments = (pick(_COORDINATOR_ERRORS[1:] if api == "FindCoordinator" else _COORDINATOR_ERRORS),)
            times = pick((1, 2, 3))
        elif action == "expire_member":
            api = pick(of_members)
        elif action == "move_coordinator":
            api = pick(of_groups)
        else:
            api = pick(list(last))
            arguments = (pick(_DELAYS_S),) if action == "delay" else ()
        chance = rng.random()
        nth = 1 + int(chance * chance * last[api])  # the first requests more often: every test has them
        drawn.append(PlannedFault(api, nth, action, arguments, times))
    return drawn


@dataclass(slots=True)
class _Run:
    """What came of a run."""

    plan: Sequence[PlannedFault]
    error: BaseException | None = None
    hits: list[int] = field(default_factory=list)
    """How often each fault of the plan has fired."""
    story: str = ""

    @property
    def fired(self) -> list[PlannedFault]:
        return [one for one, count in zip(self.plan, self.hits, strict=True) if count]


_Experiment = Generator[Sequence[PlannedFault], _Run, None]


def chaos(
    seeds: int | Iterable[int] = 20,
    *,
    faults: int = 5,
    protocol: Protocol = "classic",
    shrink: bool = True,
    **options: Any,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Run a test of a consumer under faults that are drawn from seeds, each time with a broker of its own.

    The test takes the parameter `kafka_broker`; other fixtures are made once for all runs. It may be a coroutine
    function, or a method of a test case. With `--coterie-seed N`, or COTERIE_SEED=N in the environment, this seed alone
    is run.

    Args:
        seeds: How many seeds, from 0 on; or which.
        faults: How many faults are drawn from a seed at most.
        protocol: The protocol of the groups of the test: `classic`, or `consumer` (KIP-848).
        shrink: Whether a run that fails is repeated with fewer faults, until no fault can be left out.
        **options: The arguments of `KafkaBroker`, besides those of the marker `kafka` at the test; it has two nodes
            unless they say.

    Returns:
        The decorator. The test then fails as the shortest failing run did, with a note of the seed and the faults.

    Raises:
        CoterieError: An argument is not allowed, or the test does not take `kafka_broker`.
    """
    chosen = range(seeds) if isinstance(seeds, int) else list(seeds)
    if not chosen:
        raise CoterieError(f"seeds={seeds!r}: give one seed or more")
    if faults < 1:
        raise CoterieError(f"faults={faults}: give 1 or more")
    if protocol not in _MEMBERSHIP:
        raise CoterieError(f"protocol={protocol!r}: it must be classic or consumer")

    def decorate(test: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(test)
        if PARAMETER not in signature.parameters:
            raise CoterieError(f"{test.__qualname__} runs under chaos, and must take the parameter {PARAMETER}")

        def all_options() -> dict[str, Any]:
            marked = _marked(test) | _marked(wrapper)
            return {"nodes": 2, **marked, **options}

        def experiment() -> _Experiment:
            nodes = all_options()["nodes"]
            only = _only_seed()
            return _experiment(
                chosen if only is None else [only],
                lambda seed: draw(seed, faults=faults, protocol=protocol, nodes=nodes),
                shrink=shrink,
            )

        def run_all(*args: Any, **given: Any) -> None:
            under_way = experiment()
            plan = next(under_way, None)
            while plan is not None:
                with _broker_under(plan, all_options()) as (broker, run):
                    try:
                        test(*args, **{**given, PARAMETER: broker})
                    except BaseException as error:  # noqa: BLE001  the shortest failing run is raised
                        _note_failure(run, broker, error)
                plan = _next(under_way, run)

        async def run_all_async(*args: Any, **given: Any) -> None:
            under_way = experiment()
            plan = next(under_way, None)
            while plan is not None:
                opened = _broker_under(plan, all_options())
                broker, run = await asyncio.to_thread(opened.__enter__)
                try:
                    await test(*args, **{**given, PARAMETER: broker})
                except BaseException as error:  # noqa: BLE001  the shortest failing run is raised
                    _note_failure(run, broker, error)
                finally:
                    await asyncio.to_thread(opened.__exit__, None, None, None)
                plan = _next(under_way, run)

        wrapper = functools.wraps(test)(run_all_async if inspect.iscoroutinefunction(test) else run_all)
        others = [one for name, one in signature.parameters.items() if name != PARAMETER]
        wrapper.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        return wrapper

    return decorate


@contextmanager
def _broker_under(
    plan: Sequence[PlannedFault], options: dict[str, Any]
) -> Generator[tuple[KafkaBroker, _Run], None, None]:
    """Start a broker with faults in force. What the faults have hit is noted in the run at the end."""
    run = _Run(plan)
    with KafkaBroker(**options) as broker, bootstrap_in_environment(broker.bootstrap_servers):
        begun: list[Fault] = []
        try:
            begun += [one.on(broker).begin() for one in plan]
            yield broker, run
        finally:
            run.hits = [fault.count for fault in begun]
            for fault in begun:
                fault.abandon()


def _note_failure(run: _Run, broker: KafkaBroker, error: BaseException) -> None:
    """Keep what a test has raised, unless it is no failure of the test."""
    names = [kind.__name__ for kind in type(error).__mro__]
    is_other_outcome = "OutcomeException" in names and names[0] != "Failed"  # pytest's: skipped, xfailed
    if is_other_outcome or isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit | asyncio.CancelledError):
        raise error
    run.error = error
    run.story = broker.last_story()


def _next(under_way: _Experiment, run: _Run) -> Sequence[PlannedFault] | None:
    try:
        return under_way.send(run)
    except StopIteration:
        return None


def _experiment(seeds: Iterable[int], drawn_from: Callable[[int], list[PlannedFault]], *, shrink: bool) -> _Experiment:
    """Yield the faults of each run, and take what came of it. Raise the shortest failing run of the first seed."""
    for seed in seeds:
        first = yield drawn_from(seed)
        if first.error is None:
            continue
        shortest = first
        if shrink:
            shortest = yield from _shortest(first)
        assert shortest.error is not None
        shortest.error.add_note(_note(seed, first, shortest))
        raise shortest.error


def _shortest(failed: _Run) -> Generator[Sequence[PlannedFault], _Run, _Run]:
    """Leave out faults one by one as long as the test fails without them."""
    fired = failed.fired
    if len(fired) < len(failed.plan):
        again = yield fired
        failed = failed if again.error is None else again
    number = 0
    while number < len(failed.plan):
        again = yield [*failed.plan[:number], *failed.plan[number + 1 :]]
        if again.error is None:
            number += 1
        else:
            failed, number = again, 0
    return failed


def _note(seed: int, first: _Run, shortest: _Run) -> str:
    lines = [f"chaos: seed {seed} failed under the faults that are drawn from it:"]
    lines += [f"    {one}  # {_times(count)}" for one, count in zip(first.plan, first.hits, strict=True)]
    if not shortest.plan:
        lines.append("It fails without any fault as well.")
    elif shortest is first:
        lines.append("It was not repeated with fewer of them, or passes if one is left out.")
    else:
        lines.append("It fails with fewer as well, and passes if one of these is left out:")
    if shortest.plan:
        lines += ["", "    with (", *(f"        {one}," for one in shortest.plan), "    ):", "        ...  # the test"]
    lines += ["", f"Run it again with: pytest --coterie-seed {seed}, or @chaos(seeds=[{seed}])"]
    if shortest.story:
        lines += ["", shortest.story]
    return "\n".join(lines)


def _times(count: int) -> str:
    return "did not fire" if not count else f"fired {'once' if count == 1 else f'{count} times'}"


def _marked(test: Callable[..., Any]) -> dict[str, Any]:
    """Return the arguments of the markers `kafka` at a function; the closest counts most."""
    found: dict[str, Any] = {}
    for mark in reversed(getattr(test, "pytestmark", ())):
        if mark.name == "kafka":
            found = {**mark.kwargs, **found}
    return found


def _only_seed() -> int | None:
    text = os.environ.get(SEED)
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        raise CoterieError(f"{SEED} is {text!r}: it must be a whole number") from None
