"""Clients, sensible and not, a disk that is slow or fails, a clock that jumps, a coordinator that dies: all at random.

After every step everything in `checks.py` holds. Whoever has another driver of the same core can run the rules of this
machine against it: a subclass overrides `make_world`.
"""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from coordinator.checks import (
    COMPLETING_REBALANCE,
    EMPTY,
    IN_A_REBALANCE,
    PREPARING_REBALANCE,
    check_bookkeeping,
    check_late_commits,
    check_rebalances,
    check_timers,
    check_writes,
    replayed,
    same_as_far_as_c4,
    waiting_tokens,
)
from coordinator.clients import SUBSCRIPTIONS, Clients
from coterie.coordinator.classic import ClassicGroupState
from coterie.errors import ErrorCode
from coterie.protocol.messages import (
    CommitPartition,
    DeleteGroup,
    DescribeGroup,
    LeaveGroup,
    LeavingMember,
    ListGroups,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    TopicsDeleted,
    TransactionMarker,
)
from coterie.settings.group_coordinator_settings import GroupCoordinatorSettings

__all__ = ["GroupMachine"]

GROUPS = ("g", "h")
TOPICS = ("t", "u")
PROTOCOLS = (
    ("range",),
    ("range",),
    ("range", "sticky"),
    ("sticky", "range"),
    ("roundrobin", "cooperative-sticky", "range"),
    ("sticky",),
    ("range", "range"),
    (),
)
SPANS_MS = (1, 100, 1_000, 3_000, 5_000, 5_000, 5_000, 6_000, 9_999, 60_000, 300_000, 7 * 86_400_000)
WRITE_ERRORS = (
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.MESSAGE_TOO_LARGE,
)


clients = st.integers(0, 5)
group_ids = st.sampled_from(GROUPS)
# Few places, so that one commit often meets another.
partitions = st.lists(
    st.tuples(st.sampled_from(("t", "t", "u")), st.sampled_from((0, 0, 1)), st.integers(-5, 1_000)),
    min_size=1,
    max_size=2,
)
subscriptions = st.integers(0, len(SUBSCRIPTIONS) - 1)
mostly_none = st.sampled_from((0, 0, 0, -1, 1))
mostly_right = st.sampled_from(("own", "own", "own", "own", "own", "own", "none", "wrong", "another's"))


class GroupMachine(Clients, RuleBasedStateMachine):
    def __init__(self) -> None:
        RuleBasedStateMachine.__init__(self)
        Clients.__init__(self)

    @initialize(
        size=st.sampled_from((*[2**31 - 1] * 6, 4, 2, 0)),
        delay_ms=st.sampled_from((0, 0, 3_000, 100_000)),
        append_bytes=st.sampled_from((1024 * 1024, 200)),
        here=st.sampled_from(((0, 1, 2, 3), (1, 3), (0, 1), (1, 0), (2, 3, 5), (0,), (1,), ())),
        newcomer=st.booleans(),
        holds=st.booleans(),
    )
    def begin(
        self, size: int, delay_ms: int, append_bytes: int, here: tuple[int, ...], newcomer: bool, holds: bool
    ) -> None:
        """Most of a group's life is lived with members: begin with some, and Stable."""
        self.world = self.make_world(
            GroupCoordinatorSettings(
                group_max_size=size, group_initial_rebalance_delay_ms=delay_ms, coterie_max_append_bytes=append_bytes
            )
        )
        for who in here:
            self.join_as_clients_do(who)
        self.settle("g", "stable")
        self.settle("h", "stable")
        if newcomer:
            self.send_join(self.clients[-1], "")  # has its id, and has not come back with it
        self.world.holds_writes = holds

    # --- members ------------------------------------------------------------------------------------------------------

    @rule(
        who=clients,
        names=st.sampled_from(PROTOCOLS),
        subscription=subscriptions,
        session_ms=st.sampled_from((10_000, 10_000, 10_000, 6_000, 6_000, 30_000, 1_800_000, 5_999, -1)),
        rebalance_ms=st.sampled_from((60_000, 60_000, 1_000, 0, -1, 2**31 - 1)),
        changed=st.booleans(),
        whose=mostly_right,
        kind=st.sampled_from((*["consumer"] * 8, "connect", "")),
        old=st.booleans(),
        v9=st.booleans(),
    )
    def join(
        self,
        who: int,
        names: tuple[str, ...],
        subscription: int,
        session_ms: int,
        rebalance_ms: int,
        changed: bool,
        whose: str,
        kind: str,
        old: bool,
        v9: bool,
    ) -> None:
        client = self.clients[who]
        if changed or not client.member_id:
            client.names, client.metadata = names, SUBSCRIPTIONS[subscription]
            client.session_ms, client.rebalance_ms = session_ms, rebalance_ms
        self.send_join(client, self.id_for(client, whose), kind=kind, old=old, v9=v9)

    @rule(who=clients)
    def join_as_clients_do(self, who: int) -> None:
        client = self.clients[who]
        client.names = client.names if "range" in client.names and len(set(client.names)) > 1 else ("range",)
        client.session_ms, client.rebalance_ms = 10_000, 60_000
        self.send_join(client, client.member_id)
        group = self.group_of(client)
        if group is not None and client.member_id in group.pending:
            self.send_join(client, client.member_id)

    @rule(who=clients, subscription=subscriptions, slow=st.booleans())
    def restart(self, who: int, subscription: int, slow: bool) -> None:
        """The process behind a member is a new one, perhaps a new version, and has no id."""
        self.world.holds_writes |= slow
        client = self.clients[who]
        client.member_id, client.generation_id = "", -1
        client.metadata = SUBSCRIPTIONS[subscription]
        self.join_as_clients_do(who)

    @rule(who=st.sampled_from((1, 3)), other=clients, error=st.sampled_from((ErrorCode.NONE, *WRITE_ERRORS)))
    def static_member_returns_while_the_disk_is_slow(self, who: int, other: int, error: ErrorCode) -> None:
        """To a Stable group, if it can be; `other` may restart before the new id is written (rule 19)."""
        self.settle(self.clients[who].group_id, "stable")
        self.write_ends(ErrorCode.NONE, all_of_them=True)
        self.restart(who, subscription=1, slow=True)
        if other != who:
            self.restart(other, subscription=0, slow=True)
        self.write_ends(error, all_of_them=False)

    @rule(who=clients, whose=mostly_right, more=mostly_none, twice=st.booleans(), strict=st.booleans())
    def sync(self, who: int, whose: str, more: int, twice: bool, strict: bool) -> None:
        client = self.clients[who]
        self.send_sync(client, self.id_for(client, whose), client.generation_id + more, strict=strict)
        if twice:
            self.send_sync(client, client.member_id, client.generation_id)

    @rule(group_id=group_ids, until=st.sampled_from(("joined", "followers", "stable", "stable")))
    def settle(self, group_id: str, until: str) -> None:
        """Everybody does what clients do: until all have joined, or the followers synced, or the leader too."""
        for _ in range(4):
            group = self.world.group(group_id)
            if group is None or group.state not in IN_A_REBALANCE:
                return
            for client in self.clients:
                member = group.members.get(client.member_id) if client.group_id == group_id else None
                if member is None:
                    continue
                if group.state is PREPARING_REBALANCE and member.parked_join is None:
                    self.send_join(client, client.member_id)
                elif group.state is COMPLETING_REBALANCE and member.parked_sync is None:
                    follows = client.member_id != group.leader_id
                    if until == "stable" or (until == "followers" and follows):
                        self.send_sync(client, client.member_id, client.generation_id)
            if group.in_initial_delay:
                self.pass_time(self.world.settings.group_initial_rebalance_delay_ms)

    @rule(who=clients, whose=mostly_right, more=mostly_none)
    def heartbeat(self, who: int, whose: str, more: int) -> None:
        client = self.clients[who]
        self.send_heartbeat(client, self.id_for(client, whose), client.generation_id + more)

    @rule(group_id=group_ids, whos=st.lists(clients, max_size=3), by_instance=st.booleans(), whose=mostly_right)
    def leave(self, group_id: str, whos: list[int], by_instance: bool, whose: str) -> None:
        leaving = []
        for client in (self.clients[who] for who in whos):
            member_id = "" if by_instance and client.instance_id else self.id_for(client, whose)
            leaving.append(LeavingMember(member_id, client.instance_id, "done"))
        self.send(LeaveGroup(self.world.token(), group_id, leaving))

    # --- offsets ------------------------------------------------------------------------------------------------------

    @rule(
        who=clients,
        where=partitions,
        whose=mostly_right,
        generation=st.sampled_from(("own", "own", "own", "own", "none", "wrong")),
        metadata=st.sampled_from(("", "", "", "m", "too large", None)),
        retention_ms=st.sampled_from((None, None, None, None, 0, 1_000, 10**12, -1_000_000)),
        producer_id=st.sampled_from((None, None, 1, 2)),
        unknown=st.sampled_from((False, False, False, True)),
    )
    def commit(
        self,
        who: int,
        where: list[tuple[str, int, int]],
        whose: str,
        generation: str,
        metadata: str | None,
        retention_ms: int | None,
        producer_id: int | None,
        unknown: bool,
    ) -> None:
        client = self.clients[who]
        generation_id = {"own": client.generation_id, "none": -1, "wrong": client.generation_id + 1}[generation]
        member_id = self.id_for(client, whose)
        text = metadata if metadata != "too large" else "m" * 5_000
        epoch = 5 if retention_ms is None else -1  # no version of the request has both
        asked = [CommitPartition(topic, partition, offset, epoch, text) for topic, partition, offset in where]
        if unknown:
            asked[0].error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        self.send(
            OffsetCommit(
                token=self.world.token(),
                group_id=client.group_id,
                member_id=member_id,
                instance_id=client.instance_id if member_id else None,
                generation_id=generation_id,
                partitions=asked,
                retention_ms=retention_ms,
                producer_id=producer_id,
                producer_epoch=0 if producer_id else -1,
            ),
            client,
        )

    @rule(group_id=group_ids, where=partitions, producer_id=st.sampled_from((None, 1, 2)))
    def commit_without_membership(
        self, group_id: str, where: list[tuple[str, int, int]], producer_id: int | None
    ) -> None:
        asked = [CommitPartition(*one) for one in where]
        self.send(OffsetCommit(self.world.token(), group_id, "", None, -1, asked, producer_id=producer_id))

    @rule(producer_id=st.sampled_from((1, 2, 3)), committed=st.booleans())
    def end_transaction(self, producer_id: int, committed: bool) -> None:
        self.send(TransactionMarker(self.world.token(), producer_id, 0, committed))

    @rule(group_id=group_ids, producer_id=st.sampled_from((1, 2)), offset=st.integers(0, 9))
    def transaction_is_overtaken(self, group_id: str, producer_id: int, offset: int) -> None:
        """By a commit that came later and stands (rule 22)."""
        self.commit_without_membership(group_id, [("t", 0, offset)], producer_id)
        self.commit_without_membership(group_id, [("t", 0, offset + 1)], None)
        self.end_transaction(producer_id, committed=True)

    @rule(
        group_id=group_ids, what=st.sampled_from(("offsets", "topic", "group", "look")), topic=st.sampled_from(TOPICS)
    )
    def administer(self, group_id: str, what: str, topic: str) -> None:
        if what == "offsets":
            self.send(OffsetDelete(self.world.token(), group_id, [(topic, [0, 1, 9])]))
        elif what == "topic":
            self.send(TopicsDeleted(frozenset({topic})))
        elif what == "group":
            self.send(DeleteGroup(self.world.token(), group_id))
        else:
            self.send(OffsetFetch(self.world.token(), group_id, None, require_stable=True))
            self.send(DescribeGroup(self.world.token(), group_id))
            self.send(ListGroups(self.world.token()))

    # --- the world ----------------------------------------------------------------------------------------------------

    @rule(ms=st.sampled_from(SPANS_MS), alive=st.sampled_from((True, True, False)))
    def advance(self, ms: int, alive: bool) -> None:
        """Time passes; if `alive`, everybody heartbeats on the way."""
        if alive:
            ms = min(ms, 15_000)
            for _ in range(ms // 5_000):
                self.pass_time(5_000)
                for client in filter(self.is_member, self.clients):
                    self.send_heartbeat(client, client.member_id, client.generation_id)
            ms %= 5_000
        self.pass_time(ms)

    @rule(holds=st.sampled_from((True, True, False)))
    def disk_slows_or_speeds_up(self, holds: bool) -> None:
        self.steps += 1
        self.world.holds_writes = holds
        if not holds:
            self.world.end_writes()
        self.listen()

    @precondition(lambda self: self.world.writes_under_way)
    @rule(error=st.sampled_from((ErrorCode.NONE, *WRITE_ERRORS)), all_of_them=st.booleans())
    def write_ends(self, error: ErrorCode, all_of_them: bool) -> None:
        self.steps += 1
        if not self.world.writes_under_way:
            return
        if all_of_them:
            self.world.end_writes(error)
        else:
            self.world.end_write(error)
        self.listen(one_event=not all_of_them and self.world.holds_writes)

    @rule(what=st.sampled_from(("nothing", "nothing", "nothing", "moves", "dies")))
    def something_befalls_the_coordinator(self, what: str) -> None:
        if what == "moves":
            self.move()
        elif what == "dies":
            self.crash()

    # --- what must hold -----------------------------------------------------------------------------------------------

    @invariant()
    def books_are_right(self) -> None:
        shard = self.world.shard
        assert list(shard.classic_groups()) == list(shard.groups.values()), "nothing here makes groups of another type"
        for group in shard.classic_groups():
            assert shard.groups[group.group_id] is group and group.state is not ClassicGroupState.DEAD
            check_bookkeeping(group)
        assert shard.held_in_all.total == sum(group.held_bytes for group in shard.groups.values())
        check_writes(self.world.shard)
        check_timers(self.world.shard)
        check_late_commits(self.world.shard, self.world.now_ms)
        check_rebalances(self.world.ledger, self.world.facts, self.world.shard, self.vanished)

    @invariant()
    def the_generation_never_goes_back(self) -> None:
        for group in self.world.shard.classic_groups():
            _, last = self.generations.get(id(group), (group, 0))
            assert group.generation_id >= last
            self.generations[id(group)] = (group, group.generation_id)  # kept, so that its identity is not used again

    @invariant()
    def every_token_is_answered_waited_for_or_rightly_lost(self) -> None:
        answered, waits = self.world.replies.keys(), set(waiting_tokens(self.world.shard))
        assert not answered & waits, "a token that was answered is still kept: it would be answered twice"
        assert not answered & self.lost, "a token that the rules never answer was answered"
        assert self.sent.keys() - answered - self.lost == waits

    @invariant()
    def the_log_tells_the_same(self) -> None:
        comes_back = replayed(self.world)
        self.acknowledged.check(comes_back)
        if self.world.writes_under_way:
            return
        groups = {group.group_id: group for group in self.world.shard.classic_groups()}
        self.acknowledged.check(groups)
        assert comes_back.keys() <= groups.keys()
        for group_id, group in groups.items():
            same_as_far_as_c4(group, comes_back.get(group_id), record_lost=self.lacks_a_record(group_id))

    def teardown(self) -> None:
        """Let everything end: nobody waits for ever, no timer stays behind, no rebalance goes on."""
        self.disk_slows_or_speeds_up(holds=False)
        shard = self.world.shard
        for _ in range(20_000):
            if len(shard.timers) == 1:
                break
            next_ms = shard.timers.next_ms()
            assert next_ms is not None
            self.pass_time(max(next_ms - self.world.now_ms, 0))
        self.books_are_right()
        self.every_token_is_answered_waited_for_or_rightly_lost()
        self.the_log_tells_the_same()
        assert all(group.state is EMPTY for group in shard.groups.values())
        assert list(shard.timers._armed) == [shard._expiry_key()]
        assert not self.sent.keys() - self.world.replies.keys() - self.lost
