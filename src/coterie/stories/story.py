"""A story: members with names join, sync, heartbeat, commit and leave, and it is said what they hear.

    story = Story()
    a, b = story.stable("a", "b", session=10_000)
    story.advance(ms=9_999)
    a.beats(expect="ok")
    story.advance(ms=1)
    story.expect(state="PreparingRebalance", members=["a"])

Every step is kept; an expectation that fails prints all of them as the grid that `check_story` reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from coterie.coordinator.classic import Group, State
from coterie.errors import ErrorCode
from coterie.facts import Fact
from coterie.ledger import Rebalance
from coterie.protocol.messages import (
    CommitPartition,
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
from coterie.settings.broker_settings import GroupCoordinatorSettings
from coterie.stories.grid import Step, show
from coterie.stories.phrases import in_words
from coterie.stories.world import World

__all__ = ["PARKED", "Actor", "Story"]

F = TypeVar("F", bound=Fact)

PARKED = "-"
"""What is heard while a request waits for its answer."""

_TOKENS_OF_NOBODY = "?"


@dataclass
class Actor:
    """A member as the story knows it: by name. Its id and generation are what it was last told."""

    story: Story
    name: str
    member_id: str = ""
    generation_id: int = -1
    instance: str | None = None
    options: Mapping[str, Any] | None = None
    """What it joined with last; joining again without options repeats them."""
    answer: Any = None
    """The last thing it heard."""

    def joins(self, *, expect: str | None = None, **options: Any) -> Actor:
        """Options: protocols, topics, owned, session, rebalance, instance, reason, id, old, v8."""
        self.options = {**(self.options or {}), **options}
        said = self.options
        self.instance = said.get("instance", self.instance)
        topics, owned = said.get("topics", ("t",)), said.get("owned", {})
        metadata = write_subscription(Subscription(topics, owned=owned))
        protocols = said.get("protocols", ("range",))
        request = JoinGroup(
            token=self.story.token_for(self),
            group_id=self.story.group_id,
            member_id=options.get("id", self.member_id),
            instance_id=self.instance,
            protocol_type=said.get("type", "consumer"),
            protocols=[p if isinstance(p, Protocol) else Protocol(p, metadata) for p in protocols],
            session_timeout_ms=said.get("session", 10_000),
            rebalance_timeout_ms=said.get("rebalance", 60_000),
            fresh_id=self.story.fresh_id(),
            client_id=self.name,
            client_host="/127.0.0.1",
            reason=options.get("reason"),
            needs_member_id=not said.get("old", False),
            can_skip_assignment=not said.get("v8", False),
        )
        return self._says("join", options, request, expect)

    def enters(self, *, expect: str | None = None, **options: Any) -> Actor:
        """Joins, and once more with its id if it is given one first (KIP-394)."""
        self.joins(**options)
        if isinstance(self.answer, JoinedGroup) and self.answer.error is ErrorCode.MEMBER_ID_REQUIRED:
            self.joins(expect=expect)
        return self

    def syncs(
        self, assignments: Mapping[str, bytes] | None = None, *, expect: str | None = None, **options: Any
    ) -> Actor:
        """`assignments` by name (or by id, for ids nobody has)."""
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

    def leaves(self, *, expect: str | None = None, **options: Any) -> Actor:
        leaving = LeavingMember(
            options.get("id", self.member_id), options.get("instance", self.instance), options.get("reason")
        )
        request = LeaveGroup(self.story.token_for(self), self.story.group_id, [leaving])
        return self._says("leave", options, request, expect)

    def commits(self, offsets: Mapping[str, int], *, expect: str | None = None, **options: Any) -> Actor:
        """`offsets` as {"topic:partition": offset}."""
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

    def _says(self, verb: str, options: Mapping[str, Any], request: Any, expect: str | None) -> Actor:
        said = " ".join([verb, *(_option(name, value) for name, value in options.items())])
        self.story.play(self.name, said, lambda: self.story.world.send(request))
        if expect is not None:
            self.story.check(expect in (self.story.steps[-1].hears, self._own_words()), f"{self.name} to hear {expect}")
        return self

    def _own_words(self) -> str:
        """What it heard itself in the last step, without what others heard."""
        heard = [part.removeprefix("me: ") for part in self.story.heard if part.startswith("me: ")]
        return heard[0] if heard else PARKED


def _option(name: str, value: Any) -> str:
    if value is True:
        return name
    if isinstance(value, tuple | list):
        return f"{name}={','.join(str(one) for one in value)}"
    return f"{name}={value}"


class Story:
    """A group under a clock of its own."""

    def __init__(self, group_id: str = "g", **settings: Any) -> None:
        self.group_id = group_id
        self.world = World(GroupCoordinatorSettings(**settings))
        self.actors: dict[str, Actor] = {}
        self.steps: list[Step] = []
        self.heard: list[str] = []
        self._speaker_of: dict[int, Actor] = {}
        self._seen = 0
        self._ids = 0

    # --- playing ------------------------------------------------------------------------------------------------------

    def member(self, name: str) -> Actor:
        if name not in self.actors:
            self.actors[name] = Actor(self, name)
        return self.actors[name]

    def stable(self, *names: str, assignments: Mapping[str, bytes] | None = None, **options: Any) -> list[Actor]:
        """These members, joined and synced; each is assigned its own name unless said otherwise."""
        members = [self.member(name).enters(**options) for name in names]
        self.settle(assignments)
        return members

    def settle(self, assignments: Mapping[str, bytes] | None = None) -> None:
        """Everybody does what a client would, until the group is Stable."""
        if self.state is State.PREPARING_REBALANCE:
            for actor in self._members_here():
                if self.group.members[actor.member_id].parked_join is None:
                    actor.joins()
        while self.state is State.PREPARING_REBALANCE:
            self.advance(ms=self.world.settings.group_initial_rebalance_delay_ms or 1)
        self.check(self.state is State.COMPLETING_REBALANCE, "the join phase to end")
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
        """Do something, and write down who heard what of it."""
        act()
        replies = list(self.world.replies.items())[self._seen :]
        self._seen += len(replies)
        self.heard = []
        for token, answer in replies:
            actor = self._speaker_of.pop(token, None)
            name = actor.name if actor else _TOKENS_OF_NOBODY
            if actor is not None:
                actor.hears(answer)
            self.heard.append(f"{'me' if name == who else name}: {in_words(answer)}")
        hears = ", ".join(one.removeprefix("me: ") for one in self.heard) or PARKED
        self.steps.append(Step(self.world.now_ms, who, says, hears, self.state.value))

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

    # --- looking ------------------------------------------------------------------------------------------------------

    @property
    def group(self) -> Group:
        """The group; as long as there is none, a Dead one that nobody keeps."""
        return self.world.group(self.group_id) or Group(self.group_id, self.world.settings)

    @property
    def state(self) -> State:
        return self.group.state

    @property
    def rebalances(self) -> list[Rebalance]:
        return self.world.ledger.rebalances_of(self.group_id)

    def told(self, kind: type[F], **fields: Any) -> F:
        """The last fact of this kind with these fields; a member is named by its name."""
        wanted = {field: self.id_of(value) if isinstance(value, str) else value for field, value in fields.items()}
        for fact in reversed(self.world.facts):
            if isinstance(fact, kind) and all(getattr(fact, field) == value for field, value in wanted.items()):
                return fact
        facts = "\n".join(str(fact) for fact in self.world.facts)
        raise AssertionError(f"nothing was told like {kind.__name__} {fields}; what was told:\n{facts}\n{self}")

    def expect(
        self,
        *,
        state: State | str | None = None,
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
