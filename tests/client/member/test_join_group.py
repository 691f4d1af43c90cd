"""Joining (M4, M10, M12): the request, and what every answer means. The whole table of errors is in test_states.py."""

from __future__ import annotations

from client.member.harness import Harness, tps
from coterie.assignors import CooperativeSticky, Range, RoundRobin
from coterie.client.member.facts import Fenced, GroupJoined, IdentityDropped
from coterie.client.member.states import MemberState
from coterie.errors import ErrorCode, FencedInstanceError, KafkaError
from coterie.protocol.messages import Heartbeat, JoinedGroup, JoinGroup, SyncGroup
from coterie.protocol.subscription import read_subscription


def test_a_newcomer_is_given_its_id_and_comes_back_with_it(harness: Harness) -> None:
    """M4, KIP-394: MEMBER_ID_REQUIRED is no failure."""
    (a,) = harness.stable("a")
    first, second = a.requests(JoinGroup)
    assert first.member_id == "" and second.member_id == a.member.member_id != ""
    assert second.reason == f"need to re-join with the given member-id: {second.member_id}"
    assert a.sent[1][0] - a.sent[0][0] == 2, "at once: there and back"


def test_the_join_says_what_the_coordinator_has_to_know(harness: Harness) -> None:
    """M4: the rebalance timeout is max.poll.interval.ms; the request itself may take five seconds longer."""
    a = harness.party("a", client_rack="r1", max_poll_interval_ms=50_000).joins("u", "t")
    harness.settle()
    join = a.requests(JoinGroup)[0]
    assert (join.group_id, join.protocol_type, join.instance_id) == ("readers", "consumer", None)
    assert (join.session_timeout_ms, join.rebalance_timeout_ms) == (10_000, 50_000)
    assert [protocol.name for protocol in join.protocols] == ["range", "cooperative-sticky"]
    said = read_subscription(join.protocols[0].metadata)
    assert (list(said.topics), said.owned, said.generation_id, said.rack) == (["t", "u"], {}, -1, "r1")
    assert a.sent[0][1].timeout_ms == 55_000


def test_the_timeout_of_a_join_is_never_below_that_of_other_requests_nor_beyond_an_int32(harness: Harness) -> None:
    """M4."""
    short = harness.party("short", max_poll_interval_ms=1_000).joins("t")
    long = harness.party("long", max_poll_interval_ms=2**31 - 1).joins("t")
    harness.advance(5)
    assert short.sent[0][1].timeout_ms == 30_000 and long.sent[0][1].timeout_ms == 2**31 - 1


def test_why_it_joins_is_told_in_at_most_255_characters(harness: Harness) -> None:
    """KIP-800."""
    (a,) = harness.stable("a")
    a.wants_rebalance("x" * 300)
    harness.settle()
    assert a.requests(JoinGroup)[-1].reason == "x" * 255
    assert harness.world.ledger.rebalances_of("readers")[-1].reason == "x" * 255


def test_a_short_poll_waits_on_for_the_join_in_flight(harness: Harness) -> None:
    """M4: it does not send another one."""
    harness.stable("a")
    b = harness.party("b").subscribes("t")
    for _ in range(20):
        b.begins_poll()
        harness.advance(10)
        b.ends_poll()
        harness.advance(10)
    assert len(b.requests(JoinGroup)) == 2
    b.begins_poll()
    harness.settle()
    assert len(b.requests(JoinGroup)) == 2


def test_a_member_the_coordinator_has_forgotten_joins_as_a_new_one(harness: Harness) -> None:
    """M4: UNKNOWN_MEMBER_ID drops id and generation."""
    (a,) = harness.stable("a")
    old = a.member.member_id
    a.wants_rebalance()
    harness.refusals.append((JoinGroup, lambda request: JoinedGroup(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)))
    harness.advance(5)
    assert a.fact(IdentityDropped).member_id == ""
    harness.settle()
    assert a.member.member_id != old
    assert [join.member_id for join in a.requests(JoinGroup)][2:4] == [old, ""]


def test_a_coordinator_that_keeps_refusing_is_not_hammered(harness: Harness) -> None:
    """M4: the first time at once, then with back-offs, although Kafka's client would go on at once."""
    a = harness.party("a").subscribes("t")
    harness.refusals.extend(
        (JoinGroup, lambda request: JoinedGroup(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)) for _ in range(1_000)
    )
    a.begins_poll()
    harness.advance(10_000)
    assert 8 < len(a.requests(JoinGroup)) < 20
    harness.refusals.clear()
    harness.settle()


def test_an_answer_that_comes_after_the_user_has_left_is_ignored(harness: Harness) -> None:
    """M10: a join's answer that arrives when the member is no longer joining."""
    harness.stable("a")
    b = harness.party("b").joins("t")
    harness.advance(20)
    assert b.is_in(MemberState.JOINING)
    (join,) = [send for _, send in b.sent if isinstance(send.request, JoinGroup) and send.request.member_id]
    b.unsubscribes()
    harness.advance(5)
    join.then.reply = JoinedGroup(ErrorCode.NONE, "b", 7, "consumer", "range", "b")
    b.handle(join.then)
    assert b.is_in(MemberState.UNJOINED) and b.member.generation_id == -1 and not b.requests(SyncGroup)


def test_heartbeats_pause_from_the_join_to_its_answer_and_go_on_before_the_sync(harness: Harness) -> None:
    """M3, KAFKA-10134."""
    a, b = harness.stable("a", "b")
    b.ends_poll()  # it will not rejoin, so a's join is parked
    a.wants_rebalance()
    harness.advance(20)
    assert a.is_in(MemberState.JOINING)
    sent = len(a.requests(Heartbeat))
    harness.advance(20_000)
    assert a.is_in(MemberState.JOINING) and len(a.requests(Heartbeat)) == sent
    assert "is Joining for 20" in a.member.explain(harness.now_ms)
    harness.refusals.extend([(SyncGroup, None)] * 2)
    b.begins_poll()
    harness.advance(4_000)
    assert len(a.requests(Heartbeat)) > sent


def test_heartbeats_pause_also_when_the_join_has_to_be_repeated_elsewhere(harness: Harness) -> None:
    """M3: the coordinator is found again, but the join is not answered yet."""
    a, b = harness.stable("a", "b")
    b.ends_poll()
    harness.advance(a.member.heartbeat_at_ms - harness.now_ms - 40)  # the next one would fall into the back-off
    a.wants_rebalance()
    harness.advance(20)
    sent = len(a.requests(Heartbeat))
    harness.disconnect(a)
    harness.advance(20_000)
    assert a.is_in(MemberState.JOINING) and len(a.requests(JoinGroup)) == 4 and len(a.requests(Heartbeat)) == sent


def test_an_answer_of_another_protocol_type_is_refused(harness: Harness) -> None:
    """M12."""
    a = harness.party("a").joins("t")
    harness.refusals.append((JoinGroup, JoinedGroup(ErrorCode.NONE, "m", 1, "connect", "range", "m")))
    harness.advance(100)
    (error,) = a.errors
    assert isinstance(error, KafkaError) and error.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert '"connect"' in str(error) and '"consumer"' in str(error)
    assert a.is_in(MemberState.UNJOINED)


def test_a_voted_assignor_the_member_does_not_have_is_refused(harness: Harness) -> None:
    """M12."""
    a = harness.party("a", assignors=(Range(), RoundRobin())).joins("t")
    harness.refusals.append((JoinGroup, JoinedGroup(ErrorCode.NONE, "m", 1, "consumer", "lag-aware", "m")))
    harness.advance(100)
    (error,) = a.errors
    assert '"lag-aware"' in str(error) and "range, roundrobin" in str(error)


def test_members_without_a_common_assignor_are_told_so(harness: Harness) -> None:
    """M4: INCONSISTENT_GROUP_PROTOCOL is fatal to the one that comes later."""
    harness.stable("a", assignors=(Range(),))
    b = harness.party("b", assignors=(RoundRobin(),)).joins("t")
    harness.advance(1_000)
    assert "all members must share an assignor" in str(b.errors[0])
    assert harness.parties["a"].is_in(MemberState.STABLE)


def test_a_fenced_member_is_out_for_good(harness: Harness) -> None:
    """M4: FENCED_INSTANCE_ID is fatal; polling on would throw the other one out, and so on for ever."""
    (a,) = harness.stable("a", group_instance_id="i")
    (b,) = harness.stable("b", group_instance_id="i")
    harness.advance(10_000)
    assert a.is_in(MemberState.FENCED) and a.fact(Fenced).instance_id == "i"
    assert a.told("lost") == tps("t:0-3")
    assert [type(error) for error in a.errors] == [FencedInstanceError]
    for _ in range(3):
        a.ends_poll().begins_poll()
        harness.advance(1_000)
    assert [type(error) for error in a.errors] == [FencedInstanceError] * 4, "every poll says it"
    assert b.is_in(MemberState.STABLE) and b.member.assigned == frozenset(tps("t:0-3"))
    assert "another consumer uses its group.instance.id" in a.member.explain(harness.now_ms)
    a.closes()
    harness.advance(100)
    assert a.is_in(MemberState.CLOSED) and b.is_in(MemberState.STABLE)


def test_a_static_member_comes_back_without_a_rebalance(harness: Harness) -> None:
    """KIP-345: closed without leaving, opened again within the session timeout, nobody rebalances."""
    a, b = harness.stable("a", "b", group_instance_id=None)
    (s,) = harness.stable("s", group_instance_id="s")
    harness.settle()
    before, generation = s.member.assigned, s.member.generation_id
    s.closes()
    harness.advance(100)
    assert s.is_in(MemberState.CLOSED)
    (s2,) = harness.stable("s2", group_instance_id="s")
    harness.advance(10_000)
    assert s2.member.assigned == before and s2.member.generation_id == generation
    assert a.member.generation_id == b.member.generation_id == generation


def test_a_fact_says_which_generation_was_joined_and_who_leads(harness: Harness) -> None:
    """M4."""
    a, b = harness.stable("a", "b", assignors=(CooperativeSticky(),))
    joined = {party.name: party.fact(GroupJoined) for party in (a, b)}
    assert [name for name, fact in joined.items() if fact.leads] == ["a"]
    assert joined["b"].protocol_name == "cooperative-sticky"
