"""Random lives of members: users that poll, work, subscribe, commit, close and crash; a link that delays and breaks; a
coordinator that moves and dies; listeners that raise and hang. Then all of it heals, and everybody must be stable.

`harness.py` asserts on the way that listener calls balance and come only while the user is there.
"""

from __future__ import annotations

from itertools import combinations, cycle
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from client.member.harness import GROUP, Harness, Party, tps
from coterie.assignors import Assignor, CooperativeSticky, Range, RoundRobin, Sticky
from coterie.client.member.states import MemberState
from coterie.client.types import TopicPartition
from coterie.errors import ConnectionLostError, ErrorCode
from coterie.protocol.messages import Heartbeat, JoinGroup, OffsetCommit, SyncGroup

__all__ = ["MemberMachine"]

ASSIGNORS: tuple[tuple[Assignor, ...], ...] = (
    (Range(), CooperativeSticky()),
    (CooperativeSticky(),),
    (CooperativeSticky(),),
    (Sticky(), RoundRobin()),
)
TOPICS = (("t",), ("t",), ("t", "u"), ("u",))
CODES = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.UNKNOWN_SERVER_ERROR,
)
SLOTS = 4
slots = st.integers(0, SLOTS - 1)
SPANS_MS = (0, 1, 10, 100, 1_000, 3_000, 3_000, 5_000, 11_000, 31_000, 61_000)
TIME_TO_HEAL_MS = 900_000


class MemberMachine(RuleBasedStateMachine):
    harness: Harness

    @initialize(
        assignors=st.sampled_from(ASSIGNORS),
        delays=st.lists(st.sampled_from((0, 0, 1, 5, 40, 300, 2_000)), min_size=1, max_size=12),
        initial_delay_ms=st.sampled_from((0, 3_000)),
        first=st.lists(st.tuples(st.sampled_from(TOPICS), st.booleans(), st.booleans()), min_size=2, max_size=SLOTS),
        until_ms=st.sampled_from((0, 50, 20_000)),
    )
    def begin(
        self,
        assignors: tuple[Assignor, ...],
        delays: list[int],
        initial_delay_ms: int,
        first: list[tuple[tuple[str, ...], bool, bool]],
        until_ms: int,
    ) -> None:
        self.harness = Harness({"t": 4, "u": 3}, group_initial_rebalance_delay_ms=initial_delay_ms)
        following = cycle(delays)
        self.harness.delay_ms = lambda: next(following)
        self.assignors = assignors
        self.names = 0
        self.slots: list[Party | None] = [None] * SLOTS
        self.farthest: dict[TopicPartition, int] = {}
        self.asked: list[tuple[Party, str]] = []
        for slot, (topics, static, auto) in enumerate(first):
            self.come(slot, topics, static, auto)
        self.harness.advance(until_ms)

    # --- users --------------------------------------------------------------------------------------------------------

    @rule(slot=slots, topics=st.sampled_from(TOPICS), static=st.booleans(), auto=st.booleans())
    def comes(self, slot: int, topics: tuple[str, ...], static: bool, auto: bool) -> None:
        self.come(slot, topics, static, auto)

    def come(self, slot: int, topics: tuple[str, ...], static: bool, auto: bool) -> None:
        if self.slots[slot] is not None:
            return
        self.names += 1
        settings: dict[str, Any] = {"assignors": self.assignors, "enable_auto_commit": auto, "rng": slot / SLOTS}
        if static:
            settings["group_instance_id"] = f"slot {slot}"
        party = self.harness.party(f"p{self.names}", **settings).joins(*topics)
        party.listener = lambda kind, partitions: self.starts_reading(party, kind, partitions)
        self.slots[slot] = party

    def starts_reading(self, party: Party, kind: str, partitions: list[TopicPartition]) -> None:
        """At what the group has committed."""
        if kind != "assigned":
            return
        group = self.harness.world.group(GROUP)
        for one in partitions:
            stored = None if group is None else group.offsets.get(one.topic, {}).get(one.partition)
            party.positions[one] = 0 if stored is None else stored.offset

    @rule(slot=slots, many=st.integers(1, 9))
    def reads(self, slot: int, many: int) -> None:
        self.read(slot, many)

    def read(self, slot: int, many: int) -> None:
        """A poll returns, the user works, and polls again."""
        if (party := self.slots[slot]) is None or not party.polls:
            return
        party.ends_poll()
        for one in party.assigned:
            if one in party.positions and one not in party.held:
                party.positions[one] += many
        self.harness.advance(many)
        party.begins_poll()

    @rule(many=st.integers(1, 9))
    def all_read(self, many: int) -> None:
        for slot in range(SLOTS):
            self.read(slot, many)

    @rule(slot=slots)
    def walk_away(self, slot: int) -> None:
        if (party := self.slots[slot]) is not None and party.polls and party.waiting_call is None:
            party.ends_poll()

    @rule()
    def come_back(self) -> None:
        for party in self.slots:
            if party is not None and not party.polls:
                party.begins_poll()

    @rule(slot=slots, topics=st.sampled_from(TOPICS))
    def subscribe(self, slot: int, topics: tuple[str, ...]) -> None:
        if (party := self.slots[slot]) is not None:
            party.subscribes(*topics)

    @rule(slot=slots)
    def unsubscribe(self, slot: int) -> None:
        if (party := self.slots[slot]) is not None:
            party.unsubscribes()

    @rule(slot=slots, within_ms=st.sampled_from((None, 500, 60_000)))
    def commit(self, slot: int, within_ms: int | None) -> None:
        if (party := self.slots[slot]) is not None and party.member.subscribed:
            offsets = {one: at for one, at in party.positions.items() if one in party.assigned}
            self.asked.append((party, party.commits_offsets(offsets, within_ms=within_ms)))

    @rule(slot=slots, within_ms=st.sampled_from((0, 100, 30_000)), leave=st.sampled_from((None, True, False)))
    def close(self, slot: int, within_ms: int, leave: bool | None) -> None:
        if (party := self.slots[slot]) is not None:
            party.closes(within_ms=within_ms, leave=leave)
            self.is_followed(slot, party)

    @rule(slot=slots)
    def crash(self, slot: int) -> None:
        """The process is gone, and says nothing."""
        if (party := self.slots[slot]) is not None:
            self.harness.forget(party)
            self.asked = [(one, token) for one, token in self.asked if one is not party]
            self.is_followed(slot, party)

    def is_followed(self, slot: int, party: Party) -> None:
        """By a process like it, as a supervisor would see to."""
        self.slots[slot] = None
        settings = party.member.settings
        self.come(slot, ("t",), settings.group_instance_id is not None, settings.enable_auto_commit)

    @rule(slot=slots, how=st.sampled_from(("raises", "hangs", "returns")))
    def listener(self, slot: int, how: str) -> None:
        if (party := self.slots[slot]) is None:
            return
        party.holds_listener = how == "hangs"
        if how == "raises" and party.waiting_call is not None:
            party.listener_returns(RuntimeError("disk full"))
        elif how == "returns" and party.waiting_call is not None:
            party.listener_returns()

    # --- the world ----------------------------------------------------------------------------------------------------

    @rule(ms=st.sampled_from(SPANS_MS))
    def wait(self, ms: int) -> None:
        self.harness.advance(ms)

    @rule(ms=st.integers(1, 4_000))
    def wait_a_little(self, ms: int) -> None:
        self.harness.advance(ms)

    @rule()
    def all_is_well_for_a_while(self) -> None:
        """So that there is something to break."""
        self.network("well")
        self.harness.refusals.clear()
        self.come_back()
        self.harness.advance(15_000)

    @rule(slot=slots)
    def lose_connection(self, slot: int) -> None:
        if (party := self.slots[slot]) is not None:
            self.harness.disconnect(party)

    @rule(dies=st.booleans())
    def coordinator_moves(self, dies: bool) -> None:
        if dies:
            self.harness.crash_coordinator()
        else:
            self.harness.move_coordinator()

    @rule(how=st.sampled_from(("deaf", "lost", "well", "well")))
    def network_is(self, how: str) -> None:
        self.network(how)

    def network(self, how: str) -> None:
        self.harness.is_deaf = how == "deaf"
        self.harness.lookup_error = ConnectionLostError("no route") if how == "lost" else None

    @rule(kind=st.sampled_from((JoinGroup, SyncGroup, Heartbeat, OffsetCommit)), code=st.sampled_from(CODES))
    def refuse(self, kind: type[Any], code: ErrorCode) -> None:
        self.harness.refusals.append((kind, lambda request: self.harness.refusal(request, code)))

    @precondition(lambda self: self.harness.topics["t"].partitions < 8)
    @rule()
    def partitions_are_added(self) -> None:
        self.harness.has_topics(t=self.harness.topics["t"].partitions + 1)

    # --- what always holds --------------------------------------------------------------------------------------------

    @invariant()
    def one_owner_in_a_generation(self) -> None:
        settled = [
            party.member
            for party in self.harness.parties.values()
            if party.is_in(MemberState.STABLE) and party.member.has_generation
        ]
        for one, other in combinations(settled, 2):
            if one.generation_id == other.generation_id and one.member_id != other.member_id:
                both = one.assigned & other.assigned
                assert not both, f"{one.member_id} and {other.member_id} own {both} in generation {one.generation_id}"

    @invariant()
    def the_listener_knows_what_is_owned(self) -> None:
        for party in self.harness.parties.values():
            if party.waiting_call is None and not party.is_in(MemberState.CLOSED):
                assert party.owns == set(party.assigned) == set(party.member.assigned)

    @invariant()
    def commits_never_go_backwards(self) -> None:
        group = self.harness.world.group(GROUP)
        for topic, offsets in ({} if group is None else group.offsets).items():
            for partition, stored in offsets.items():
                one = TopicPartition(topic, partition)
                assert stored.offset >= self.farthest.get(one, 0), f"{one} went back"
                self.farthest[one] = stored.offset

    @invariant()
    def every_member_can_say_what_it_does(self) -> None:
        assert all(said.endswith(".") for said in self.harness.explained())

    # --- the end ------------------------------------------------------------------------------------------------------

    def teardown(self) -> None:
        if not hasattr(self, "harness"):
            return
        harness = self.harness
        harness.refusals.clear()
        harness.is_deaf, harness.lookup_error = False, None
        alive = [party for party in self.slots if party is not None]
        for party in harness.parties.values():
            party.holds_listener = False
            if party.waiting_call is not None:
                party.listener_returns()
        for party in alive:
            party.subscribes("t")
            if not party.polls:
                party.begins_poll()
        self.goes_on_until_healed(alive, are_all_owned=False)
        # A static leader that is back does not know what was added meanwhile (KIP-814); it sees what comes next.
        harness.has_topics(t=harness.topics["t"].partitions + 1)
        self.goes_on_until_healed(alive, are_all_owned=True)

    def goes_on_until_healed(self, alive: list[Party], *, are_all_owned: bool) -> None:
        harness = self.harness
        until_ms = harness.now_ms + TIME_TO_HEAL_MS
        while not self.has_healed(alive, are_all_owned=are_all_owned):
            assert harness.now_ms < until_ms, "it does not heal:\n" + "\n".join(harness.explained())
            harness.advance(1_000)
            for party in alive:  # an error that was raised is not the end: the user polls on
                party.ends_poll().begins_poll()

    def has_healed(self, alive: list[Party], *, are_all_owned: bool) -> bool:
        well = [party for party in alive if not party.is_in(MemberState.FENCED)]
        owned = sorted(one for party in well for one in party.assigned)
        everything = tps(f"t:0-{self.harness.topics['t'].partitions - 1}")
        return (
            all(party.is_in(MemberState.STABLE) and party.member.reason_to_rejoin is None for party in well)
            and len({party.member.generation_id for party in well}) <= 1
            and (owned == everything or not well or not are_all_owned)
            and all(party.is_in(MemberState.CLOSED) for party in self.harness.parties.values() if party not in alive)
            and all(token in party.commits for party, token in self.asked)
        )
