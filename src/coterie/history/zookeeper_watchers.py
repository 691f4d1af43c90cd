"""Design 1, ZooKeeper watchers (semantics 13.1): every consumer watches everybody, decides alone, and claims.

A change rings at every consumer. Each then stops, writes its offsets, gives up its claims, looks who is there, computes
the assignment for all, and claims what is its own. A claim that somebody else still holds means that the two saw
different groups, or one is slower: everything is given up again, and tried again a little later; in vain a few times,
and it waits for the next change with nothing (Kafka 0.8: rebalance.max.retries, rebalance.backoff.ms).

Nothing checks that whoever reads still holds its claim. A session that has expired while its consumer could not hear
of it is a second owner; and offsets are written by whoever thinks it has read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from coterie.assignors import Assignor, Topic
from coterie.history.design_types import (
    Arm,
    CommitDue,
    Effects,
    Offsets,
    Partition,
    Rang,
    StartReading,
    Stopped,
    StopReading,
)
from coterie.history.paths import BROKERS, Paths, read_offset, read_topics, write_offset, write_topics
from coterie.history.registry import (
    ANY_SESSION,
    Answered,
    Ask,
    Changed,
    Children,
    Create,
    Delete,
    Get,
    Operation,
    Puts,
    SessionBegan,
    SessionEnded,
)
from coterie.history.shares import shares

__all__ = ["Phase", "WatchingConsumer", "WatchingSettings"]

RETRY = "retry"
NO_STEP = -1


@dataclass(frozen=True)
class WatchingSettings:
    """Under Kafka 0.8's names, with its defaults."""

    rebalance_max_retries: int = 4
    rebalance_backoff_ms: int = 2_000


class Phase(Enum):
    AWAY = "has no session"
    REGISTERING = "makes its node under ids"
    STOPPING = "waits until nothing more is processed"
    COMMITTING = "writes its offsets"
    RELEASING = "gives up its claims"
    LOOKING = "looks who is there"
    ASKING = "looks what each of them wants"
    CLAIMING = "claims its share"
    CHECKING = "looks who holds what it could not claim"
    RETREATING = "gives up what it could claim, since not all of it was free"
    FINDING = "looks where to begin"
    BACKING_OFF = "waits before it tries again"
    SETTLED = "reads its share, or waits for a change with none"


class WatchingConsumer:
    def __init__(
        self,
        group_id: str,
        member_id: str,
        subscribed: Sequence[str],
        topics: Mapping[str, Topic],
        assignor: Assignor,
        settings: WatchingSettings | None = None,
    ) -> None:
        self.member_id = member_id
        self.phase = Phase.AWAY
        self.reads: frozenset[Partition] = frozenset()
        self.attempts = 0
        """So often it has looked who is there."""
        self.conflicts = 0
        """So often somebody else held what should have been its own."""
        self.has_given_up = False
        self._subscribed = subscribed
        self._topics = topics
        self._assignor = assignor
        self._settings = settings or WatchingSettings()
        self._paths = Paths(group_id)
        self._session = ANY_SESSION
        self._claimed: list[Partition] = []
        self._share: list[Partition] = []
        self._is_registered = False
        self._step = 0
        self._tries = 0
        self._missed_a_change = False
        self._asked = 0
        self._found: dict[Any, Any] = {}
        self._on: Mapping[type, Callable[[Any, int], Effects]] = {
            SessionBegan: self._session_began,
            SessionEnded: self._session_ended,
            Changed: self._changed,
            Answered: self._answered,
            Stopped: self._stopped,
            CommitDue: self._commit_due,
            Rang: self._rang,
        }
        self._next: Mapping[Phase, Callable[[int], Effects]] = {
            Phase.REGISTERING: self._registered,
            Phase.COMMITTING: self._committed,
            Phase.RELEASING: self._released,
            Phase.LOOKING: self._looked,
            Phase.ASKING: self._know_all,
            Phase.CLAIMING: self._tried_to_claim,
            Phase.CHECKING: self._checked,
            Phase.RETREATING: self._retreated,
            Phase.FINDING: self._found_offsets,
        }

    def handle(self, event: Any, now_ms: int) -> Effects:
        return self._on[type(event)](event, now_ms)

    # --- events -------------------------------------------------------------------------------------------------------

    def _session_began(self, event: SessionBegan, _now_ms: int) -> Effects:
        """What was claimed in the session before is somebody else's by now; what is read is still read."""
        self._session = event.number
        self._claimed = []
        self._is_registered = False
        self._tries = 0
        return self._register()

    def _session_ended(self, _event: SessionEnded, _now_ms: int) -> Effects:
        """It reads on until there is a new session: only then it can look who is there (Kafka: handleNewSession)."""
        self._step += 1  # no answer that is on its way counts
        self.phase = Phase.AWAY
        return []

    def _changed(self, _event: Changed, _now_ms: int) -> Effects:
        if self.phase is not Phase.SETTLED:
            self._missed_a_change = True
            return []
        self._tries = 0
        return self._begin()

    def _stopped(self, event: Stopped, now_ms: int) -> Effects:
        if self.phase is not Phase.STOPPING:
            return []
        self.reads = frozenset()
        mine = {one: at for one, at in event.positions.items() if one in self._claimed}
        if not mine:
            return self._committed(now_ms)
        return self._ask(Phase.COMMITTING, self._offsets(mine))

    def _commit_due(self, event: CommitDue, _now_ms: int) -> Effects:
        """Written by whoever has read: no generation, no version, no look at who holds the claim."""
        if not event.positions:
            return []
        return [Ask(self._offsets(event.positions), ANY_SESSION, NO_STEP)]

    def _rang(self, _event: Rang, _now_ms: int) -> Effects:
        return self._begin() if self.phase is Phase.BACKING_OFF else []

    def _answered(self, event: Answered, now_ms: int) -> Effects:
        if event.ask.session != self._session or event.ask.about != self._step:
            return []  # of a step that is over
        if event.trouble is not None:
            return self._try_again(now_ms)
        self._found[event.ask.operation] = event.value
        if len(self._found) < self._asked:
            return []
        return self._next[self.phase](now_ms)

    # --- one attempt, step by step ------------------------------------------------------------------------------------

    def _ask(self, phase: Phase, *operations: Operation) -> Effects:
        self.phase = phase
        self._step += 1
        self._asked = len(operations)
        self._found = {}
        return [Ask(one, self._session, self._step) for one in operations]

    def _register(self) -> Effects:
        return self._ask(Phase.REGISTERING, Create(self._paths.member(self.member_id), write_topics(self._subscribed)))

    def _registered(self, _now_ms: int) -> Effects:
        self._is_registered = True
        return self._begin()

    def _begin(self) -> Effects:
        if not self._is_registered:
            return self._register()
        if self.reads:
            self.phase = Phase.STOPPING
            return [StopReading()]
        return self._release()

    def _committed(self, _now_ms: int) -> Effects:
        return self._release()

    def _release(self) -> Effects:
        if not self._claimed:
            return self._look()
        return self._ask(Phase.RELEASING, *(Delete(self._paths.owner(one)) for one in self._claimed))

    def _released(self, _now_ms: int) -> Effects:
        self._claimed = []
        return self._look()

    def _look(self) -> Effects:
        self.attempts += 1
        self._missed_a_change = False
        self.has_given_up = False
        return self._ask(Phase.LOOKING, Children(self._paths.ids), Children(BROKERS))

    def _looked(self, now_ms: int) -> Effects:
        members = self._found[Children(self._paths.ids)]
        if not self._found[Children(BROKERS)] or self.member_id not in members:
            return self._settle(now_ms, {})  # nobody to read from, or we are not there: a change is coming
        return self._ask(Phase.ASKING, *(Get(self._paths.member(one)) for one in members))

    def _know_all(self, now_ms: int) -> Effects:
        subscriptions = {
            operation.path.rpartition("/")[2]: read_topics(node.data)
            for operation, node in self._found.items()
            if isinstance(operation, Get) and node is not None  # it went meanwhile: a change is coming
        }
        self._share = shares(self._assignor, subscriptions, self._topics).get(self.member_id, [])
        if not self._share:
            return self._settle(now_ms, {})
        return self._ask(Phase.CLAIMING, *map(self._claim, self._share))

    def _claim(self, one: Partition) -> Create:
        return Create(self._paths.owner(one), self.member_id.encode())

    def _tried_to_claim(self, _now_ms: int) -> Effects:
        self._claimed = [one for one in self._share if self._found[self._claim(one)]]
        held = [one for one in self._share if one not in self._claimed]
        if not held:
            return self._have_claimed()
        return self._ask(Phase.CHECKING, *(Get(self._paths.owner(one)) for one in held))

    def _checked(self, now_ms: int) -> Effects:
        """Held by ourselves, if the answer to a claim was lost; by somebody else, and there is a conflict."""
        mine = self.member_id.encode()
        held = {operation.path for operation, node in self._found.items() if node is not None and node.data == mine}
        self._claimed += [one for one in self._share if self._paths.owner(one) in held]
        if len(self._claimed) == len(self._share):
            return self._have_claimed()
        self.conflicts += 1
        if not self._claimed:
            return self._try_again(now_ms)
        return self._ask(Phase.RETREATING, *(Delete(self._paths.owner(one)) for one in self._claimed))

    def _retreated(self, now_ms: int) -> Effects:
        self._claimed = []
        return self._try_again(now_ms)

    def _have_claimed(self) -> Effects:
        return self._ask(Phase.FINDING, *(Get(self._paths.offset(one)) for one in self._claimed))

    def _found_offsets(self, now_ms: int) -> Effects:
        """Read after the claim: whoever had it before has written where it ended before it let go."""
        nodes = {one: self._found[Get(self._paths.offset(one))] for one in self._claimed}
        return self._settle(now_ms, {one: read_offset(node.data) if node else 0 for one, node in nodes.items()})

    def _settle(self, _now_ms: int, offsets: Offsets) -> Effects:
        self.phase = Phase.SETTLED
        self.reads = frozenset(offsets)
        begin = [StartReading(offsets)] if offsets else []
        if self._missed_a_change:
            self._tries = 0
            return [*begin, *self._begin()]
        return begin

    def _try_again(self, now_ms: int) -> Effects:
        self._tries += 1
        if self._tries < self._settings.rebalance_max_retries:
            self.phase = Phase.BACKING_OFF
            return [Arm(RETRY, now_ms + self._settings.rebalance_backoff_ms)]
        self.has_given_up = True
        return self._settle(now_ms, {})

    def _offsets(self, positions: Offsets) -> Puts:
        return Puts({self._paths.offset(one): write_offset(at) for one, at in sorted(positions.items())})
