"""Commits and fetches that skip the plain path: answers, records and state are those of the plain path."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from broker.driver import Client, World
from broker.test_acl_apis import GROUP, SETTINGS, acl, create, user
from coterie.coordinator.classic import Group
from coterie.coordinator.offsets.quick_commit import QuickCommit
from coterie.errors import ErrorCode
from coterie.facts import OffsetsStored
from coterie.protocol.apis import delete_groups, offset_commit, offset_fetch
from coterie.protocol.buffer import Buffer
from coterie.protocol.frames import request_frame
from coterie.protocol.messages import CommitPartition, CommittedOffset, DeleteGroup, OffsetCommit, OffsetFetch
from coterie.storage import File, MemoryFiles

CLIENTS = 3


class FullFiles(MemoryFiles):
    """Files that cannot grow while `is_full`."""

    is_full = False

    def open(self, path: str, *, create: bool = False) -> File:
        return _Grows(self, super().open(path, create=create))


class _Grows:
    def __init__(self, files: FullFiles, of: File) -> None:
        self._files = files
        self._of = of

    def append(self, data: Buffer) -> None:
        if self._files.is_full:
            raise OSError(errno.ENOSPC, "full")
        self._of.append(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._of, name)


class Pair:
    """Two worlds that differ in one thing: the second has the plain path alone."""

    def __init__(self, *, sync: bool = True, more: dict[str, Any] | None = None) -> None:
        self.worlds = [
            World(FullFiles(), {"offsets.commit.timeout.ms": 3_000, **(more or {})}, sync=sync) for _ in "qp"
        ]
        self.members = [self._prepare(world) for world in self.worlds]
        assert self.members[0] == self.members[1]
        quick, plain = self.worlds
        assert quick.node._quick
        plain.node._quick = {}
        self.clients = [[world.client() for _ in range(CLIENTS)] for world in self.worlds]
        for clients in self.clients:
            for client in clients:
                client.connection.principal = "User:bob"

    def _prepare(self, world: World) -> dict[str, str]:
        client, other = user(world, "admin"), user(world, "admin")
        client.find_coordinator()
        client.create("t", 4)
        client.create("u")
        members = {group: client.enter(group).member_id for group in ("stable", "pending", "preparing", "refused")}
        members["static"] = client.enter("static", instance_id="i").member_id
        if world.cluster.auth.authorizer is not None:
            create(client, acl(), acl(operation=8), *(acl(resource_type=GROUP, resource_name=g) for g in GROUPS[:4]))
        other.send_join("preparing", other.join("preparing").member_id)
        client.commit("empty", {("t", 0): 1})
        pending = group_of(world, "pending").stored.pending
        pending[7] = {("t", 0): CommittedOffset(9, -1, "", 1, None, None)}
        return members

    def ask(self, who: int, frame: bytes) -> None:
        for clients in self.clients:
            if clients[who].closed is None:
                clients[who].send_frame(frame)

    def each(self) -> Iterator[World]:
        return iter(self.worlds)

    def check(self) -> None:
        quick, plain = ([client_shape(client) for client in clients] for clients in self.clients)
        assert quick == plain
        assert shape(self.worlds[0]) == shape(self.worlds[1])
        assert self.worlds[0].files._contents == self.worlds[1].files._contents  # type: ignore[attr-defined]
        assert self.worlds[0].facts == self.worlds[1].facts

    def check_offsets(self) -> None:
        quick, plain = ({group.group_id: group.offsets for group in groups(world)} for world in self.worlds)
        assert quick == plain


def client_shape(client: Client) -> object:
    return list(client._inbox), client.closed, client.connection.call is None, list(client.connection.waiting)


def groups(world: World) -> list[Any]:
    return [group for shard in world.node.coordinator.shards.values() for group in shard.groups.values()]


def group_of(world: World, name: str) -> Group:
    (group,) = (group for group in groups(world) if group.group_id == name)
    assert isinstance(group, Group)
    return group


def shape(world: World) -> list[object]:
    """Return all that a commit may change, but for the offsets: to look at them changes how they are kept."""
    return [
        (
            group.group_id,
            group.state,
            group.generation_id,
            group.is_in_log,
            [(commit.member_id, commit.token is None, commit.records) for commit in group.unwritten_commits.values()],
            [(member.member_id, member.deadline_ms, member.alarm_ms) for member in group.members.values()],
        )
        for group in groups(world)
    ]


GROUPS = ("stable", "static", "pending", "preparing", "refused", "empty", "absent", "")
IN_PAIR = Pair().members[0]


def member_of(name: str) -> str:
    return IN_PAIR.get(name, name)


def framed(api: Any, request: Any, version: int, correlation_id: int, client_id: str | None) -> bytes:
    body = api.write_request(request, version)
    flexible = version >= api.API.flexible
    return request_frame(api.API.key, version, correlation_id, client_id, body, flexible=flexible)[4:]


PARTITIONS = st.lists(
    st.builds(
        CommitPartition,
        st.just("t"),
        st.sampled_from([0, 0, 1, 2, 3]),
        st.integers(0, 5),
        st.sampled_from([-1, 0, 3]),
        st.just(""),
    ),
    min_size=1,
    max_size=3,
)
ODD_PARTITIONS = st.lists(
    st.builds(
        CommitPartition,
        st.sampled_from(["t", "u", "nosuch"]),
        st.sampled_from([0, 1, 4, -1]),
        st.integers(-2, 2**62),
        st.just(-1),
        st.sampled_from(["", "m", "m" * 5_000, None]),
    ),
    max_size=3,
)
CORRELATIONS = st.sampled_from([0, 1, 2**31 - 1, -1, -(2**31)])
CLIENT_IDS = st.sampled_from(["tester", "tester", "", None, "c" * 200])


@st.composite
def commits(draw: st.DrawFn) -> tuple[str, Any]:
    group = draw(st.sampled_from(["stable", "stable", "static", *GROUPS]))
    usual = draw(st.booleans()) or draw(st.booleans())
    request = OffsetCommit(
        None,
        group,
        member_of(group) if usual else draw(st.sampled_from([member_of(group), "nobody", ""])),
        None if usual else draw(st.sampled_from([None, None, "i", "unknown"])),
        1 if usual else draw(st.sampled_from([1, 0, 2, -1])),
        draw(PARTITIONS if usual else PARTITIONS | ODD_PARTITIONS),
    )
    version = draw(st.sampled_from([8, 9, 8, 9] if usual else [2, 6, 7, 8, 9]))
    if version < 7:
        request.instance_id = None
    return "ask", framed(offset_commit, request, version, draw(CORRELATIONS), draw(CLIENT_IDS))


@st.composite
def fetches(draw: st.DrawFn) -> tuple[str, Any]:
    group = draw(st.sampled_from(["stable", "stable", "pending", *GROUPS]))
    topics: Any = [("t", draw(st.lists(st.sampled_from([0, 1, 2, 3, 7]), max_size=3)))]
    if draw(st.integers(0, 5)) == 0:
        topics = draw(st.sampled_from([None, [], [("nosuch", [0])], [("t", [0]), ("u", [0])]]))
    version = draw(st.sampled_from([8, 9, 8, 9, 7, 2]))
    require_stable = version >= 7 and draw(st.booleans())
    request = OffsetFetch(None, group, topics, require_stable=require_stable)
    if version >= 9 and draw(st.booleans()):
        request.member_id, request.member_epoch = member_of(group), draw(st.sampled_from([1, 3]))
    return "ask", framed(offset_fetch, [request], version, draw(CORRELATIONS), draw(CLIENT_IDS))


@st.composite
def damaged(draw: st.DrawFn) -> tuple[str, Any]:
    """A commit or fetch with bytes changed, cut off or added, the header's included, but for API and version."""
    _, sound = draw(commits() | fetches())
    frame = bytearray(sound)
    for _ in range(draw(st.integers(0, 2))):
        frame[draw(st.integers(8, len(frame) - 1))] = draw(st.integers(0, 255))
    return "ask", bytes(frame[: draw(st.integers(8, len(frame)))]) + draw(st.binary(max_size=3))


HAPPENS = st.sampled_from(
    [
        ("disk", "holds"),
        ("disk", "holds"),
        ("disk", "writes"),
        ("disk", "well"),
        ("disk", "full"),
        ("advance", 1),
        ("advance", 3_500),
        ("advance", 12_000),
        ("joins", "stable"),
        ("delete", "empty"),
        ("lose", "stable"),
        ("alarm", "stable"),
    ]
)
STEPS = st.lists(
    st.tuples(st.integers(0, CLIENTS - 1), commits() | commits() | fetches() | damaged() | HAPPENS), max_size=12
)


def usual(*partitions: CommitPartition) -> OffsetCommit:
    return OffsetCommit(None, "stable", member_of("stable"), None, 1, partitions)


USUAL = framed(offset_commit, usual(CommitPartition("t", 0, 5)), 8, 1, "tester")
OF_PENDING, OF_REFUSED = (
    framed(
        offset_commit,
        OffsetCommit(None, group, member_of(group), None, 1, [CommitPartition("t", 0, 5)]),
        8,
        1,
        "tester",
    )
    for group in ("pending", "refused")
)
FETCH_OF_EMPTY = framed(offset_fetch, [OffsetFetch(None, "empty", [("t", [0])])], 8, 1, "tester")
STABLE_FETCH = framed(offset_fetch, [OffsetFetch(None, "pending", [("t", [0])], require_stable=True)], 8, 1, "tester")


def play(pair: Pair, steps: list[tuple[int, tuple[str, Any]]]) -> None:
    for who, (what, it) in steps:
        if what == "ask":
            pair.ask(who, it)
        else:
            for world in pair.each():
                _happens(world, what, it)
        pair.check()
    for world in pair.each():
        _happens(world, "disk", "well")
        world.advance(30_000)
    pair.check()
    pair.check_offsets()


def _happens(world: World, what: str, it: Any) -> None:
    if what == "advance":
        world.advance(it)
    elif what == "disk":
        assert isinstance(world.files, FullFiles)
        if it == "writes":
            world.flush()
        elif it == "holds":
            world.auto = False
        else:
            world.files.is_full = it == "full"
            world.auto |= it == "well"
        world.perform([])
    elif what == "alarm":
        for group in groups(world):
            if group.group_id == it:
                for member in group.members.values():
                    member.alarm_ms += 100_000  # as if it had asked for a longer session
    elif what == "joins":
        world.client().send_join(it)
    elif what == "delete":
        world.client().send(delete_groups, [DeleteGroup(None, it)])
    else:
        coordinator = world.node.coordinator
        world.perform(world.node.groups.lose(coordinator.partition_of(it), world.now_ms))


@settings(max_examples=100, deadline=None)
@given(STEPS)
@example([(0, ("disk", "holds")), (0, ("ask", USUAL)), (1, ("advance", 3_500)), (0, ("disk", "writes"))])
@example([(0, ("disk", "holds")), (0, ("ask", USUAL)), (1, ("lose", "stable"))])
@example([(0, ("disk", "full")), (0, ("ask", USUAL)), (0, ("disk", "well")), (1, ("ask", USUAL))])
@example([(0, ("disk", "holds")), (0, ("ask", USUAL)), (1, ("advance", 29_000)), (0, ("advance", 29_000))])
@example([(0, ("ask", OF_PENDING)), (0, ("ask", STABLE_FETCH))])
@example([(0, ("alarm", "stable")), (0, ("ask", USUAL))])
@example([(0, ("disk", "holds")), (1, ("delete", "empty")), (0, ("ask", FETCH_OF_EMPTY))])
def test_requests_have_the_same_outcome_by_both_paths(steps: list[tuple[int, tuple[str, Any]]]) -> None:
    """Answers, the bytes of all files, groups, sessions and facts; also if the disk is slow, full, or not ours."""
    play(Pair(), steps)


@settings(max_examples=30, deadline=None)
@given(STEPS)
def test_both_paths_agree_without_syncs(steps: list[tuple[int, tuple[str, Any]]]) -> None:
    play(Pair(sync=False), steps)


@settings(max_examples=30, deadline=None)
@given(STEPS)
@example([(0, ("ask", OF_REFUSED)), (1, ("ask", USUAL))])
def test_both_paths_need_the_same_rights(steps: list[tuple[int, tuple[str, Any]]]) -> None:
    """Rights to all but the last groups: a denial is a fact, and is answered by the plain path."""
    play(Pair(more=SETTINGS), steps)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(1, 30), max_size=4))
@example([1, 30, 2])
def test_both_paths_refuse_what_is_too_large(counts: list[int]) -> None:
    """A commit of more than some twelve partitions is larger than a record may be."""
    frames = [framed(offset_commit, usual(*[CommitPartition("t", 1, 5)] * count), 9, 1, "c") for count in counts]
    play(Pair(more={"coterie.max.record.bytes": 1_024}), [(0, ("ask", frame)) for frame in frames])


# --- which requests take which path -----------------------------------------------------------------------------------


def enters(pair: Pair, frame: bytes) -> bool:
    """Return whether a request is handled without the plain path."""
    world, client = pair.worlds[0], pair.clients[0][0]
    quick = world.node._quick.get(frame[:4])
    effects = None if quick is None else quick(client.connection, frame, world.now_ms)
    if effects is not None:
        world.perform(world.cluster.after(effects, world.now_ms))
    return effects is not None


def test_a_usual_commit_is_one_object_until_it_is_answered() -> None:
    pair = Pair()
    world, client = pair.worlds[0], pair.clients[0][0]
    world.auto = False
    assert enters(pair, USUAL)
    (waiting,) = group_of(world, "stable").unwritten_commits.values()
    assert type(waiting) is QuickCommit and waiting.then is waiting
    assert client.connection.call is waiting.token and not client._inbox
    world.auto = True
    world.perform([])
    assert client.connection.call is None and len(client._inbox) == 1
    assert type(world.facts[-1]) is OffsetsStored and list(world.facts[-1].offsets) == [("t", 0, 5)]
    assert group_of(world, "stable").offsets["t"][0].offset == 5


def test_what_is_unusual_is_left_to_the_plain_path() -> None:
    """An instance id, another generation, a state that is not Stable, a partition that does not exist, version 7."""
    pair = Pair()
    good = CommitPartition("t", 0, 5)

    def of(group: str, *rows: CommitPartition, version: int = 8, **more: Any) -> bytes:
        words = {"instance_id": None, "generation_id": 1, "partitions": rows or (good,), **more}
        request = OffsetCommit(token=None, group_id=group, member_id=member_of(group), **words)
        return framed(offset_commit, request, version, 1, "tester")

    unusual = [
        of("static", instance_id="i"),
        of("stable", generation_id=2),
        of("preparing"),
        of("empty"),
        of("absent"),
        of("stable", CommitPartition("t", 4, 5)),
        of("stable", CommitPartition("nosuch", 0, 5)),
        of("stable", CommitPartition("t", 0, 5, metadata="m")),
        of("stable", good, CommitPartition("u", 0, 5)),
        of("stable", version=7),
    ]
    assert [enters(pair, frame) for frame in unusual] == [False] * len(unusual)
    assert enters(pair, of("stable", version=9))


def test_a_usual_fetch_is_answered_at_once() -> None:
    pair = Pair()
    client = pair.clients[0][0]
    frame = framed(offset_fetch, [OffsetFetch(None, "stable", [("t", [0])])], 8, 1, "tester")
    assert not enters(pair, frame), "nothing is committed"
    assert enters(pair, USUAL) and enters(pair, frame)
    client._inbox.popleft()
    client.next_frame()
    assert client.commit("pending", {("t", 0): 1}) == [ErrorCode.UNKNOWN_MEMBER_ID]
