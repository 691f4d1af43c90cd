"""Joins and syncs that skip the plain path: answers, records, facts, timers and state are those of the plain path."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from broker.driver import World
from broker.test_acl_apis import GROUP, SETTINGS, acl, create, user
from broker.test_quick_offsets import CLIENT_IDS, CLIENTS, CORRELATIONS, Pair, client_shape, framed, group_of, groups
from coterie.coordinator.classic import Group
from coterie.errors import ErrorCode
from coterie.protocol.apis import join_group, leave_group, sync_group
from coterie.protocol.frames import client_id_of, usual_body_at
from coterie.protocol.messages import JoinGroup, LeaveGroup, LeavingMember, Protocol, SyncGroup
from coterie.structs import replace

GROUPS = ("one", "many", "many", "static", "refused", "absent", "")
MEMBERS = ("first", "second", "third", "nobody", "")
SMALL_SETTINGS = {
    "group.min.session.timeout.ms": 6_000,
    "group.max.session.timeout.ms": 60_000,
    "group.max.size": 3,
    "coterie.group.member.max.bytes": 1_500,
}


class Pairs(Pair):
    """Two worlds with groups of one and of three members."""

    def __init__(self, *, sync: bool = True, more: dict[str, Any] | None = None) -> None:
        super().__init__(sync=sync, more={**SMALL_SETTINGS, **(more or {})})

    def _prepare(self, world: World) -> dict[str, str]:
        clients = [user(world, "admin") for _ in range(3)]
        clients[0].find_coordinator()
        found = {"one first": clients[0].enter("one").member_id, "refused first": clients[0].enter("refused").member_id}
        found["static first"] = clients[0].enter("static", instance_id="i").member_id
        ids = [clients[0].enter("many").member_id, *(client.join("many").member_id for client in clients[1:])]
        for client, member_id in reversed(list(zip(clients, ids, strict=True))):
            client.send_join("many", member_id)
        answers = [client.answer() for client in clients]
        assert {answer.generation_id for answer in answers} == {2}
        for client, answer in reversed(list(zip(clients, answers, strict=True))):
            client.send_sync("many", answer, dict.fromkeys(ids, b"some"))
        assert all(client.answer().error is ErrorCode.NONE for client in clients)
        if world.cluster.auth.authorizer is not None:
            create(clients[0], acl(), *(acl(resource_type=GROUP, resource_name=g) for g in ("one", "many", "static")))
        return {**found, **{f"many {name}": member_id for name, member_id in zip(MEMBERS, ids, strict=False)}}

    def check(self) -> None:
        quick, plain = self.worlds
        assert [*map(client_shape, self.clients[0])] == [*map(client_shape, self.clients[1])]
        assert shape(quick) == shape(plain)
        assert quick.facts == plain.facts
        assert quick.files._contents == plain.files._contents  # type: ignore[attr-defined]

    def member_of(self, group: str, name: str) -> str:
        return self.members[0].get(f"{group} {name}", name)

    def generation_of(self, name: str) -> int:
        """Return the generation, which a client knows from the answer to its join."""
        found = [group for group in groups(self.worlds[0]) if group.group_id == name]
        return found[0].generation_id if found else 1


def shape(world: World) -> list[object]:
    """Return all that a join or a sync may change, with the timers of groups."""
    timers = world.node.coordinator.timers._armed
    of_groups = {key: armed[0] for key, armed in timers.items() if isinstance(key, tuple) and len(key) == 3}
    return [of_groups, *map(_group, groups(world))]


def _group(group: Group) -> object:
    return (
        group.group_id,
        group.state,
        group.state_timestamp_ms,
        group.generation_id,
        group.leader_id,
        group.protocol_name,
        group.support,
        group.parked_joins,
        group.pending,
        group.held_bytes,
        group.held_in_all.total,
        group.writing_generation,
        group.records_under_way,
        group._subscriptions,
        [
            (
                member.member_id,
                member.protocols,
                member.session_timeout_ms,
                member.rebalance_timeout_ms,
                member.assignment,
                member.parked_join is None,
                member.parked_sync is None,
                member.awaits_sync,
                member.rejoined,
                member.is_new,
                member.joined_at_ms,
                member.deadline_ms,
                member.alarm_ms,
            )
            for member in group.members.values()
        ],
    )


NAMES = st.sampled_from(["range", "range", "sticky", "é", "n" * 200])
METADATA = st.sampled_from([b"", b"a", b"b" * 100, b"c" * 200, b"d" * 1_400])
PROTOCOLS = st.lists(st.builds(Protocol, NAMES, METADATA), max_size=3)
USUAL_PROTOCOLS = st.lists(st.builds(Protocol, st.just("range"), METADATA), min_size=1, max_size=1)


@st.composite
def joins(draw: st.DrawFn) -> tuple[str, Any]:
    usual = draw(st.booleans()) or draw(st.booleans())
    group = draw(st.sampled_from(GROUPS[:3] if usual else GROUPS))
    name = draw(st.sampled_from(MEMBERS[:3] if usual else MEMBERS))
    version = draw(st.sampled_from([9, 9, 8, 6] if usual else [9, 8, 7, 6, 5, 3, 0]))
    request = JoinGroup(
        None,
        group,
        name,
        None if usual or version < 5 else draw(st.sampled_from([None, "i", "k"])),
        "consumer" if usual else draw(st.sampled_from(["consumer", "connect", ""])),
        draw(USUAL_PROTOCOLS if usual else PROTOCOLS),
        10_000 if usual else draw(st.sampled_from([10_000, 20_000, 5_999, 6_000, 60_000, 60_001, -1])),
        10_000 if usual else draw(st.sampled_from([10_000, 30_000, 0, -1])),
        "",
        reason=None if version < 8 else draw(st.sampled_from([None, "", "why", "w" * 255])),
    )
    return "join", (request, version, draw(CORRELATIONS), draw(CLIENT_IDS), draw(DAMAGE))


@st.composite
def syncs(draw: st.DrawFn) -> tuple[str, Any]:
    usual = draw(st.booleans()) or draw(st.booleans())
    version = 5 if usual else draw(st.sampled_from([5, 4, 3, 0]))
    request = SyncGroup(
        None,
        draw(st.sampled_from(GROUPS[:3] if usual else GROUPS)),
        draw(st.sampled_from(MEMBERS[:3] if usual else MEMBERS)),
        None if usual or version < 3 else draw(st.sampled_from([None, "i", "k"])),
        0 if usual else draw(st.sampled_from([0, 0, 1, -1])),
        [(name, draw(METADATA)) for name in draw(st.lists(st.sampled_from(MEMBERS), max_size=4))],
        "consumer" if usual else draw(st.sampled_from(["consumer", "connect", None])),
        "range" if usual else draw(st.sampled_from(["range", "sticky", None])),
    )
    return "sync", (request, version, draw(CORRELATIONS), draw(CLIENT_IDS), draw(DAMAGE))


DAMAGE = st.just(()) | st.just(()) | st.lists(st.tuples(st.integers(8, 300), st.integers(-3, 255)), max_size=2)
"""Where a byte of the frame is changed, and to which; -1 cuts it there, -2 adds a byte behind it, -3 does nothing."""
HAPPENS = st.sampled_from(
    [
        ("disk", "holds"),
        ("disk", "writes"),
        ("disk", "well"),
        ("disk", "full"),
        ("advance", 1),
        ("advance", 9_000),
        ("advance", 12_000),
        ("leave", "many second"),
        ("lose", "many"),
        ("alarm", "many"),
    ]
)
STEPS = st.lists(st.tuples(st.integers(0, CLIENTS - 1), joins() | joins() | syncs() | HAPPENS), max_size=14)


def frame_of(pair: Pairs, what: str, it: Any) -> bytes:
    request, version, correlation_id, client_id, damage = it
    member_id = pair.member_of(request.group_id, request.member_id)
    if what == "join":
        said = JoinGroup(
            None,
            request.group_id,
            member_id,
            request.instance_id,
            request.protocol_type,
            request.protocols,
            request.session_timeout_ms,
            request.rebalance_timeout_ms,
            "",
            reason=request.reason,
        )
        frame = bytearray(framed(join_group, said, version, correlation_id, client_id))
    else:
        synced = SyncGroup(
            None,
            request.group_id,
            member_id,
            request.instance_id,
            request.generation_id + pair.generation_of(request.group_id),
            [(pair.member_of(request.group_id, name), assigned) for name, assigned in request.assignments],
            request.protocol_type,
            request.protocol_name,
        )
        frame = bytearray(framed(sync_group, synced, version, correlation_id, client_id))
    for at, byte in damage:
        if byte >= 0:
            frame[8 + at % (len(frame) - 8)] = byte
        elif byte == -1:
            del frame[max(at, 8) :]
            frame += b"" if len(frame) > 8 else b"\0"
        elif byte == -2:
            frame += b"\0"
    return bytes(frame)


def play(pair: Pairs, steps: list[tuple[int, tuple[str, Any]]]) -> None:
    for who, (what, it) in steps:
        if what in {"join", "sync"}:
            pair.ask(who, frame_of(pair, what, it))
        else:
            for world in pair.each():
                _happens(pair, world, what, it)
        pair.check()
    for world in pair.each():
        _happens(pair, world, "disk", "well")
        world.advance(70_000)
    pair.check()


def _happens(pair: Pairs, world: World, what: str, it: str | int) -> None:
    files: Any = world.files
    if what == "advance":
        assert isinstance(it, int)
        world.advance(it)
    elif what == "disk":
        if it == "writes":
            world.flush()
        elif it == "holds":
            world.auto = False
        else:
            files.is_full = it == "full"
            world.auto |= it == "well"
        world.perform([])
    elif what == "leave":
        group, _, name = str(it).partition(" ")
        world.client().send(leave_group, LeaveGroup(None, group, [LeavingMember(pair.member_of(group, name))]))
    elif what == "alarm":
        if any(group.group_id == it for group in groups(world)):
            for member in group_of(world, str(it)).members.values():
                member.alarm_ms += 100_000  # as if it had asked for a longer session
    else:
        coordinator = world.node.coordinator
        world.perform(world.node.groups.lose(coordinator.partition_of(str(it)), world.now_ms))


def join(group: str, name: str, metadata: bytes = b"new", version: int = 9, size: int = 10_000) -> tuple[str, Any]:
    protocols = [Protocol("range", metadata)]
    request = JoinGroup(None, group, name, None, "consumer", protocols, size, 10_000, "")
    return "join", (request, version, 7, "tester", ())


def sync(group: str, name: str, *given: str, generation: int = 0) -> tuple[str, Any]:
    assigned = [(each, b"its part") for each in given]
    request = SyncGroup(None, group, name, None, generation, assigned, "consumer", "range")
    return "sync", (request, 5, 7, "tester", ())


REBALANCE_OF_MANY = [
    (0, join("many", "second")),
    (1, join("many", "first")),
    (2, join("many", "third")),
    (1, sync("many", "second")),
    (0, sync("many", "first", "first", "second", "third")),
    (2, sync("many", "third")),
]
EXAMPLES = st.permutations(REBALANCE_OF_MANY)


@settings(max_examples=120, deadline=None)
@given(STEPS)
@example(REBALANCE_OF_MANY)
@example([(0, join("one", "first")), (0, sync("one", "first", "first"))])
@example([(0, join("one", "first")), (0, sync("one", "first", "first", generation=-1))])
@example([(0, join("one", "first", b"x" * 1_400)), (0, join("one", "first", b"x" * 1_400))])
@example([(0, join("one", "first", size=60_001)), (0, join("one", "first", b"y" * 1_600))])
@example([(0, ("disk", "holds")), *REBALANCE_OF_MANY, (1, join("many", "second")), (0, ("disk", "well"))])
@example([(0, ("disk", "full")), *REBALANCE_OF_MANY, (0, ("disk", "well"))])
@example([(0, join("many", "first", b"p")), (1, join("many", "second")), (1, join("many", "second", b"q"))])
@example([(0, ("lose", "many")), *REBALANCE_OF_MANY])
def test_requests_have_the_same_outcome_by_both_paths(steps: list[tuple[int, tuple[str, Any]]]) -> None:
    """Answers, the bytes of all files, groups, timers and facts; also if the disk is slow, full, or not ours."""
    play(Pairs(), steps)


@settings(max_examples=40, deadline=None)
@given(EXAMPLES, st.lists(st.tuples(st.integers(0, CLIENTS - 1), HAPPENS | joins()), max_size=4), st.data())
def test_rebalances_have_the_same_outcome_by_both_paths(
    rebalance: list[tuple[int, tuple[str, Any]]], between: list[tuple[int, tuple[str, Any]]], data: st.DataObject
) -> None:
    steps = list(rebalance)
    for step in between:
        steps.insert(data.draw(st.integers(0, len(steps))), step)
    play(Pairs(), steps)


@settings(max_examples=25, deadline=None)
@given(STEPS)
@example(REBALANCE_OF_MANY)
def test_both_paths_agree_without_syncs(steps: list[tuple[int, tuple[str, Any]]]) -> None:
    play(Pairs(sync=False), steps)


@settings(max_examples=25, deadline=None)
@given(STEPS)
@example([(0, join("refused", "first")), (0, sync("refused", "first")), *REBALANCE_OF_MANY])
def test_both_paths_need_the_same_rights(steps: list[tuple[int, tuple[str, Any]]]) -> None:
    play(Pairs(more=SETTINGS), steps)


def test_a_group_that_is_as_large_as_it_may_be_turns_the_last_ones_away() -> None:
    pair = Pairs()
    for world in pair.each():
        group = group_of(world, "many")
        group.settings = replace(group.settings, group_max_size=2)
    play(pair, REBALANCE_OF_MANY)
    assert len(group_of(pair.worlds[0], "many").members) == 2


@settings(max_examples=300, deadline=None)
@given(joins() | syncs())
def test_a_usual_form_is_read_as_by_the_plain_reader(step: tuple[str, Any]) -> None:
    what, (request, version, correlation_id, client_id, damage) = step
    api: Any = join_group if what == "join" else sync_group
    frame = bytearray(framed(api, request, version, correlation_id, client_id))
    for at, byte in damage:
        frame[8 + at % (len(frame) - 8)] = byte & 0xFF
    given_frame = bytes(frame)
    at_body = usual_body_at(given_frame)
    if at_body is None or version < api.API.flexible:
        return
    if what == "join":
        found: Any = join_group.read_usual(given_frame, at_body, version, 1, client_id_of(given_frame), "/h")
        if found is not None:
            plain: Any = join_group.read_request(
                given_frame,
                at_body,
                version,
                1,
                fresh_id="",
                client_id=client_id_of(given_frame),
                client_host="/h",
            )
            assert found == plain
    elif version == 5:
        found = sync_group.read_usual(given_frame, at_body, 1)
        if found is not None:
            assert found == sync_group.read_request(given_frame, at_body, version, 1)


def test_a_rebalance_is_quick() -> None:
    """The usual requests are not left to the plain path, which would hold both equal without saying anything."""
    pair = Pairs()
    world = pair.worlds[0]
    left: list[bytes] = []
    for start, quick in list(world.node._quick.items()):

        def seen(connection: Any, frame: bytes, now_ms: int, quick: Any = quick) -> Any:
            effects = quick(connection, frame, now_ms)
            if effects is None:
                left.append(frame)
            return effects

        world.node._quick[start] = seen  # type: ignore[index]
    play(pair, [*REBALANCE_OF_MANY, (0, join("one", "first")), (0, sync("one", "first", "first"))])
    assert not left
