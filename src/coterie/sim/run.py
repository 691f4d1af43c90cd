"""A run has two halves. In the first, faults happen, and invariants must hold. Then all is repaired, and all groups
must be Stable within a bound.

    outcome = simulate(Plan.draw(seed=7))
    print(outcome.report())
"""

from __future__ import annotations

import gc
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from struct import pack
from traceback import format_exc
from typing import Any

from coterie.broker.broker_facts import LeadersChanged
from coterie.client.member import Membership
from coterie.client.member.consumer_protocol.states import ConsumerMemberState
from coterie.client.member.states import MemberState
from coterie.client.types import TopicPartition
from coterie.coordinator.classic import ClassicGroupState
from coterie.coordinator.consumer import ConsumerGroup, GroupState
from coterie.errors import ErrorCode
from coterie.facts import Cause, Fact, GroupLoaded, MemberExpired, RebalanceStarted
from coterie.protocol.apis import by_key, consumer_group_heartbeat, heartbeat
from coterie.sim.clients import Asked, Client
from coterie.sim.consumer import ConsumerProcess
from coterie.sim.invariants import INVARIANTS
from coterie.sim.invariants.acknowledged_records import EveryRecordIsProcessed
from coterie.sim.machine import BrokerLink, Machine
from coterie.sim.plan import Plan
from coterie.sim.steps import FaultStep, PlanStep, Undo
from coterie.sim.world import Broken, Observer, World
from coterie.stories import grid
from coterie.stories.grid import StoryStep, in_words
from coterie.structs import replace

_VERBS = {
    "JoinGroup": "join",
    "SyncGroup": "sync",
    "LeaveGroup": "leave",
    "OffsetCommit": "commit",
    "OffsetFetch": "offsets?",
    "DeleteGroups": "delete group",
}
_SAYS = {row.key: _VERBS[row.name] for row in by_key.values() if row.name in _VERBS}
_KEPT = 4_000
_WIDEST = 100


class StoryObserver(Observer):
    """The run as the text grid of `coterie.stories`, and as a fingerprint that is the same for the same seed."""

    name = "story"
    answers = (heartbeat.API.key, consumer_group_heartbeat.API.key, *_SAYS)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.steps: deque[StoryStep] = deque(maxlen=_KEPT)
        self._schedule = world.schedule
        self._hash = blake2b(digest_size=12)
        self._unhashed: list[bytes] = []
        self._times: list[int] = []
        """The times of what is not hashed yet."""

    @property
    def fingerprint(self) -> str:
        """The fingerprint of every byte that arrived, with its time, and of all other events."""
        self._hash_now()
        return self._hash.hexdigest()

    def _note(self, who: bytes, what: bytes) -> None:
        self._times.append(self._schedule.now_ms)
        self._unhashed += (who, what)

    def sample(self) -> None:
        self._hash_now()

    def _hash_now(self) -> None:
        """Hash many packets at once; this is called for each."""
        self._hash.update(pack(f">{len(self._times)}q", *self._times))
        self._hash.update(b"".join(self._unhashed))
        self._times.clear()
        self._unhashed.clear()

    def _row(self, who: str, says: str, hears: str, group_id: str = "") -> None:
        group = self.world.any_group(group_id) if group_id else None
        state = str(group.state) if group is not None else "Dead" if group_id else ""
        self.steps.append(StoryStep(self.world.schedule.now_ms, who, says, hears, state))

    def request_arrived(self, _machine: Machine, link: BrokerLink, frame: bytes) -> None:
        client = link.wire.client
        self._note(client.tag, frame)
        says = _SAYS.get(frame[1])
        if says is not None:
            self._row(client.name, says, "-", client.group_id)

    def bytes_arrived(self, client: Client, data: bytes) -> None:
        self._note(client.tag, data)

    def answered(self, client: Client, asked: Asked, answer: Any) -> None:
        module = asked.module
        if module is heartbeat:
            if answer is not ErrorCode.NONE:
                self._row(client.name, "", f"beat: {answer.name}", client.group_id)
        elif module is consumer_group_heartbeat:
            if answer.error or asked.request.member_epoch <= 0 or answer.assignment is not None:
                self._row(client.name, _heartbeat(asked.request), _answer(answer)[:_WIDEST], client.group_id)
        else:
            first = answer[0] if isinstance(answer, list) else answer
            said = in_words(first[1] if isinstance(first, tuple) else first)
            self._row("", "", f"{client.name}: {said}"[:_WIDEST], client.group_id)

    def timed_out(self, client: Client, api: str) -> None:
        self._row(client.name, "", f"no answer to {api}", client.group_id)

    def on_fact(self, machine: Machine, fact: Fact) -> None:
        if isinstance(fact, RebalanceStarted):
            self._row(machine.name, f"(rebalance: {fact.cause}, {fact.member_id or 'nobody'})", "", fact.group_id)
        elif isinstance(fact, MemberExpired):
            self._row(machine.name, f"(expires {fact.member_id})", "", fact.group_id)
        elif isinstance(fact, GroupLoaded):
            self._row(
                machine.name, f"(loads generation {fact.generation_id}, {len(fact.members)} members)", "", fact.group_id
            )

    def came(self, consumer: ConsumerProcess) -> None:
        self.happened(consumer.name, "comes")

    def went(self, consumer: ConsumerProcess, how: str) -> None:
        self.happened(consumer.name, how)

    def broker_began(self, machine: Machine) -> None:
        self.happened(machine.name, "serves")

    def broker_ended(self, machine: Machine) -> None:
        self.happened(machine.name, "is gone")

    def happened(self, who: str, what: str) -> None:
        self._note(who.encode(), what.encode())
        self._row(who, f"({what})", "")


_EPOCHS = {0: "joins", -1: "leaves", -2: "leaves for a while"}


def _heartbeat(request: consumer_group_heartbeat.Request) -> str:
    return _EPOCHS.get(request.member_epoch, f"beat in epoch {request.member_epoch}")


def _answer(answer: consumer_group_heartbeat.Response) -> str:
    if answer.error:
        return answer.error.name
    if answer.assignment is None:
        return f"epoch {answer.member_epoch}"
    owned = [sorted(topic.partitions) for topic in answer.assignment.topic_partitions]
    return f"epoch {answer.member_epoch}, assigned {owned}"


_REQUESTS = (
    "JoinGroup",
    "SyncGroup",
    "Heartbeat",
    "ConsumerGroupHeartbeat",
    "LeaveGroup",
    "OffsetCommit",
    "OffsetFetch",
    "DeleteGroups",
)
_NAMES = {row.key: row.name for row in by_key.values() if row.name in _REQUESTS}


@dataclass(slots=True)
class Account:
    """The coverage of one run, or of many runs together: requests by state, faults, rebalances by cause."""

    runs: int = 0
    simulated_ms: int = 0
    events: int = 0
    cells: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Requests by name and the state that the group was in when they arrived."""
    faults: Counter[str] = field(default_factory=Counter)
    causes: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, other: Account) -> None:
        self.runs += other.runs
        self.simulated_ms += other.simulated_ms
        self.events += other.events
        self.cells.update(other.cells)
        self.faults.update(other.faults)
        self.causes.update(other.causes)
        self.counts.update(other.counts)

    def lines(self) -> Iterable[str]:
        states = dict.fromkeys([*map(str, ClassicGroupState), *map(str, GroupState)])
        yield f"{self.runs} runs, {self.simulated_ms / 3_600_000:.1f} simulated hours, {self.events} events"
        yield "requests by group state:"
        yield "  " + " ".join(["request".ljust(22), *(state.rjust(20) for state in states)])
        for request in _REQUESTS:
            found = [str(self.cells[request, state] or "-").rjust(20) for state in states]
            yield "  " + " ".join([request.ljust(22), *found])
        yield "faults: " + (", ".join(f"{name} {count}" for name, count in sorted(self.faults.items())) or "none")
        yield "rebalances: " + ", ".join(f"{cause} {self.causes[str(cause)]}" for cause in Cause)
        yield "seen: " + ", ".join(f"{name} {count}" for name, count in sorted(self.counts.items()))


class Exercised(Observer):
    name = "exercised"
    requests = tuple(_NAMES)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.account = Account(runs=1)
        self._cells = self.account.cells

    def request_arrived(self, _machine: Machine, link: BrokerLink, frame: bytes) -> None:
        group_id, coordinator = link.wire.client.group_id, link.node.coordinator
        shard = coordinator.shards.get(coordinator.partition_of(group_id))
        group = shard.groups.get(group_id) if shard is not None else None
        self._cells[_NAMES[frame[1]], str(group.state if group is not None else ClassicGroupState.DEAD)] += 1

    def on_fact(self, _machine: Machine, fact: Fact) -> None:
        if type(fact) is RebalanceStarted:
            self.account.causes[str(fact.cause)] += 1
        elif type(fact) is LeadersChanged:
            self.account.counts["leaders change"] += 1


BOUND_MS = 15 * 60_000
"""Twice the longest rebalance timeout, and the longest time that a new member may wait."""
STEP_MS = 1_000
NUDGE_MS = 5 * 60_000


class Converged:
    """Checks that all groups are Stable within a bound after the repair, with all partitions owned and read."""

    def __init__(self, world: World, until: Callable[[int], None]) -> None:
        self._world = world
        self._until = until
        self._progress = next(one for one in world.observers if isinstance(one, EveryRecordIsProcessed))

    def demand(self) -> None:
        world = self._world
        began_ms = world.schedule.now_ms
        for producer in world.producers.values():
            producer.stop()
        nudge_at_ms = NUDGE_MS
        while True:
            missing = self._missing()
            if not missing:
                return
            waited_ms = world.schedule.now_ms - began_ms
            if waited_ms >= BOUND_MS:
                raise Broken("converges", f"{BOUND_MS} ms after everything was repaired: {missing}")
            if waited_ms >= nudge_at_ms and self._may_need_news():
                nudge_at_ms += NUDGE_MS  # a member that was away when it came needs another
                for name, partitions in list(world.admin.topics.items()):
                    world.admin.grow_topic(name, partitions + 1)
            self._until(world.schedule.now_ms + STEP_MS)

    def _may_need_news(self) -> bool:
        """A member waits for a rebalance that only news of its topics brings about, in Kafka as well.

        A static leader that is back does not know what was added meanwhile (KIP-814). A group that was loaded knows of
        each member the one assignor that was chosen, and turns away who does not have it, until a leader rejoins (C4).
        """
        habits = [one.habits for one in self._world.consumers.values() if not one.habits.is_consumer_protocol]
        lists = {tuple(assignor.name for assignor in one.assignors) for one in habits}
        return len(lists) > 1 or any(one.instance_id is not None for one in habits)

    def _missing(self) -> str:
        """Describe what is not settled yet."""
        world = self._world
        if not world.admin.is_done:
            return f"the admin still {world.admin.requests[0][3]}"
        for producer in world.producers.values():
            if not producer.is_done:
                return f"{producer.name} has {producer.accumulator.unsettled} records on their way"
        groups: dict[str, list[ConsumerProcess]] = {}
        for consumer in world.consumers.values():
            groups.setdefault(consumer.group_id, []).append(consumer)
        for habits in world.restarting.values():
            groups.setdefault(habits.group_id, [])
        for group_id, consumers in groups.items():
            missing = self._missing_in(group_id, consumers)
            if missing:
                return missing
        return next(filter(None, (one.missing() for one in world.observers)), "")

    def _missing_in(self, group_id: str, consumers: list[ConsumerProcess]) -> str:
        world = self._world
        group = world.any_group(group_id)
        if group is None or str(group.state) != ClassicGroupState.STABLE:
            return f"group {group_id} is {group.state if group else 'not there'}"
        settings = world.machine.settings
        limit = settings.group_consumer_max_size if isinstance(group, ConsumerGroup) else settings.group_max_size
        count = len(consumers) + sum(habits.group_id == group_id for habits in world.restarting.values())
        well = [one for one in consumers if _is_well(one)]
        if len(well) < min(count, limit):
            others = [one for one in consumers if one not in well]
            why = others[0].member.explain(others[0].now_ms) if others else "about to be restarted"
            return f"{count - len(well)} of {count} are not stable: {why}"
        generations = {one.member.generation_id for one in well}
        generation = group.assignment_epoch if isinstance(group, ConsumerGroup) else group.generation_id
        if generations != {generation}:
            return f"group {group_id} is in generation {generation}, its members in {sorted(generations)}"
        wanted = {
            TopicPartition(topic, partition)
            for consumer in well
            for topic in consumer.habits.subscribed(world.admin.topics)
            for partition in range(world.admin.topics[topic])
        }
        owned = sorted(one for consumer in well for one in consumer.member.assigned)
        if owned != sorted(wanted):
            return f"group {group_id} owns {owned}, and should {sorted(wanted)}"
        for one in sorted(wanted):
            if not self._progress.is_done(group_id, one):
                return f"group {group_id} has not processed all of {one}"
        return ""


def _is_well(consumer: ConsumerProcess) -> bool:
    member = consumer.member
    if isinstance(member, Membership):
        return member.state is MemberState.STABLE and member.rejoin_reason is None
    return member.state is ConsumerMemberState.STABLE


SAMPLE_MS = 5_000
SAMPLES = 400
"""The most samples of a run, so that they do not slow a long one down."""
TOPICS_MS = 500
PRODUCE_MS = 3_000
_GC_THRESHOLDS = (50_000, 20, 50)


@dataclass
class Outcome:
    plan: Plan
    account: Account
    fingerprint: str
    steps: Sequence[grid.StoryStep]
    """The last few thousand events."""
    broken: str | None = None
    """The invariant that failed, if one did."""
    what: str = ""
    at_ms: int = 0
    summary: Sequence[str] = ()
    """The run on one screen, if it was asked for (`summary.py`)."""
    facts: Sequence[Fact] = ()
    """The facts of all brokers by the time of the run, if a summary was asked for."""

    @property
    def story(self) -> str:
        return grid.show(self.steps)

    @property
    def held(self) -> bool:
        return self.broken is None

    @property
    def command(self) -> str:
        plan = self.plan
        drop = f" --drop {','.join(map(str, sorted(plan.dropped)))}" if plan.dropped else ""
        hours = f"{plan.length_ms / 3_600_000:.6g}"
        what = f"--workload {plan.workload} --hours {hours} --members {plan.members}{plan.asked}"
        return f"coterie sim --seed {plan.seed} {what}{drop}"

    def report(self, last: int = 60) -> str:
        lines = [*self.plan.lines()]
        if self.held:
            return "\n".join([*lines, f"held; fingerprint {self.fingerprint}"])
        story = self.story.splitlines()
        shown = [story[0], *story[1:][-last:]] if story else []
        return "\n".join(
            [
                *lines,
                *self.plan.script(),
                "",
                *shown,
                "",
                f"BROKEN at {self.at_ms} ms: {self.broken}: {self.what}",
                f"replay: {self.command}",
            ]
        )


class Run:
    def __init__(self, plan: Plan, watch: Sequence[Callable[[World], Observer]] = ()) -> None:
        self.plan = plan
        self.world = World(
            plan.seed,
            [*INVARIANTS, StoryObserver, Exercised, *watch],
            plan.settings,
            delay_ms=plan.delay_ms,
            jitter_ms=plan.jitter_ms,
            skew_ms=plan.skew_ms,
            drift_ppm=plan.drift_ppm,
            disk_ms=plan.disk_ms,
            nodes=plan.nodes,
        )
        self.story = next(one for one in self.world.observers if isinstance(one, StoryObserver))
        self.account = next(one for one in self.world.observers if isinstance(one, Exercised)).account
        self._undos: dict[int, Undo] = {}
        self._sample_ms = max(SAMPLE_MS, plan.length_ms // SAMPLES)

    def play(self) -> None:
        world, plan = self.world, self.plan
        world.machine.start()
        schedule = world.schedule
        for name, partitions in plan.topics.items():
            schedule.at(TOPICS_MS, lambda about: world.admin.create_topic(*about), (name, partitions))
        schedule.at(PRODUCE_MS, self._produce, None)
        for number, step in plan.kept:
            schedule.at(step.at_ms, self._begin, (number, step))
        self._until(plan.length_ms)
        self._heal()
        Converged(world, self._until).demand()
        world.ended()

    def _produce(self, _about: object) -> None:
        self.world.producer("p", list(self.plan.topics), self.plan.every_ms)

    def _until(self, until_ms: int) -> None:
        """Run the expensive checks now and then."""
        schedule = self.world.schedule
        while schedule.now_ms < until_ms:
            next_ms = min(until_ms, (schedule.now_ms // self._sample_ms + 1) * self._sample_ms)
            schedule.run(next_ms)
            self.world.sample()

    def _begin(self, about: tuple[int, PlanStep]) -> None:
        number, step = about
        self.world.happened("", step.described)
        if isinstance(step, FaultStep):
            self.account.faults[type(step).__name__] += 1
        undo = step.begin(self.world)
        if undo is not None and isinstance(step, FaultStep):
            self._undos[number] = undo
            self.world.schedule.after(step.for_ms, self._end, number)

    def _end(self, number: int) -> None:
        undo = self._undos.pop(number, None)
        if undo is not None:
            self.world.happened("", f"end of {number} {type(self.plan.steps[number]).__name__}")
            undo()

    def _heal(self) -> None:
        self.world.happened("", "everything is repaired")
        for number in list(self._undos):
            self._end(number)
        for consumer in list(self.world.displaced):
            self.world.crash(consumer)
        for consumer in self.world.consumers.values():
            consumer.behave()
        self.world.machine.disk.restore()
        self.world.machine.power_up()
        self.world.healed()


@contextmanager
def _few_collections() -> Iterator[None]:
    """Let the garbage collector look for cycles less often: a run makes many objects that end without it."""
    before = gc.get_threshold()
    gc.set_threshold(*_GC_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def simulate(plan: Plan, watch: Sequence[Callable[[World], Observer]] = ()) -> Outcome:
    """Run a plan. `watch`: your own observers."""
    run = Run(plan, watch)
    broken = what = None
    try:
        with _few_collections():
            run.play()
    except Broken as failure:
        broken, what = failure.name, failure.what
    except Exception:  # noqa: BLE001  of ours or of the shipped code: found by this seed either way
        broken, what = "no exceptions", format_exc()
    world = run.world
    account = run.account
    account.simulated_ms = world.schedule.now_ms
    account.events = world.schedule.steps
    account.counts["long work"] = world.machine.background_tasks
    account.counts["damage reported"] = world.machine.damage_reported
    account.counts["swaps interrupted"] = world.machine.swaps_cut
    for one in world.observers:
        if hasattr(one, "count"):
            account.counts[one.name] += one.count
    outcome = Outcome(
        plan, account, run.story.fingerprint, tuple(run.story.steps), broken, what or "", world.schedule.now_ms
    )
    world.shut_down()
    return outcome


MOST_RUNS = 150


def shrink(found: Outcome) -> Outcome:
    """Make a failed run small: leave out steps while the same invariant still fails.

    First halves, then quarters, then single steps. Random numbers are drawn by name, so a step that is left out changes
    little for the others.
    """
    best, runs = found, 0
    size = max(len(best.plan.kept) // 2, 1)
    while True:
        numbers = [number for number, _ in best.plan.kept]
        was = len(numbers)
        for at in range(0, was, size):
            if runs >= MOST_RUNS:
                return best
            some = [number for number in numbers[at : at + size] if number not in best.plan.dropped]
            if not some or len(some) == len(best.plan.kept):
                continue
            tried = simulate(best.plan.without(some))
            runs += 1
            if tried.broken == best.broken:
                best = tried
        if size > 1:
            size = max(size // 2, 1)
        elif len(best.plan.kept) == was:
            return _shorter(best)


def _shorter(best: Outcome) -> Outcome:
    """Leave out the steps after the failure."""
    late = [number for number, step in best.plan.kept if step.at_ms > best.at_ms]
    if not late:
        return best
    tried = simulate(replace(best.plan, dropped=best.plan.dropped | frozenset(late)))
    return tried if tried.broken == best.broken else best
