"""A handful of clients and all they were ever told; what they may expect is checked as they go.

Knows no rng: what is sent, and when, is for `machine.py` or whoever else drives it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from coordinator.acknowledged import Acknowledged
from coordinator.checks import (
    COMPLETING_REBALANCE,
    EMPTY,
    STABLE,
    check_transitions,
    held_back,
    in_flight,
    picture,
    waiting_tokens,
)
from coterie.coordinator.classic import ClassicGroupState, Group
from coterie.coordinator.classic.effects import StaticMemberWritten
from coterie.errors import ErrorCode
from coterie.facts import Fact, GroupDied, OffsetsExpired, WriteFailed
from coterie.protocol.messages import (
    GroupRecord,
    Heartbeat,
    JoinedGroup,
    JoinGroup,
    LeaveGroup,
    LeftGroup,
    OffsetsCommitted,
    OffsetsDeleted,
    Protocol,
    SyncedGroup,
    SyncGroup,
)
from coterie.protocol.offsets_topic import read_key
from coterie.protocol.subscription import Assignment, Subscription, write_assignment, write_subscription
from coterie.settings.group_coordinator_settings import GroupCoordinatorSettings
from coterie.stories import StoryWorld

__all__ = ["SUBSCRIPTIONS", "Client", "Clients"]

START_MS = 1_700_000_000_000

SUBSCRIPTIONS = (
    write_subscription(Subscription(["t"])),
    write_subscription(Subscription(["t", "u"], owned={"t": [0]})),
    b"",
    b"\x00\x01\x7f\xff\xff\xff",  # an absurd number of topics
)
RECORDS = (
    "the birth of the group",
    "that the group is empty",
    "the end of the group",
)


@dataclass
class Client:
    """A client as it sees itself: it believes what it was last told."""

    name: str
    group_id: str
    instance_id: str | None
    member_id: str = ""
    generation_id: int = -1
    names: tuple[str, ...] = ("range",)
    metadata: bytes = SUBSCRIPTIONS[0]
    session_ms: int = 10_000
    rebalance_ms: int = 60_000


@dataclass
class Sent:
    step: int
    at_ms: int
    request: Any
    client: Client | None


def refused(answer: Any) -> bool:
    """Whether this answer says that nothing happened."""
    match answer:
        case JoinedGroup():
            return answer.error not in {ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED}
        case LeftGroup():
            return bool(answer.error) or all(one.error for one in answer.members)
        case OffsetsCommitted():
            # A commit whose metadata is too large has passed the group's checks and is a sign of life (rule 14).
            return all(answer.errors) and ErrorCode.OFFSET_METADATA_TOO_LARGE not in answer.errors
        case SyncedGroup() | OffsetsDeleted():
            return bool(answer.error)
        case ErrorCode():
            return answer not in {ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS}
    return True  # what only looks changes nothing either


class Clients:
    def __init__(self) -> None:
        self.world = self.make_world(GroupCoordinatorSettings())
        self.clients = [
            Client("a", "g", None),
            Client("s", "g", "i1"),
            Client("b", "g", None),
            Client("r", "g", "i2"),
            Client("c", "g", None),
            Client("d", "h", None),
        ]
        self.sent: dict[int, Sent] = {}
        self.lost: set[int] = set()
        """Tokens that the rules never answer: 10, 13, and what was on its way when the coordinator died."""
        self.acknowledged = Acknowledged()
        self.states: dict[str, ClassicGroupState] = {}
        self.vanished: set[str] = set()
        self.generations: dict[int, tuple[Group, int]] = {}
        self.record_lost: dict[str, int] = {}
        """Group -> how long the log was when its last record failed."""
        self.overlapping: set[str] = set()
        """Groups of which two static members' ids are being written: if one fails, the other has written both.

        The client that was told of the failure comes back, and then it is written again.
        """
        self.held: list[Any] = []
        self.mixed_up: set[str] = set()
        """Those of which one did fail, as long as others are on their way."""
        self.heard = 0
        self.told = 0
        self.steps = 0
        self.ids = 0

    def make_world(self, settings: GroupCoordinatorSettings) -> StoryWorld:
        return StoryWorld(settings, now_ms=START_MS)

    # --- what befalls the coordinator ---------------------------------------------------------------------------------

    def pass_time(self, ms: int) -> None:
        self.steps += 1
        self.world.advance(ms)
        self.listen()

    def move(self) -> None:
        self.steps += 1
        self.world.move_coordinator()
        self.record_lost.clear()
        self.mixed_up.clear()
        self.listen()

    def crash(self) -> None:
        """The connections are gone too: whatever was asked is answered by nobody."""
        self.steps += 1
        unanswered = self.sent.keys() - self.world.replies.keys() - self.lost
        for token in unanswered:
            self.acknowledged.nobody_heard(self.sent[token].step)
        self.lost |= unanswered
        self.world.crash()
        gone = self.states.keys() - self.world.shard.groups.keys()
        self.vanished |= gone
        self.states = {group_id: state for group_id, state in self.states.items() if group_id not in gone}
        self.record_lost.clear()
        self.mixed_up.clear()
        self.listen()

    # --- sending and hearing ------------------------------------------------------------------------------------------

    def group_of(self, client: Client) -> Group | None:
        return self.world.group(client.group_id)

    def is_member(self, client: Client) -> bool:
        group = self.group_of(client)
        return group is not None and client.member_id in group.members

    def id_for(self, client: Client, whose: str) -> str:
        another = self.clients[(self.clients.index(client) + 1) % len(self.clients)]
        return {"own": client.member_id, "none": "", "wrong": "nobody's", "another's": another.member_id}[whose]

    def send_join(
        self, client: Client, member_id: str, *, kind: str = "consumer", old: bool = False, v9: bool = True
    ) -> None:
        self.ids += 1
        request = JoinGroup(
            token=self.world.token(),
            group_id=client.group_id,
            member_id=member_id,
            instance_id=client.instance_id,
            protocol_type=kind,
            protocols=[Protocol(name, client.metadata) for name in client.names],
            session_timeout_ms=client.session_ms,
            rebalance_timeout_ms=client.rebalance_ms,
            fresh_id=str(self.ids),
            client_id=client.name,
            client_host="/127.0.0.1",
            needs_member_id=not old,
            can_skip_assignment=v9,
        )
        self.send(request, client)

    def send_heartbeat(self, client: Client, member_id: str, generation_id: int) -> None:
        request = Heartbeat(self.world.token(), client.group_id, member_id, client.instance_id, generation_id)
        self.send(request, client)

    def send_sync(self, client: Client, member_id: str, generation_id: int, *, strict: bool = False) -> None:
        group = self.group_of(client)
        given = [
            (each, write_assignment(Assignment({"t": [number]})))
            for number, each in enumerate([*(group.members if group else ())][:3])
        ]
        request = SyncGroup(
            token=self.world.token(),
            group_id=client.group_id,
            member_id=member_id,
            instance_id=client.instance_id,
            generation_id=generation_id,
            assignments=[*given, ("nobody's", b"\x00")],
            protocol_type="consumer" if strict else None,
            protocol_name="range" if strict else None,
            needs_protocol=strict,
        )
        self.send(request, client)

    def send(self, request: Any, client: Client | None = None) -> None:
        self.steps += 1
        group_id = getattr(request, "group_id", None)
        before = self.world.group(group_id) if group_id else None
        was = picture(before)
        token = getattr(request, "token", None)
        if token is not None:
            self.sent[token] = Sent(self.steps, self.world.now_ms, request, client)
        self.acknowledged.said(self.steps, request)
        self.world.send(request)
        if getattr(request, "producer_id", None) is not None and token in held_back(self.world.shard):
            # Its marker may overtake it. No producer would send that one: it waits for its commits first.
            self.acknowledged.doubtful.add(self.steps)
        if group_id and token in self.world.replies and refused(self.world.replies[token]):
            self.check_untouched(request, self.world.replies[token], was, self.world.group(group_id))
        if was is not None:
            self.note_lost(request, was)
        self.listen(one_event=True)

    @staticmethod
    def check_untouched(request: Any, answer: Any, was: dict[str, Any] | None, group: Group | None) -> None:
        """A refused event leaves the group as it was, but for the exceptions that the rules name."""
        now = picture(group)
        if was is None:  # a refused first join leaves an Empty group behind (rule 2)
            newborn = now is None or (now["state"] is EMPTY and not now["members"] and not now["generation_id"])
            assert newborn and (now is None or isinstance(request, JoinGroup))
            return
        if isinstance(answer, JoinedGroup) and answer.error is ErrorCode.GROUP_MAX_SIZE_REACHED:
            assert now is not None  # a known member or pending id so refused is removed (rule 1)
            removed = request.member_id
            assert now["members"].keys() == was["members"].keys() - {removed}
            assert now["pending"].keys() == was["pending"].keys() - {removed}
            changes = {"members", "pending", "static", "support", "parked_joins", "leader_id", "held_bytes"}
            was, now = ({key: value for key, value in one.items() if key not in changes} for one in (was, now))
        assert now == was

    def note_lost(self, request: Any, was: dict[str, Any]) -> None:
        """Rule 10: who asks again takes over its place. Rule 13: the parked sync of a member that leaves."""
        members = was["members"]
        answer = self.world.replies.get(getattr(request, "token", -1))
        mine = members.get(getattr(request, "member_id", None))
        if isinstance(request, JoinGroup) and mine and not (answer and refused(answer)):
            self.lose(mine["parked_join"])
        elif isinstance(request, SyncGroup) and mine and not (answer and refused(answer)):
            self.lose(mine["parked_sync"])
        elif isinstance(request, LeaveGroup):  # the last one to go may not be answered yet
            group = self.world.group(request.group_id)
            for one in request.members:
                holder = one.member_id or was["static"].get(one.instance_id)
                if holder in members and (group is None or holder not in group.members):
                    self.lose(members[holder]["parked_sync"])

    def note_lost_of_those_held_back(self) -> None:
        """What was held back is handled when the end of its group is written, or is not: rule 10 as ever."""
        before, self.held = self.held, held_back(self.world.shard)
        joins = [
            token for token in before if token not in self.held and isinstance(self.sent[token].request, JoinGroup)
        ]
        for index, token in enumerate(joins):
            mine = self.sent[token].request
            later = [self.sent[one].request for one in joins[index + 1 :]]
            if any((mine.group_id, mine.member_id) == (one.group_id, one.member_id) for one in later):
                self.lose(token)

    def lose(self, token: Any) -> None:
        """It may only be lost if it is not waited for any more: else its answer is still owed."""
        if token is not None and token not in self.world.replies and token not in waiting_tokens(self.world.shard):
            self.lost.add(token)

    def listen(self, *, one_event: bool = False) -> None:
        """Everybody hears what there is to hear; after a single event the group is still where the answers say."""
        self.note_lost_of_those_held_back()
        replies = list(self.world.replies.items())[self.heard :]
        self.heard += len(replies)
        for token, answer in replies:
            sent = self.sent[token]
            if sent.client is not None and isinstance(answer, JoinedGroup):
                sent.client.member_id = answer.member_id or sent.client.member_id
                if not answer.error:
                    sent.client.generation_id = answer.generation_id
            if one_event and not getattr(answer, "error", True):
                self.check_in_time(sent, answer)
            late = self.world.now_ms - sent.at_ms >= self.world.settings.offsets_commit_timeout_ms
            self.acknowledged.heard(sent.step, sent.request, answer, late=late)
        facts = self.world.facts[self.told :]
        self.told += len(facts)
        for fact in facts:
            self.note(fact)
        writing = [then.group_id for then in in_flight(self.world.shard) if isinstance(then, StaticMemberWritten)]
        self.overlapping = {group_id for group_id in writing if writing.count(group_id) > 1}
        if not writing:
            self.record_lost.update(dict.fromkeys(self.mixed_up, len(self.world.log)))
            self.mixed_up.clear()
        self.vanished -= self.world.shard.groups.keys()
        check_transitions(self.states, facts, self.world.shard)

    def check_in_time(self, sent: Sent, answer: Any) -> None:
        """Nobody is told of a generation before its join phase is over, or of an assignment before it is stored."""
        if not isinstance(answer, JoinedGroup | SyncedGroup):
            return
        group = self.world.group(sent.request.group_id)
        assert group is not None
        if isinstance(answer, SyncedGroup):
            assert group.state is STABLE
        else:
            assert group.state in {COMPLETING_REBALANCE, STABLE} and group.generation_id == answer.generation_id

    def note(self, fact: Fact) -> None:
        if isinstance(fact, OffsetsExpired):
            self.acknowledged.gone(self.steps, [(fact.group_id, *one) for one in fact.partitions])
        elif isinstance(fact, GroupDied) and fact.why == "nothing was left of it":
            self.acknowledged.gone(self.steps, self.acknowledged.keys_of(fact.group_id))
        elif isinstance(fact, WriteFailed) and fact.what in RECORDS:
            self.record_lost[fact.group_id] = len(self.world.log)
        elif isinstance(fact, WriteFailed) and fact.group_id in self.overlapping:
            self.mixed_up.add(fact.group_id)

    def lacks_a_record(self, group_id: str) -> bool:
        if group_id in self.mixed_up:
            return True
        since = self.record_lost.get(group_id)
        if since is None:
            return False
        written = (read_key(entry.key) for entry in self.world.log[since:] if entry.marker is None)
        return not any(isinstance(record, GroupRecord) and record.group_id == group_id for record in written)
