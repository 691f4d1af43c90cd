"""A plan: all that is drawn from a seed before the run starts, as values that can be printed and left out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Self

from coterie.assignors import Assignor, CooperativeSticky, Range, RoundRobin, Sticky
from coterie.client.producer.transaction_driver import TRANSACTION_VERSION
from coterie.errors import CoterieError
from coterie.sim.consumer import Habits
from coterie.sim.faults import aimed_faults, clock_faults, draw_fault, transaction_faults
from coterie.sim.schedule import Random, Rng
from coterie.sim.steps import (
    Come,
    Commit,
    CreateTopic,
    DeleteTopic,
    FaultStep,
    GroupConfig,
    GroupDeletion,
    GrowTopic,
    Leave,
    MoveCoordinator,
    MoveTransactions,
    PlanStep,
    ReadCommitted,
    Replace,
    Subscribe,
)
from coterie.structs import replace

# A workload is a function from a random generator to steps: how many groups of which members, and what their users do.
# Times are in ms from the start. Topics exist from the start unless a step creates them.

ASSIGNORS: Sequence[Sequence[Assignor]] = (
    (Range(),),
    (Range(), CooperativeSticky()),
    (CooperativeSticky(),),
    (CooperativeSticky(),),
    (Sticky(), RoundRobin()),
    (RoundRobin(),),
)
OLD_VERSIONS: Sequence[dict[str, int]] = (
    {},
    {},
    {"JoinGroup": 3, "SyncGroup": 2, "Heartbeat": 2, "LeaveGroup": 2, "OffsetCommit": 5},
    {"JoinGroup": 5, "SyncGroup": 3, "Heartbeat": 3, "LeaveGroup": 3, "OffsetCommit": 7, "OffsetFetch": 5},
    {"JoinGroup": 7, "SyncGroup": 5, "LeaveGroup": 4, "OffsetCommit": 8, "OffsetFetch": 7},
)
OUTPUTS_MS = 600
FIRST_MS = 4_000


@dataclass
class Scene:
    """The steps of a workload, and its helpers."""

    rng: Random
    length_ms: int
    members: int
    topics: dict[str, int] = field(default_factory=lambda: {"t": 8})
    settings: dict[str, object] = field(default_factory=dict)
    steps: list[PlanStep] = field(default_factory=list)
    slots: list[str] = field(default_factory=list)
    every_ms: int = 700
    """The interval at which a producer sends records."""
    nodes: int = 1
    disk_ms: int | None = None
    """The mean time of a sync, if the workload needs a certain one."""
    transactional: list[str] = field(default_factory=list)
    """The slots of processes with transactions."""

    def time(self) -> int:
        return self.rng.randint(FIRST_MS, self.length_ms)

    def habits(self, **more: object) -> Habits:
        """The usual settings of a member, with these changes."""
        return replace(self.usual, **more)

    def __post_init__(self) -> None:
        rng = self.rng
        self.usual = Habits(
            assignors=rng.choice(ASSIGNORS),
            session_timeout_ms=rng.choice((10_000, 30_000, 45_000)),
            max_poll_interval_ms=rng.choice((30_000, 60_000, 120_000)),
            auto_commit=rng.random() < 0.7,
            poll_ms=rng.choice((1_000, 5_000, 20_000)),
            work_ms=rng.choice((0, 5, 200)),
            listener_ms=rng.choice((0, 0, 10, 1_000)),
            fetch_max_wait_ms=rng.choice((2_000, 10_000, 30_000)),
            metadata_max_age_ms=rng.choice((10_000, 60_000, 300_000)),
        )

    def group(self, **more: object) -> list[str]:
        """Add a few members at about the same time."""
        new = [f"c{len(self.slots) + at}" for at in range(self.members)]
        for slot in new:
            self.come(slot, FIRST_MS + self.rng.choice((0, self.rng.randint(0, 20_000))), **more)
        self.slots += new
        return new

    def use_consumer_protocol(self) -> None:
        """All members that are added from now on have group.protocol=consumer."""
        rng = self.rng
        session_ms = rng.choice((8_000, 20_000, 45_000))
        self.settings |= {
            "group.consumer.min.session.timeout.ms": 2_000,
            "group.consumer.min.heartbeat.interval.ms": 500,
            "group.consumer.session.timeout.ms": session_ms,
            "group.consumer.heartbeat.interval.ms": rng.choice((1_000, 5_000, 5_000)),
            "group.consumer.assignment.interval.ms": rng.choice((0, 1_000, 15_000)),
        }
        self.usual = self.habits(
            group_protocol="consumer",
            session_timeout_ms=session_ms,
            remote_assignor=rng.choice((None, None, "uniform", "range")),
        )

    def use_slow_disk(self, *mean_ms: int) -> None:
        """Choose the mean time of a sync. A producer may come before the topic is made, and must not make it."""
        self.disk_ms = self.rng.choice(mean_ms)
        self.settings["auto.create.topics.enable"] = False

    def come(self, slot: str, at_ms: int, **more: object) -> None:
        self.steps.append(Come(at_ms=at_ms, slot=slot, habits=self.habits(**more)))

    def leave(self, slot: str, at_ms: int, *, leave: bool | None = None) -> None:
        self.steps.append(Leave(at_ms=at_ms, slot=slot, leave=leave))


def steady(scene: Scene) -> None:
    scene.group()


def rolling_deploy(scene: Scene) -> None:
    """All members are restarted one after the other, twice."""
    slots = scene.group()
    for _ in range(2):
        at_ms = scene.time()
        for slot in slots:
            scene.leave(slot, at_ms)
            at_ms += scene.rng.randint(200, 6_000)
            scene.come(slot, at_ms)
            at_ms += scene.rng.randint(500, 10_000)


def autoscaler(scene: Scene) -> None:
    """The number of members goes up and down in waves."""
    slots = scene.group()
    at_ms = FIRST_MS + 10_000
    extra: list[str] = []
    while at_ms < scene.length_ms:
        at_ms += scene.rng.randint(5_000, 60_000)
        if extra and scene.rng.random() < 0.5:
            for slot in extra:
                scene.leave(slot, at_ms + scene.rng.randint(0, 500))
            extra = []
        else:
            new = [f"x{at_ms}-{number}" for number in range(scene.rng.randint(1, len(slots)))]
            for slot in new:
                scene.come(slot, at_ms + scene.rng.randint(0, 2_000))
            extra += new


def flapping(scene: Scene) -> None:
    """One member joins and leaves all the time, at times before it gets the answer to its join."""
    scene.group()
    at_ms = FIRST_MS
    while at_ms < scene.length_ms:
        at_ms += scene.rng.choice((50, 700, 3_000, 12_000, 40_000))
        scene.come("flapping", at_ms)
        at_ms += scene.rng.choice((20, 300, 2_500, 6_000, 20_000))
        scene.leave("flapping", at_ms)
    scene.come("flapping", at_ms)
    scene.slots.append("flapping")


def slow_joiners(scene: Scene) -> None:
    """Slow processing and slow listeners, at times slower than max.poll.interval.ms."""
    scene.group(work_ms=scene.rng.choice((2_000, 8_000)), listener_ms=scene.rng.choice((3_000, 20_000)))
    for number in range(2):
        scene.come(f"late{number}", scene.time(), work_ms=scene.usual.max_poll_interval_ms + 5_000)


def static_members(scene: Scene) -> None:
    """Static members stop without LeaveGroup and return; some are replaced by a second process."""
    slots = [f"c{number}" for number in range(scene.members)]
    for slot in slots:
        scene.come(slot, FIRST_MS + scene.rng.randint(0, 5_000), instance_id=slot)
    scene.slots += slots
    for _ in range(scene.members):
        slot, at_ms = scene.rng.choice(slots), scene.time()
        if scene.rng.random() < 0.3:
            scene.steps.append(Replace(at_ms=at_ms, slot=slot, habits=scene.habits(instance_id=slot)))
        else:
            scene.leave(slot, at_ms, leave=scene.rng.choice((None, None, True)))
            gone_ms = scene.rng.choice((500, 5_000, scene.usual.session_timeout_ms + 5_000))
            scene.come(slot, at_ms + gone_ms, instance_id=slot)


def mixed_versions(scene: Scene) -> None:
    """Clients of many versions, whose lists of assignors have one in common."""
    for number in range(scene.members):
        others = scene.rng.sample([Sticky(), RoundRobin(), CooperativeSticky()], scene.rng.randint(0, 2))
        assignors = scene.rng.sample([Range(), *others], len(others) + 1)
        slot = f"c{number}"
        scene.come(slot, FIRST_MS, assignors=assignors, versions=scene.rng.choice(OLD_VERSIONS))
        scene.slots.append(slot)


def subscriptions(scene: Scene) -> None:
    """Subscriptions differ and change, and topics are created after members have subscribed to them."""
    scene.topics |= {"u": 5}
    slots = scene.group()
    choices = (("t",), ("u",), ("t", "u"), ("t", "v"), ("u", "v"))
    for slot in slots:
        if scene.rng.random() < 0.5:
            scene.steps.append(Subscribe(at_ms=scene.time(), slot=slot, topics=scene.rng.choice(choices)))
    for _ in range(scene.members):
        scene.steps.append(
            Subscribe(at_ms=scene.time(), slot=scene.rng.choice(slots), topics=scene.rng.choice(choices))
        )
    scene.steps.append(CreateTopic(at_ms=scene.time(), topic="v", partitions=3))


def growing_topics(scene: Scene) -> None:
    scene.group()
    for _ in range(3):
        scene.steps.append(GrowTopic(at_ms=scene.time(), topic="t", by=scene.rng.randint(1, 4)))


def over_the_limit(scene: Scene) -> None:
    """More members than group.max.size: some are refused, and keep trying."""
    scene.settings["group.max.size"] = max(scene.members - 2, 1)
    scene.group()


def several_groups(scene: Scene) -> None:
    """Several groups, and consumers that commit without membership."""
    for group_id in ("g", "h"):
        scene.group(group_id=group_id, assignors=scene.rng.choice(ASSIGNORS))
    scene.steps.append(Commit(at_ms=FIRST_MS, group_id="simple", topic="t", partitions=4, every_ms=800))


def expiring_offsets(scene: Scene) -> None:
    """All members leave for longer than offsets are kept; the group is deleted or expires, and is created again.

    A simple consumer commits all the while, and at times its group is deleted under its hands.
    """
    scene.settings |= {"offsets.retention.minutes": 1, "offsets.retention.check.interval.ms": 15_000}
    slots = scene.group()
    at_ms = scene.rng.randint(min(60_000, scene.length_ms // 2), scene.length_ms // 2)
    for slot in slots:
        scene.leave(slot, at_ms + scene.rng.randint(0, 3_000))
        scene.come(slot, at_ms + scene.rng.choice((20_000, 150_000)) + scene.rng.randint(0, 5_000))
    scene.steps += [GroupDeletion(at_ms=at_ms + offset, group_id="g") for offset in (500, 6_000, 9_000)]
    scene.steps.append(Commit(at_ms=FIRST_MS, group_id="simple", topic="t", partitions=4, every_ms=800))
    scene.steps += [GroupDeletion(at_ms=scene.time(), group_id="simple") for _ in range(10)]


def moving_coordinators(scene: Scene) -> None:
    """Groups are moved between nodes, at times while they are being loaded, and members join meanwhile."""
    if scene.nodes == 1:
        scene.nodes = 3
    for group_id in ("g", "h"):
        scene.group(group_id=group_id)
    scene.steps.append(Commit(at_ms=FIRST_MS, group_id="simple", topic="t", partitions=4, every_ms=800))
    for _ in range(12):
        at_ms, group_id = scene.time(), scene.rng.choice(("g", "h", "simple"))
        for _ in range(scene.rng.choice((1, 1, 4))):
            scene.steps.append(MoveCoordinator(at_ms=at_ms, group_id=group_id, node=scene.rng.randint(1, scene.nodes)))
            at_ms += scene.rng.choice((1, 15, 60, 250))
        if group_id != "simple" and scene.rng.random() < 0.5:
            slot = f"x{at_ms}"
            scene.come(slot, at_ms, group_id=group_id)
            scene.leave(slot, at_ms + scene.rng.choice((100, 4_000, 20_000)))
            node = scene.rng.randint(1, scene.nodes)
            scene.steps.append(MoveCoordinator(at_ms=at_ms, group_id=group_id, node=node, in_a_rebalance=True))


def slow_disk(scene: Scene) -> None:
    """The disk is slower than a rebalance: the next one has begun before the assignment of this one is durable."""
    scene.use_slow_disk(1_000, 4_000)
    scene.settings["group.initial.rebalance.delay.ms"] = 0
    flapping(scene)


def consumer_group(scene: Scene) -> None:
    """Members come and go as in other workloads, with group.protocol=consumer."""
    scene.use_consumer_protocol()
    kinds = (rolling_deploy, autoscaler, flapping, slow_joiners, growing_topics, several_groups, expiring_offsets)
    scene.rng.choice(kinds)(scene)


def consumer_group_static(scene: Scene) -> None:
    """Static members leave for a while, and return in time, too late, or while another process has their instance."""
    scene.use_consumer_protocol()
    static_members(scene)


def consumer_group_subscriptions(scene: Scene) -> None:
    """Members subscribe to names and regular expressions, and topics are created, deleted and get partitions."""
    scene.use_consumer_protocol()
    scene.topics |= {"u": 5}
    slots = scene.group()
    names = (("t",), ("u",), ("t", "u"), ("t", "v1"), ("u", "v1", "v2"))
    patterns = ("t|u", "v.*", "t|v1", "[tuv].*")
    for _ in range(2 * scene.members):
        slot, at_ms = scene.rng.choice(slots), scene.time()
        if scene.rng.random() < 0.5:
            scene.steps.append(Subscribe(at_ms=at_ms, slot=slot, pattern=scene.rng.choice(patterns)))
        else:
            scene.steps.append(Subscribe(at_ms=at_ms, slot=slot, topics=scene.rng.choice(names)))
    for topic in ("v1", "v2"):
        at_ms = scene.time()
        for _ in range(scene.rng.randint(1, 3)):
            scene.steps.append(CreateTopic(at_ms=at_ms, topic=topic, partitions=scene.rng.randint(1, 4)))
            scene.steps.append(GrowTopic(at_ms=at_ms + scene.rng.choice((50, 5_000, 20_000)), topic=topic, by=2))
            at_ms += scene.rng.choice((1_000, 15_000, 60_000))
            scene.steps.append(DeleteTopic(at_ms=at_ms, topic=topic))
            at_ms += scene.rng.choice((300, 10_000, 40_000))
    scene.steps.append(GrowTopic(at_ms=scene.time(), topic="t", by=1))


def consumer_group_configs(scene: Scene) -> None:
    """The group gets short sessions and other intervals by its own configs, and may be too small for all members."""
    scene.use_consumer_protocol()
    if scene.rng.random() < 0.5:
        scene.settings["group.consumer.max.size"] = max(scene.members - 1, 1)
    scene.rng.choice((rolling_deploy, autoscaler, slow_joiners))(scene)
    configs = {
        "consumer.session.timeout.ms": (6_000, 10_000, 45_000),
        "consumer.heartbeat.interval.ms": (500, 2_000, 5_000),
        "consumer.assignment.interval.ms": (0, 1_000, 15_000),
    }
    for _ in range(6):
        name = scene.rng.choice(list(configs))
        value = scene.rng.choice(configs[name])
        scene.steps.append(GroupConfig(at_ms=scene.time(), group_id="g", name=name, value=value))


def consumer_group_moves(scene: Scene) -> None:
    """Consumer groups move between nodes."""
    scene.use_consumer_protocol()
    moving_coordinators(scene)


def consumer_group_slow_disk(scene: Scene) -> None:
    """Heartbeats arrive while the records of earlier ones are still on their way to the disk, and are lost there."""
    scene.use_consumer_protocol()
    scene.use_slow_disk(300, 1_000)
    flapping(scene)


def consumer_group_upgrade(scene: Scene) -> None:
    """Members are restarted one by one with the other group protocol, and others of both come and go (K24 to K26)."""
    scene.use_consumer_protocol()
    rng = scene.rng
    first = rng.choice(("classic", "classic", "consumer"))
    slots = [f"c{number}" for number in range(scene.members)]
    scene.slots += slots
    instances = {slot: slot for slot in slots if rng.random() < 0.3}
    for slot in slots:
        scene.come(slot, FIRST_MS + rng.randint(0, 5_000), group_protocol=first, instance_id=instances.get(slot))
    at_ms = rng.randint(30_000, 120_000)
    both = ("classic", "consumer")
    for protocols in (("consumer",), ("classic",), both):
        for slot in slots:
            scene.leave(slot, at_ms)
            at_ms += rng.randint(200, 6_000)
            scene.come(slot, at_ms, group_protocol=rng.choice(protocols), instance_id=instances.get(slot))
            at_ms += rng.choice((50, 2_000, 15_000))
        at_ms += rng.choice((1_000, 60_000))
    for _ in range(scene.members):
        at_ms, slot = scene.time(), f"x{len(scene.steps)}"
        scene.come(slot, at_ms, group_protocol=rng.choice(both))
        scene.leave(slot, at_ms + rng.choice((300, 5_000, 30_000)))


OUTPUTS = (("u", 3), ("v", 2))
"""The topics that transactions write to, with their number of partitions."""


def transactions(scene: Scene) -> None:
    """Members read, process and write in transactions, are restarted, and their coordinators move."""
    rng = scene.rng
    if rng.random() < 0.5:
        scene.use_consumer_protocol()
    scene.settings |= {
        "transaction.state.log.num.partitions": rng.choice((1, 4)),
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": rng.choice((1_000, 10_000)),
        "auto.create.topics.enable": False,
    }
    scene.every_ms = rng.choice((3_000, 6_000))
    scene.steps += [CreateTopic(at_ms=OUTPUTS_MS, topic=topic, partitions=count) for topic, count in OUTPUTS]
    scene.steps.append(ReadCommitted(at_ms=FIRST_MS, slot="reader", topics=OUTPUTS))
    scene.usual = scene.habits(
        isolation_level="read_committed",
        auto_commit=False,
        max_poll_records=rng.choice((3, 20)),
        work_ms=rng.choice((0, 5, 200)),
        transaction_timeout_ms=rng.choice((5_000, 20_000, 120_000)),
        abort_share=rng.choice((0.0, 0.2)),
        slow_share=0.03,
        outputs=OUTPUTS,
        versions={TRANSACTION_VERSION: 1} if rng.random() < 0.3 else {},
    )
    scene.transactional += [f"c{number}" for number in range(scene.members)]
    scene.slots += [*scene.transactional, "reader"]
    for slot in scene.transactional:
        scene.come(slot, FIRST_MS + rng.randint(0, 20_000), transactional_id=f"id-{slot}")
    for _ in range(scene.members):
        slot, at_ms = rng.choice(scene.transactional), scene.time()
        scene.leave(slot, at_ms)
        scene.come(slot, at_ms + rng.choice((300, 5_000, 30_000)), transactional_id=f"id-{slot}")
    scene.come("c0", scene.length_ms, transactional_id="id-c0")  # unless it is there: one process has to go on
    for _ in range(6 if scene.nodes > 1 else 0):
        node, slot = rng.randint(1, scene.nodes), rng.choice(scene.transactional)
        scene.steps += [
            MoveTransactions(at_ms=scene.time(), transactional_id=f"id-{slot}", node=node),
            MoveCoordinator(at_ms=scene.time(), group_id="g", node=rng.randint(1, scene.nodes)),
        ]


_FIRST: dict[str, Callable[[Scene], None]] = {
    "steady": steady,
    "rolling-deploy": rolling_deploy,
    "autoscaler": autoscaler,
    "flapping": flapping,
    "slow-joiners": slow_joiners,
    "static-members": static_members,
    "mixed-versions": mixed_versions,
    "subscriptions": subscriptions,
    "growing-topics": growing_topics,
    "over-the-limit": over_the_limit,
    "several-groups": several_groups,
    "expiring-offsets": expiring_offsets,
    "moving-coordinators": moving_coordinators,
}
_MORE: dict[str, Callable[[Scene], None]] = {
    "slow-disk": slow_disk,
    "consumer-group": consumer_group,
    "consumer-group-static": consumer_group_static,
    "consumer-group-subscriptions": consumer_group_subscriptions,
    "consumer-group-configs": consumer_group_configs,
    "consumer-group-moves": consumer_group_moves,
    "consumer-group-slow-disk": consumer_group_slow_disk,
    "consumer-group-upgrade": consumer_group_upgrade,
}
TRANSACTIONS = "transactions"
WORKLOADS = MappingProxyType({**_FIRST, **_MORE, TRANSACTIONS: transactions})
_SHARE_OF_MORE = 0.4
"""The share of seeds that get one of `_MORE`. It has a stream of its own, so that the other draws stay the same."""
_SHARE_OF_TRANSACTIONS = 0.06
"""The share of seeds that get transactions instead, by another stream: the worlds of all other seeds stay the same."""


MINUTE_MS = 60_000
LENGTH_MS = 10 * MINUTE_MS
LEAST_FAULTS, MOST_FAULTS = 5, 12
SOON_COMPACTED = {"coterie.offsets.roll.bytes": 8_192, "log.cleaner.delete.retention.ms": 60_000}
"""Settings that give in minutes what takes days: logs of several segments, compacted often, tombstones removed."""


@dataclass(frozen=True)
class Plan:
    seed: int
    workload: str
    length_ms: int
    members: int
    steps: tuple[PlanStep, ...]
    topics: dict[str, int]
    settings: dict[str, object]
    every_ms: int
    delay_ms: int = 0
    jitter_ms: int = 3
    skew_ms: int = 0
    drift_ppm: int = 0
    disk_ms: int = 2
    """The mean time of a sync."""
    nodes: int = 1
    dropped: frozenset[int] = field(default_factory=frozenset)
    """Steps that are left out, by number."""
    asked: str = ""
    """Options that were given and not drawn, as on the command line."""

    @classmethod
    def draw(
        cls,
        seed: int,
        workload: str | None = None,
        *,
        hours: float | None = None,
        members: int | None = None,
        faults: int | None = None,
        nodes: int | None = None,
        drop: Collection[int] = (),
    ) -> Self:
        """Draw what is not given. `faults` 0: no random faults."""
        rng = Rng(seed)
        throw = rng.of("plan")
        drawn, usual = throw.choice(list(_FIRST)), throw.randint(2, 6)  # also if given: what follows stays the same
        more = rng.of("more workloads")
        if more.random() < _SHARE_OF_MORE:
            drawn = more.choice(list(_MORE))
        if rng.of("workloads with transactions").random() < _SHARE_OF_TRANSACTIONS:
            drawn = TRANSACTIONS
        name = workload or drawn
        if name not in WORKLOADS:
            raise CoterieError(f"unknown workload {name!r}; the workloads are {', '.join(WORKLOADS)}")
        length_ms = LENGTH_MS if hours is None else max(round(hours * 60 * MINUTE_MS), MINUTE_MS)
        count = usual if members is None else members
        scene = Scene(rng.of(f"workload/{name}"), length_ms, count, every_ms=throw.choice((1_000, 3_000, 10_000)))
        scene.topics["t"] = throw.choice((3, 8, 12))
        scene.settings = {
            "offsets.topic.num.partitions": throw.choice((1, 4)),
            "group.initial.rebalance.delay.ms": throw.choice((0, 3_000)),
        }
        knobs = {
            "delay_ms": throw.choice((0, 1, 20)),
            "jitter_ms": throw.choice((1, 3, 40)),
            "skew_ms": throw.choice((0, 5_000, 600_000)),
            "drift_ppm": throw.choice((0, 0, 200, 5_000)),
            "disk_ms": throw.choice((2, 20, 200)),
        }
        drawn_nodes = throw.choice((1, 3))
        scene.nodes = drawn_nodes if nodes is None else nodes
        scene.settings |= throw.choice(({}, SOON_COMPACTED))
        WORKLOADS[name](scene)
        if scene.disk_ms is not None:
            knobs["disk_ms"] = scene.disk_ms
        luck = rng.of("faults")
        many = luck.randint(LEAST_FAULTS, MOST_FAULTS) * max(1, length_ms // LENGTH_MS) if faults is None else faults
        slots = [*scene.slots, "p"]
        compacts = SOON_COMPACTED.items() <= scene.settings.items()
        wrong = [
            draw_fault(luck, luck.randint(FIRST_MS, length_ms), slots, scene.nodes, compacts=compacts)
            for _ in range(many)
        ]
        if faults is None:
            wrong += aimed_faults(rng.of("aimed faults"), scene.steps, length_ms, compacts=compacts)
            wrong += clock_faults(rng.of("clock faults"), length_ms)
            wrong += transaction_faults(rng.of("transaction faults"), scene.transactional, length_ms)
        steps = sorted([*scene.steps, *wrong], key=lambda step: step.at_ms)
        return cls(
            seed,
            name,
            length_ms,
            count,
            tuple(steps),
            scene.topics,
            scene.settings,
            scene.every_ms,
            **knobs,
            nodes=scene.nodes,
            dropped=frozenset(drop),
            asked="".join(
                f" --{name} {value}" for name, value in (("faults", faults), ("nodes", nodes)) if value is not None
            ),
        )

    def without(self, numbers: Collection[int]) -> Self:
        return replace(self, dropped=self.dropped | frozenset(numbers))

    @property
    def kept(self) -> list[tuple[int, PlanStep]]:
        return [(number, step) for number, step in enumerate(self.steps) if number not in self.dropped]

    @property
    def faults(self) -> int:
        return sum(isinstance(step, FaultStep) for _, step in self.kept)

    def lines(self) -> Iterator[str]:
        yield (
            f"seed {self.seed}: {self.workload}, {self.members} members, {self.nodes} nodes, "
            f"{self.length_ms / MINUTE_MS:g} minutes, {len(self.kept)} of {len(self.steps)} steps, {self.faults} faults"
        )
        topics = ", ".join(f"topic {name} with {count} partitions" for name, count in self.topics.items())
        yield (
            f"{topics}; a record every {self.every_ms / 1_000:g} s, network delay {self.delay_ms} to "
            f"{self.delay_ms + self.jitter_ms} ms, clocks up to {self.skew_ms / 1_000:g} s apart with a drift of "
            f"{self.drift_ppm} ppm, disk sync {self.disk_ms} ms"
        )
        if self.settings:
            yield "settings " + ", ".join(f"{name}={value}" for name, value in self.settings.items())

    def script(self) -> Iterator[str]:
        for number, step in self.kept:
            yield f"{number:>4} {step}"
