"""A story: members join, sync, send heartbeats, commit and leave, and a test says what they are answered.

    story = Story()
    a, b = story.stable("a", "b", session=10_000)
    story.advance(ms=9_999)
    a.beats(expect="ok")
    story.advance(ms=1)
    story.expect(state="PreparingRebalance", members=["a"])

Every step is kept. An expectation that fails prints all steps as a grid, and `check_story` runs such a grid.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from coterie.coordinator.classic import ClassicGroupState, Group
from coterie.coordinator.consumer import GroupState
from coterie.errors import CoterieError, ErrorCode
from coterie.facts import Fact
from coterie.ledger import Rebalance
from coterie.protocol.messages import (
    CommitPartition,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatAnswer,
    DeleteGroup,
    Heartbeat,
    JoinedGroup,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    OffsetCommit,
    OffsetFetch,
    Protocol,
    SyncGroup,
)
from coterie.protocol.subscription import Subscription, write_subscription
from coterie.settings.group_coordinator_settings import GroupCoordinatorSettings
from coterie.stories.grid import StoryStep, in_words, read, show
from coterie.stories.world import StoryTopics, StoryWorld

F = TypeVar("F", bound=Fact)

PARKED = "-"
"""Stands for the answer while a request waits for it."""

_UNKNOWN_ACTOR = "?"


@dataclass
class Actor:
    """A member by name. Its id and generation, or member epoch, are those of its last answer."""

    story: Story
    name: str
    member_id: str = ""
    generation_id: int = -1
    instance: str | None = None
    options: Mapping[str, Any] | None = None
    """The options of the last join; joining again without options repeats them."""
    answer: Any = None
    """The last answer."""

    def joins(self, *, expect: str | None = None, **options: Any) -> Actor:
        """Send JoinGroup. Options: protocols, topics, owned, session, rebalance, instance, reason, id, old, v8."""
        self.options = {**(self.options or {}), **options}
        joined = self.options
        self.instance = joined.get("instance", self.instance)
        topics, owned = joined.get("topics", ("t",)), joined.get("owned", {})
        metadata = write_subscription(Subscription(topics, owned=owned))
        protocols = joined.get("protocols", ("range",))
        request = JoinGroup(
            token=self.story.token_for(self),
            group_id=self.story.group_id,
            member_id=options.get("id", self.member_id),
            instance_id=self.instance,
            protocol_type=joined.get("type", "consumer"),
            protocols=[p if isinstance(p, Protocol) else Protocol(p, metadata) for p in protocols],
            session_timeout_ms=joined.get("session", 10_000),
            rebalance_timeout_ms=joined.get("rebalance", 60_000),
            fresh_id=self.story.fresh_id(),
            client_id=self.name,
            client_host="/127.0.0.1",
            reason=options.get("reason"),
            needs_member_id=not joined.get("old", False),
            can_skip_assignment=not joined.get("v8", False),
        )
        return self._says("join", options, request, expect)

    def enters(self, *, expect: str | None = None, **options: Any) -> Actor:
        """Join, and join again with the id if one is given first (KIP-394)."""
        self.joins(**options)
        if isinstance(self.answer, JoinedGroup) and self.answer.error is ErrorCode.MEMBER_ID_REQUIRED:
            self.joins(expect=expect)
        return self

    def syncs(
        self, assignments: Mapping[str, bytes] | None = None, *, expect: str | None = None, **options: Any
    ) -> Actor:
        """Send SyncGroup. `assignments` are by name, or by id for ids that no member has."""
        named = {name: data.hex() for name, data in (assignments or {}).items()}
        request = SyncGroup(
            token=self.story.token_for(self),
            group_id=self.story.group_id,
            member_id=options.get("id", self.member_id),
            instance_id=options.get("instance", self.instance),
            generation_id=options.get("gen", self.generation_id),
            assignments=[(self.story.id_of(name), data) for name, data in (assignments or {}).items()],
            protocol_type=options.get("type"),
            protocol_name=options.get("protocol"),
            needs_protocol=options.get("v5", False),
        )
        return self._says("sync", {**named, **options}, request, expect)

    def beats(self, *, expect: str | None = None, **options: Any) -> Actor:
        request = Heartbeat(
            self.story.token_for(self),
            self.story.group_id,
            options.get("id", self.member_id),
            options.get("instance", self.instance),
            options.get("gen", self.generation_id),
        )
        return self._says("beat", options, request, expect)

    def heartbeats(self, *, expect: str | None = None, **options: Any) -> Actor:
        """Send ConsumerGroupHeartbeat (KIP-848), which is answered when its records are on disk.

        Options: epoch (0 to join, -1 to leave), owned (partitions of the topic t), assignor, instance, rebalance, id.
        """
        epoch = options.get("epoch", self.generation_id)
        joins, topic_id = epoch == 0, self.story.topics.topics["t"].id
        owned = () if joins else options.get("owned")
        self.member_id = options.get("id", self.member_id or self.name)
        self.instance = options.get("instance", self.instance)
        request = ConsumerGroupHeartbeat(
            token=self.story.token_for(self),
            group_id=self.story.group_id,
            member_id=self.member_id,
            member_epoch=epoch,
            instance_id=self.instance,
            rebalance_timeout_ms=options.get("rebalance", 60_000 if joins else -1),
            topics=("t",) if joins else None,
            assignor=options.get("assignor"),
            owned=None if owned is None else {topic_id: tuple(map(int, owned))} if owned else {},
            client_id=self.name,
            client_host="/127.0.0.1",
        )
        return self._says("heartbeat", options, request, expect, is_durable=True)

    def leaves(self, *, expect: str | None = None, **options: Any) -> Actor:
        leaving = LeavingMember(
            options.get("id", self.member_id), options.get("instance", self.instance), options.get("reason")
        )
        request = LeaveGroup(self.story.token_for(self), self.story.group_id, [leaving])
        return self._says("leave", options, request, expect)

    def commits(self, offsets: Mapping[str, int], *, expect: str | None = None, **options: Any) -> Actor:
        """Send OffsetCommit. `offsets` is {"topic:partition": offset}."""
        partitions = [
            CommitPartition(topic, int(partition), offset, metadata=options.get("metadata", ""))
            for where, offset in offsets.items()
            for topic, _, partition in [where.rpartition(":")]
        ]
        request = OffsetCommit(
            token=self.story.token_for(self),
            group_id=self.story.group_id,
            member_id=options.get("id", self.member_id),
            instance_id=options.get("instance", self.instance),
            generation_id=options.get("gen", self.generation_id),
            partitions=partitions,
            retention_ms=options.get("retention"),
            producer_id=options.get("producer"),
            producer_epoch=0,
            knows_group_id_not_found=not options.get("v8", False),
        )
        return self._says("commit", {**offsets, **options}, request, expect)

    def fetches(self, *, expect: str | None = None, **options: Any) -> Actor:
        request = OffsetFetch(
            self.story.token_for(self), self.story.group_id, options.get("topics"), options.get("stable", False)
        )
        return self._says("fetch", {}, request, expect)

    def deletes_group(self, *, expect: str | None = None) -> Actor:
        return self._says("delete", {}, DeleteGroup(self.story.token_for(self), self.story.group_id), expect)

    def hears(self, answer: Any) -> None:
        self.answer = answer
        if isinstance(answer, JoinedGroup):
            if answer.member_id:
                self.member_id = answer.member_id
            if not answer.error:
                self.generation_id = answer.generation_id
        elif isinstance(answer, ConsumerGroupHeartbeatAnswer) and not answer.error:
            self.generation_id = answer.member_epoch

    def _says(
        self, verb: str, options: Mapping[str, Any], request: Any, expect: str | None, *, is_durable: bool = False
    ) -> Actor:
        said = " ".join([verb, *(_option(name, value) for name, value in options.items())])

        def act() -> None:
            self.story.world.send(request)
            if is_durable:
                self.story.world.end_writes()

        self.story.play(self.name, said, act)
        if expect is not None:
            self.story.check(expect in (self.story.steps[-1].hears, self._own_words()), f"{self.name} to hear {expect}")
        return self

    def _own_words(self) -> str:
        """Return its own answer in the last step, without those of others."""
        heard = [part.removeprefix("me: ") for part in self.story.heard if part.startswith("me: ")]
        return heard[0] if heard else PARKED


def _option(name: str, value: Any) -> str:
    if value is True:
        return name
    if isinstance(value, tuple | list):
        return f"{name}={','.join(str(one) for one in value)}"
    return f"{name}={value}"


class Story:
    """A group with a virtual clock."""

    def __init__(self, group_id: str = "g", **settings: Any) -> None:
        self.group_id = group_id
        self.topics = StoryTopics()
        self.topics.create("t", 6)
        self.world = StoryWorld(GroupCoordinatorSettings(**settings), image=self.topics)
        self.actors: dict[str, Actor] = {}
        self.steps: list[StoryStep] = []
        self.heard: list[str] = []
        self._speaker_of: dict[int, Actor] = {}
        self._seen = 0
        self._ids = 0

    # --- steps --------------------------------------------------------------------------------------------------------

    def member(self, name: str) -> Actor:
        if name not in self.actors:
            self.actors[name] = Actor(self, name)
        return self.actors[name]

    def stable(self, *names: str, assignments: Mapping[str, bytes] | None = None, **options: Any) -> list[Actor]:
        """Return these members, joined and synced. Each is assigned its own name unless `assignments` are given."""
        members = [self.member(name).enters(**options) for name in names]
        self.settle(assignments)
        return members

    def settle(self, assignments: Mapping[str, bytes] | None = None) -> None:
        """Have all members do what a client would, until the group is Stable."""
        if self.state is ClassicGroupState.PREPARING_REBALANCE:
            for actor in self._members_here():
                if self.group.members[actor.member_id].parked_join is None:
                    actor.joins()
        while self.state is ClassicGroupState.PREPARING_REBALANCE:
            self.advance(ms=self.world.settings.group_initial_rebalance_delay_ms or 1)
        self.check(self.state is ClassicGroupState.COMPLETING_REBALANCE, "the join phase to end")
        here = self._members_here()
        given = assignments or {actor.name: actor.name.encode() for actor in here}
        for actor in sorted(here, key=lambda one: one.member_id == self.group.leader_id):
            actor.syncs(given if actor.member_id == self.group.leader_id else None)

    def advance(self, *, ms: int) -> None:
        self.play("", "", lambda: self.world.advance(ms))

    def hold_writes(self) -> None:
        self.world.holds_writes = True

    def end_writes(self, error: ErrorCode = ErrorCode.NONE) -> None:
        said = "(disk fails)" if error else "(on disk)"
        self.play("", said, lambda: self.world.end_writes(error))

    def move_coordinator(self) -> None:
        self.play("", "(coordinator moves)", self.world.move_coordinator)

    def crash(self) -> None:
        self.play("", "(crash)", self.world.crash)

    def play(self, who: str, says: str, act: Any) -> None:
        """Run a step, and record the answers that it caused."""
        act()
        replies = list(self.world.replies.items())[self._seen :]
        self._seen += len(replies)
        self.heard = []
        for token, answer in replies:
            actor = self._speaker_of.pop(token, None)
            name = actor.name if actor else _UNKNOWN_ACTOR
            if actor is not None:
                actor.hears(answer)
            self.heard.append(f"{'me' if name == who else name}: {in_words(answer)}")
        hears = ", ".join(one.removeprefix("me: ") for one in self.heard) or PARKED
        self.steps.append(StoryStep(self.world.now_ms, who, says, hears, self.state.value))

    def token_for(self, actor: Actor) -> int:
        token = self.world.token()
        self._speaker_of[token] = actor
        return token

    def fresh_id(self) -> str:
        self._ids += 1
        return str(self._ids)

    def id_of(self, name: str) -> str:
        return self.actors[name].member_id if name in self.actors else name

    def _members_here(self) -> list[Actor]:
        return [actor for actor in self.actors.values() if actor.member_id in self.group.members]

    # --- state and expectations ---------------------------------------------------------------------------------------

    @property
    def group(self) -> Group:
        """Return the group, or a Dead one if it does not exist."""
        return self.world.group(self.group_id) or Group(self.group_id, self.world.settings)

    @property
    def state(self) -> ClassicGroupState | GroupState:
        consumer_group = self.world.consumer_group(self.group_id)
        return self.group.state if consumer_group is None else consumer_group.state

    @property
    def rebalances(self) -> list[Rebalance]:
        return self.world.ledger.rebalances_of(self.group_id)

    def emitted(self, kind: type[F], **fields: Any) -> F:
        """Return the last fact of this kind with these fields. Members are given by name."""
        wanted = {field: self.id_of(value) if isinstance(value, str) else value for field, value in fields.items()}
        for fact in reversed(self.world.facts):
            if isinstance(fact, kind) and all(getattr(fact, field) == value for field, value in wanted.items()):
                return fact
        facts = "\n".join(str(fact) for fact in self.world.facts)
        raise AssertionError(f"no fact like {kind.__name__} {fields}; the facts:\n{facts}\n{self}")

    def expect(
        self,
        *,
        state: ClassicGroupState | str | None = None,
        members: Sequence[str] | None = None,
        generation: int | None = None,
        leader: str | None = None,
    ) -> None:
        if state is not None:
            self.check(self.state == state, f"the group to be {state}")
        if members is not None:
            here = sorted(actor.name for actor in self._members_here())
            self.check(here == sorted(members), f"members {sorted(members)}, not {here}")
        if generation is not None:
            self.check(self.group.generation_id == generation, f"generation {generation}")
        if leader is not None:
            self.check(self.group.leader_id == self.id_of(leader), f"{leader} to lead, not {self.group.leader_id}")

    def check(self, holds: bool, expectation: str) -> None:
        if not holds:
            raise AssertionError(f"expected {expectation}; what happened:\n{self}")

    def __str__(self) -> str:
        return show(self.steps)


# --- grids ------------------------------------------------------------------------------------------------------------


def check_story(text: str, **settings: Any) -> Story:
    """Run the steps of a grid and compare. Writes wait for `(on disk)`. A difference prints the actual grid."""
    story = Story(**settings)
    story.hold_writes()
    for wanted in read(text):
        _do_step(story, wanted)
        seen = story.steps[-1]
        if seen != wanted:
            raise AssertionError(
                f"the story differs in its last row:\n{show(story.steps)}\n\nit should have been:\n{show([wanted])}"
            )
    return story


def _do_step(story: Story, step: StoryStep) -> None:
    if step.at_ms < story.world.now_ms:
        raise CoterieError(f"time goes forward: {step.at_ms} ms after {story.world.now_ms} ms")
    passed_ms = step.at_ms - story.world.now_ms
    if not step.says:
        story.advance(ms=passed_ms)
        return
    story.world.advance(passed_ms)  # timers that fire before are part of this row
    verb, *words = step.says.split()
    if step.says in _EVENTS:
        _EVENTS[step.says](story)
    elif verb in _VERBS:
        _VERBS[verb](story.member(step.who), dict(_parse_option(word) for word in words))
    else:
        known = ", ".join([*_VERBS, *_EVENTS])
        raise CoterieError(f"unknown step {step.says!r}; known are {known}")


def _parse_option(word: str) -> tuple[str, Any]:
    name, given, value = word.partition("=")
    if not given:
        return name, True
    if name in {"protocols", "topics", "owned"}:
        return name, tuple(value.split(","))
    if name in {"session", "rebalance", "gen", "epoch", "retention", "producer"}:
        return name, int(value)
    return name, value


def _sync(actor: Actor, options: dict[str, Any]) -> None:
    flags = {name: options.pop(name) for name in list(options) if name in {"gen", "id", "instance", "type", "protocol"}}
    actor.syncs({name: bytes.fromhex(data) for name, data in options.items()}, **flags)


def _commit(actor: Actor, options: dict[str, Any]) -> None:
    offsets = {name: int(options.pop(name)) for name in list(options) if ":" in name}
    actor.commits(offsets, **options)


_VERBS: Mapping[str, Callable[[Actor, dict[str, Any]], object]] = {
    "join": lambda actor, options: actor.joins(**options),
    "sync": _sync,
    "beat": lambda actor, options: actor.beats(**options),
    "heartbeat": lambda actor, options: actor.heartbeats(**options),
    "leave": lambda actor, options: actor.leaves(**options),
    "commit": _commit,
    "fetch": lambda actor, options: actor.fetches(**options),
    "delete": lambda actor, _options: actor.deletes_group(),
}

_EVENTS: Mapping[str, Callable[[Story], object]] = {
    "(on disk)": lambda story: story.end_writes(),
    "(disk fails)": lambda story: story.end_writes(ErrorCode.KAFKA_STORAGE_ERROR),
    "(coordinator moves)": lambda story: story.move_coordinator(),
    "(crash)": lambda story: story.crash(),
}
