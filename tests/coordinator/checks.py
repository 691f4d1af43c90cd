"""What must hold of a shard between any two events, each check one function that reads the state from scratch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable
from itertools import pairwise
from typing import Any

from coterie.coordinator.classic import ClassicGroupMember, ClassicGroupState, Group
from coterie.coordinator.classic.effects import (
    AssignmentWritten,
    CreationWritten,
    EmptyWritten,
    OffsetsWritten,
    SessionDue,
    StaticMemberWritten,
    Written,
)
from coterie.coordinator.classic.group import NEVER
from coterie.coordinator.classic.member_bytes import count_held
from coterie.coordinator.classic.states import NEXT
from coterie.coordinator.runtime import Shard
from coterie.facts import (
    AssignmentStored,
    Fact,
    GroupCreated,
    GroupDied,
    GroupEmptied,
    GroupLoaded,
    GroupUnloaded,
    JoinPhaseCompleted,
    RebalanceStarted,
)
from coterie.ledger import Ledger, RebalanceOutcome
from coterie.protocol.java_hash import capacity_for, spread
from coterie.protocol.messages import Token
from coterie.stories import StoryWorld

__all__ = [
    "check_bookkeeping",
    "check_late_commits",
    "check_rebalances",
    "check_timers",
    "check_transitions",
    "check_writes",
    "held_back",
    "in_flight",
    "picture",
    "same_as_far_as_c4",
    "waiting_tokens",
]

EMPTY, PREPARING_REBALANCE, COMPLETING_REBALANCE, STABLE, DEAD = ClassicGroupState
IN_A_REBALANCE = (PREPARING_REBALANCE, COMPLETING_REBALANCE)


def _member_picture(member: ClassicGroupMember) -> dict[str, Any]:
    picture = {slot: getattr(member, slot) for slot in ClassicGroupMember.__slots__}
    return {**picture, "protocols": [(protocol.name, protocol.metadata) for protocol in member.protocols]}


def picture(group: Group | None) -> dict[str, Any] | None:
    """Everything a group knows, as a value: two pictures are equal if nothing has changed in between."""
    if group is None:
        return None
    members = {member_id: _member_picture(member) for member_id, member in group.members.items()}
    return {
        **{slot: getattr(group, slot) for slot in Group.__slots__},
        "members": members,
        "_order": None,  # the members once more
        "static": dict(group.static),
        "pending": dict(group.pending),
        "support": dict(group.support),
        "offsets": {topic: dict(partitions) for topic, partitions in group.offsets.items()},
        "pending_offsets": {producer: dict(pending) for producer, pending in group.pending_offsets.items()},
        "unwritten_commits": dict(group.unwritten_commits),
    }


# --- one group --------------------------------------------------------------------------------------------------------


def check_bookkeeping(group: Group) -> None:
    """Every count and index of a group equals a recount, and its state allows what it holds."""
    members = list(group.members.values())
    assert [member.member_id for member in members] == list(group.members)
    assert group.parked_joins == sum(member.parked_join is not None for member in members)
    assert group.support == Counter(protocol.name for member in members for protocol in member.protocols)
    assert group.static == {
        member.instance_id: member.member_id for member in members if member.instance_id is not None
    }
    assert group.held_bytes == count_held(group)
    assert not group.pending.keys() & group.members.keys(), "an id is a member's or pending, not both"
    assert group.buckets >= capacity_for(len(members))
    assert all(member.spread == spread(member.member_id) for member in members)
    assert group.in_map_order() == sorted(members, key=lambda member: member.spread & (group.buckets - 1))
    assert all(partitions for partitions in group.offsets.values()), "a topic without offsets is not kept"

    assert (group.leader_id in group.members) if members else (group.leader_id is None), "one leader, a member"
    assert group.in_initial_delay <= (group.state is PREPARING_REBALANCE)
    for member in members:
        assert (member.parked_sync is None) or group.state is COMPLETING_REBALANCE, (
            "a sync is parked in CompletingRebalance"
        )
        # In Stable only a static member's join waits: for its new id to be written (rule 19).
        assert (
            (member.parked_join is None)
            or group.state is PREPARING_REBALANCE
            or (group.state is STABLE and member.instance_id is not None)
        )
        assert not member.is_new or (group.state is PREPARING_REBALANCE and member.parked_join is not None)
        assert not member.awaits_sync or group.state in {COMPLETING_REBALANCE, STABLE}
    if group.state is EMPTY:
        assert not members and group.protocol_name is None
    elif group.state is PREPARING_REBALANCE:
        assert group.protocol_type
    else:
        assert members and group.protocol_name is not None
        assert group.support[group.protocol_name] == len(members), "all know the protocol"
        assert group.generation_id > 0


def check_writes(shard: Shard) -> None:
    """What a group believes to be on its way to the log is what the shard has not heard of yet."""
    items = [*shard._under_way, *shard._queue]
    records = (CreationWritten, EmptyWritten, AssignmentWritten, StaticMemberWritten)
    for group in shard.groups.values():
        own = [item.then for item in items if item.group is group]
        assert group.records_under_way == sum(isinstance(then, records) for then in own)
        assert list(group.unwritten_commits.values()) == [then for then in own if isinstance(then, OffsetsWritten)]


# --- timers -----------------------------------------------------------------------------------------------------------


def check_timers(shard: Shard) -> None:
    """Every timer has somebody who needs it, and whoever needs one has it: nothing leaks, nobody is forgotten."""
    armed = {key: at_ms for key, (at_ms, _) in shard.timers._armed.items()}
    wanted: dict[Any, int] = {}
    for group in shard.classic_groups():
        for member in group.members.values():
            waits = member.parked_join is not None or member.parked_sync is not None
            if member.alarm_ms == NEVER:
                assert waits and not member.is_new, f"{member.member_id} can never expire (rules 9, 14)"
            else:
                assert member.alarm_ms <= member.deadline_ms or waits
                wanted[group.session_key(member.member_id)] = member.alarm_ms
        # An alarm that rings while the end of the group is written is held back like everything else.
        rang = [event.member_id for event in shard._held.get(group.group_id, ()) if isinstance(event, SessionDue)]
        for member_id, lapses_ms in group.pending.items():
            if member_id not in rang:
                wanted[group.session_key(member_id)] = lapses_ms
        if group.state is PREPARING_REBALANCE:
            wanted[group.join_key()] = armed.get(group.join_key(), -1)
        sync_at_ms = armed.get(group.sync_key())
        if sync_at_ms is not None:
            assert group.state in {COMPLETING_REBALANCE, STABLE}, "the sync phase is over, its timer is not"
            wanted[group.sync_key()] = sync_at_ms
        else:
            assert not any(member.awaits_sync for member in group.members.values()), "nobody waits for these syncs"
    wanted[shard._expiry_key()] = armed.get(shard._expiry_key(), -1)
    assert (shard._late_key() in armed) == shard._watches, "who watches for late commits has one timer, no other any"
    if shard._watches:  # also for a while after the last write has ended
        wanted[shard._late_key()] = armed[shard._late_key()]
    assert armed == wanted
    bound = sum(len(group.members) + len(group.pending) + 2 for group in shard.classic_groups()) + 2
    assert len(shard.timers) <= bound


def check_late_commits(shard: Shard, now_ms: int) -> None:
    """Rule 22: a commit waits at most `offsets.commit.timeout.ms` for its answer."""
    for item in [*shard._under_way, *shard._queue]:
        if isinstance(item.then, OffsetsWritten) and item.then.token is not None:
            late_ms = item.asked_ms + shard.settings.offsets_commit_timeout_ms
            assert now_ms <= late_ms, "this commit should have been answered by now"
            assert shard.timers._armed[shard._late_key()][0] <= late_ms, "this commit will be answered too late"


# --- tokens -----------------------------------------------------------------------------------------------------------


def in_flight(shard: Shard) -> list[Written]:
    """What comes back when the writes that have been asked for end."""
    return [item.then for item in [*shard._under_way, *shard._queue]]


def waiting_tokens(shard: Shard) -> list[Token]:
    """Every token that somebody still holds: a member that waits, a write that has not ended, or the end of a group."""
    parked = [
        token
        for group in shard.classic_groups()
        for member in group.members.values()
        for token in (member.parked_join, member.parked_sync)
    ]
    # A static member's join is parked; the write of its new id only remembers which one it was.
    writing = [then.token for then in in_flight(shard) if not isinstance(then, StaticMemberWritten)]
    return [token for token in {*parked, *writing, *held_back(shard)} if token is not None]


def held_back(shard: Shard) -> list[Token]:
    """What came for a group whose end is being written, in this order."""
    tokens = [getattr(event, "token", None) for events in shard._held.values() for event in events]
    return [token for token in tokens if token is not None]


# --- states, rebalances -----------------------------------------------------------------------------------------------

_ARROW: dict[type[Fact], tuple[frozenset[ClassicGroupState], ClassicGroupState]] = {
    GroupCreated: (frozenset({DEAD}), EMPTY),
    RebalanceStarted: (frozenset({EMPTY, COMPLETING_REBALANCE, STABLE}), PREPARING_REBALANCE),
    JoinPhaseCompleted: (frozenset({PREPARING_REBALANCE}), COMPLETING_REBALANCE),
    AssignmentStored: (frozenset({COMPLETING_REBALANCE}), STABLE),
    GroupEmptied: (frozenset({PREPARING_REBALANCE}), EMPTY),
    GroupDied: (frozenset({EMPTY, PREPARING_REBALANCE, COMPLETING_REBALANCE, STABLE}), DEAD),
    GroupUnloaded: (frozenset({EMPTY, PREPARING_REBALANCE, COMPLETING_REBALANCE, STABLE}), DEAD),
}


def check_transitions(states: dict[str, ClassicGroupState], facts: Iterable[Fact], shard: Shard) -> None:
    """Facts tell every step from state to state, only along arrows of NEXT, and arrive where the group is."""
    for fact in facts:
        before = states.get(fact.group_id, DEAD)
        if isinstance(fact, GroupLoaded):
            states[fact.group_id] = ClassicGroupState(fact.state)
        elif type(fact) in _ARROW:
            allowed, after = _ARROW[type(fact)]
            assert before in allowed, f"{fact} in {before}"
            assert after in NEXT[before]
            states[fact.group_id] = after
    for group_id in {*states, *shard.groups}:
        group = shard.groups.get(group_id)
        assert states.get(group_id, DEAD) is (group.state if group else DEAD), f"nobody told how {group_id} got there"


def check_rebalances(ledger: Ledger, facts: Iterable[Fact], shard: Shard, vanished: Container[str]) -> None:
    """Every rebalance has a cause; one runs at a time, exactly while the group is in one; none is forgotten.

    Of a group that vanished in a crash nobody can tell that its rebalance is over.
    """
    started = Counter(fact.group_id for fact in facts if isinstance(fact, RebalanceStarted))
    for group_id, count in started.items():
        rebalances = ledger.rebalances_of(group_id)
        assert len(rebalances) == count
        assert all(one.cause for one in rebalances)
        for one, following in pairwise(rebalances):
            assert one.outcome is not RebalanceOutcome.RUNNING and one.ended_ms is not None
            assert one.began_ms <= one.ended_ms <= following.began_ms
        group = shard.groups.get(group_id)
        if group is not None or group_id not in vanished:
            assert (rebalances[-1].outcome is RebalanceOutcome.RUNNING) == (
                group is not None and group.state in IN_A_REBALANCE
            )


# --- the log ----------------------------------------------------------------------------------------------------------


def _offsets(group: Group) -> dict[str, Any]:
    return {
        "offsets": {topic: partitions for topic, partitions in group.offsets.items() if partitions},
        "pending": {producer: pending for producer, pending in group.pending_offsets.items() if pending},
    }


def durable_part(group: Group) -> dict[str, Any]:
    """What a record of the group holds of it (section 10), in a form that does not depend on the order of members."""
    return {
        "state": group.state,
        "generation": group.generation_id,
        "protocol type": group.protocol_type,
        "protocol": group.protocol_name,
        "leader": group.leader_id,
        "static": group.static,
        # A static member that came back without a rebalance counts with what it subscribed to in the last one (rule
        # 24), but only what it subscribes to now is written.
        "subscribed": None if group.static else group.subscribed_topics,
        # Of a Stable group the record tells when its join phase ended; a simple group has no record.
        "since": group.state_timestamp_ms if group.state is EMPTY and group.protocol_type else None,
        "members": {
            member.member_id: (
                member.instance_id,
                member.client_id,
                member.client_host,
                member.session_timeout_ms,
                # -1 is how old records say that there is none; then the session timeout counts, in Kafka as here.
                member.session_timeout_ms if member.rebalance_timeout_ms == -1 else member.rebalance_timeout_ms,
                member.metadata(group.protocol_name),
                member.assignment,
            )
            for member in group.members.values()
        },
    }


def same_as_far_as_c4(live: Group, replayed: Group | None, *, record_lost: bool = False) -> None:
    """C4: offsets, committed and pending, always; the rest of a group that is Stable or Empty.

    A group in a rebalance comes back at its last persisted generation. `record_lost`: a record of the group could not
    be written (of its birth, that it is empty, its end, a static member's id), and then an older one comes back.
    """
    if replayed is None:
        assert record_lost or not live.is_in_log, "the log has forgotten the group"
        assert not any(_offsets(live).values())
        return
    assert _offsets(live) == _offsets(replayed)
    assert replayed.state is (STABLE if replayed.members else EMPTY)
    if record_lost:
        return
    if live.state in IN_A_REBALANCE:
        assert replayed.generation_id <= live.generation_id
        assert replayed.members or not replayed.leader_id
        return
    assert durable_part(live) == durable_part(replayed)


def replayed(world: StoryWorld) -> dict[str, Group]:
    """The groups as they would come back from the log right now."""
    groups = world.replay().groups(world.settings, world.now_ms)
    return {group.group_id: group for group in groups if isinstance(group, Group)}
