"""The join phase: how a rebalance starts, what it waits for, how it ends (rules 4-8, 13).

A rebalance starts by `start_rebalance`, always with a cause. It ends when all members' joins are parked and no id is
pending, or at the deadline; `maybe_complete_join_phase` is called whenever that may have become true.
"""

from __future__ import annotations

from coterie.coordinator.classic.effects import Arm, Disarm, Effects, EmptyWritten, JoinPhaseDue, Reply, SyncPhaseDue
from coterie.coordinator.classic.group import Group
from coterie.coordinator.classic.states import COMPLETING_REBALANCE, EMPTY, PREPARING_REBALANCE, enter
from coterie.errors import ErrorCode
from coterie.facts import (
    Cause,
    Emit,
    GroupEmptied,
    JoinPhaseCompleted,
    JoinPhaseStuck,
    MemberMissedJoin,
    RebalanceStarted,
)
from coterie.protocol.messages import JoinedGroup, SyncedGroup

SHORTEST_STUCK_WAIT_MS = 1_000
"""A client may give any rebalance timeout, 0 and less too; a phase that can only wait must not keep us busy with it."""


def start_rebalance(group: Group, now_ms: int, cause: Cause, member_id: str = "", reason: str | None = None) -> Effects:
    """Begin a join phase (Kafka's prepareRebalance). Syncs that wait are refused; every member has to join again."""
    effects: Effects = []
    if group.state is COMPLETING_REBALANCE:  # rule 13: who waits for an assignment has to join again
        for member in group.members.values():
            group.assign(member, b"")
        effects += answer_parked_syncs(group, ErrorCode.REBALANCE_IN_PROGRESS, now_ms)
    for member in group.members.values():
        member.awaits_sync = False
    effects.append(Disarm(group.sync_key()))

    enter(group, PREPARING_REBALANCE, now_ms)
    group.rebalance_began_ms = now_ms
    waits_for = [member.member_id for member in group.in_map_order() if member.parked_join is None]
    effects.append(
        Emit(RebalanceStarted(now_ms, group.group_id, cause, member_id, reason, group.generation_id, waits_for))
    )

    if group.in_initial_delay:  # rule 5: give the others of a new group a chance to come
        delay_ms = group.settings.group_initial_rebalance_delay_ms
        group.newcomers = False
        rest_ms = max(group.rebalance_timeout_ms() - delay_ms, 0)
        return [*effects, _wait(group, now_ms, delay_ms, rest_ms)]
    if group.all_members_joined():
        return effects + complete_join_phase(group, now_ms)
    return [*effects, wait_for_joins(group, now_ms)]


def maybe_complete_join_phase(group: Group, now_ms: int) -> Effects:
    """Complete the phase if no other member has to join; the initial delay is not cut short (rule 5)."""
    if group.state is PREPARING_REBALANCE and not group.in_initial_delay and group.all_members_joined():
        return complete_join_phase(group, now_ms)
    return []


def join_phase_due(group: Group, event: JoinPhaseDue, now_ms: int) -> Effects:
    """The deadline of the phase, or the end of one wait of the initial delay."""
    if group.state is not PREPARING_REBALANCE or event.generation_id != group.generation_id:
        return []
    if event.rest_ms and group.newcomers:
        group.newcomers = False
        delay_ms = min(group.settings.group_initial_rebalance_delay_ms, event.rest_ms)
        return [_wait(group, now_ms, delay_ms, max(event.rest_ms - event.waited_ms, 0))]
    return complete_join_phase(group, now_ms)


def complete_join_phase(group: Group, now_ms: int) -> Effects:
    """Drop members that did not join, except static ones; the rest is the next generation (rule 6)."""
    effects: Effects = []
    if group.parked_joins < len(group.members):
        late = [m for m in group.in_map_order() if m.parked_join is None and m.instance_id is None]
        effects += group.remove(late, now_ms)
        effects += [Emit(MemberMissedJoin(now_ms, group.group_id, member.member_id)) for member in late]
    if not group.members:
        return effects + _become_empty(group, now_ms)
    if not group.parked_joins:
        stuck = Emit(JoinPhaseStuck(now_ms, group.group_id, group.generation_id))
        return [*effects, stuck, _wait(group, now_ms, max(group.rebalance_timeout_ms(), SHORTEST_STUCK_WAIT_MS))]
    return effects + _begin_generation(group, now_ms)


def _begin_generation(group: Group, now_ms: int) -> Effects:
    assert group.leader_id is not None
    if group.members[group.leader_id].parked_join is None:
        leader = group.first_in_map_order(m for m in group.members.values() if m.parked_join is not None)
        assert leader is not None
        group.leader_id = leader.member_id
    rejoined = _take_rejoined(group)
    group.generation_id += 1
    group.protocol_name = group.vote()
    members = group.joined_members()
    group.note_subscriptions(members)
    enter(group, COMPLETING_REBALANCE, now_ms)

    effects: Effects = [Disarm(group.join_key())]
    joined_after_ms: dict[str, int] = {}
    generation_id, leader_id = group.generation_id, group.leader_id
    protocol_type, protocol_name = group.protocol_type, group.protocol_name
    for member in group.in_map_order():
        token = member.parked_join
        if token is not None:
            member.parked_join = None
            member_id = member.member_id
            joined_after_ms[member_id] = member.joined_at_ms - group.rebalance_began_ms
            listed = members if member_id == leader_id else ()
            answer = JoinedGroup(
                ErrorCode.NONE, member_id, generation_id, protocol_type, protocol_name, leader_id, listed
            )
            effects.append(Reply(token, answer))
        member.is_new = False
        member.awaits_sync = True
        member.deadline_ms = now_ms + member.session_timeout_ms
        if member.deadline_ms < member.alarm_ms:
            effects += group.set_alarm(member, member.deadline_ms)
    group.parked_joins = 0
    deadline_ms = now_ms + group.rebalance_timeout_ms()
    effects.append(Arm(group.sync_key(), deadline_ms, SyncPhaseDue(group.group_id, group.generation_id)))
    completed = JoinPhaseCompleted(
        now_ms,
        group.group_id,
        group.generation_id,
        group.protocol_name,
        group.leader_id,
        joined_after_ms,
        now_ms - group.rebalance_began_ms,
        rejoined,
    )
    return [*effects, Emit(completed)]


def _take_rejoined(group: Group) -> list[tuple[bytes, list[str]]]:
    """Return the members that have joined again, by their metadata of the protocol before the vote."""
    name = group.protocol_name
    by_metadata: dict[bytes, list[str]] = {}
    for member in group.members.values():
        if member.rejoined:
            member.rejoined = False
            by_metadata.setdefault(member.metadata(name), []).append(member.member_id)
    return list(by_metadata.items())


def _become_empty(group: Group, now_ms: int) -> Effects:
    group.generation_id += 1
    group.protocol_name = None
    group.leader_id = None
    group.note_subscriptions(())
    enter(group, EMPTY, now_ms)
    return [
        Disarm(group.join_key()),
        group.write({}, EmptyWritten(group_id=group.group_id)),
        Emit(GroupEmptied(now_ms, group.group_id, group.generation_id)),
    ]


def wait_for_joins(group: Group, now_ms: int) -> Arm:
    """Give all members of a phase their time to join once more."""
    return _wait(group, now_ms, group.rebalance_timeout_ms())


def _wait(group: Group, now_ms: int, delay_ms: int, rest_ms: int | None = None) -> Arm:
    due = JoinPhaseDue(group.group_id, group.generation_id, delay_ms, rest_ms)
    return Arm(group.join_key(), now_ms + delay_ms, due)


def answer_parked_syncs(group: Group, error: ErrorCode, now_ms: int) -> Effects:
    """Answer each sync that waits, with its assignment or the error; its session starts again (rules 9, 14)."""
    effects: Effects = []
    for member in group.members.values():
        token = member.parked_sync
        if token is None:
            continue
        member.parked_sync = None
        if error:
            effects.append(Reply(token, SyncedGroup(error)))
        else:
            answer = SyncedGroup(error, member.assignment, group.protocol_type, group.protocol_name)
            effects.append(Reply(token, answer))
        effects += group.expect_by(member, now_ms + member.session_timeout_ms)
    return effects
