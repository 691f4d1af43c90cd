"""The port on a real ZooKeeper answers as its model does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from queue import Empty, SimpleQueue
from typing import Any, Protocol

import pytest

from coterie.history.design_types import (
    ANY_SESSION,
    Children,
    ChildrenChanged,
    Create,
    Delete,
    Get,
    Operation,
    SetData,
    ZkError,
    ZkRequest,
    ZkResponse,
    ZNode,
)
from coterie.history.drivers import KazooSession
from coterie.history.zookeeper_model import Ensemble
from coterie.history.zookeeper_server import ZooKeeper
from coterie.sim.schedule import Rng, Schedule

WAIT_S = 20.0


class Asker(Protocol):
    session: int

    def answer(self, operation: Operation, session: int | None = None) -> ZkResponse: ...
    def next_event(self) -> Any: ...
    def end(self) -> None: ...
    def counted(self, what: str) -> int: ...


class OnModel:
    def __init__(self, ensemble: Ensemble) -> None:
        self._schedule = ensemble.schedule
        self._heard: list[Any] = []
        self._client = ensemble.client("a", self._heard.append)
        self._client.connect()
        self.session = self.next_event().number

    def next_event(self) -> Any:
        self._schedule.run(self._schedule.now_ms + 200)
        return self._heard.pop(0)

    def answer(self, operation: Operation, session: int | None = None) -> ZkResponse:
        self._client.send(ZkRequest(operation, self.session if session is None else session))
        found: ZkResponse = self.next_event()
        return found

    def end(self) -> None:
        self._client.close()
        self._schedule.run(self._schedule.now_ms + 200)

    def counted(self, what: str) -> int:
        return self._client.counts[what]


class OnZooKeeper:
    def __init__(self, address: str) -> None:
        self._heard: SimpleQueue[Any] = SimpleQueue()
        self._registry = KazooSession(address, self._heard.put, session_timeout_ms=4_000)
        self._registry.connect()
        self._is_open = True
        self.session = self.next_event().number

    def next_event(self) -> Any:
        try:
            return self._heard.get(timeout=WAIT_S)
        except Empty:
            raise AssertionError(f"nothing was heard in {WAIT_S} s") from None

    def answer(self, operation: Operation, session: int | None = None) -> ZkResponse:
        self._registry.send(ZkRequest(operation, self.session if session is None else session))
        found: ZkResponse = self.next_event()
        return found

    def end(self) -> None:
        if self._is_open:
            self._is_open = False
            self._registry.close()

    def counted(self, what: str) -> int:
        return self._registry.counts[what]


@pytest.fixture(params=["model", "zookeeper"])
def new_asker(request: pytest.FixtureRequest) -> Iterator[Callable[[], Asker]]:
    """Makes a client of one and the same ensemble."""
    with ExitStack() as opened:
        if request.param == "model":
            ensemble = Ensemble(Schedule(), Rng(1).of("x"), session_timeout_ms=4_000, lags_ms=(2, 9))
            yield lambda: OnModel(ensemble)
            return
        zookeeper: ZooKeeper = request.getfixturevalue("zookeeper")

        def make() -> OnZooKeeper:
            made = OnZooKeeper(zookeeper.address)
            opened.callback(made.end)
            return made

        yield make


def test_a_node_is_made_once_read_and_deleted_once(new_asker: Callable[[], Asker]) -> None:
    one = new_asker()
    create, get, delete = Create("/contract/once/x", b"1"), Get("/contract/once/x"), Delete("/contract/once/x")
    assert one.answer(get).value is None
    assert one.answer(create).value is True
    assert one.answer(create).value is False
    assert one.answer(get).value == ZNode(b"1", 0)
    assert one.answer(delete).value is True
    assert one.answer(delete).value is False


def test_a_watch_of_children_rings_once_and_is_counted(new_asker: Callable[[], Asker]) -> None:
    one, two = new_asker(), new_asker()
    look = Children("/contract/watch/ids")
    assert one.answer(look).value == []
    assert one.answer(look).value == [], "set twice, it rings once"
    two.answer(Create("/contract/watch/ids/b", b""))
    assert one.next_event() == ChildrenChanged("/contract/watch/ids")
    two.answer(Create("/contract/watch/ids/a", b""))
    assert one.answer(look).value == ["a", "b"]
    assert (one.counted("notifications"), one.counted("membership_reads"), two.counted("writes")) == (1, 3, 2)


def test_what_is_ephemeral_goes_when_its_session_is_closed(new_asker: Callable[[], Asker]) -> None:
    one, two = new_asker(), new_asker()
    one.answer(Create("/contract/gone/x", b""))
    one.answer(Create("/contract/gone/y", b"", is_ephemeral=False))
    one.end()
    assert two.answer(Children("/contract/gone", watch=False)).value == ["y"]


def test_offsets_are_put_where_there_were_none_and_a_guard_lets_pass_only_who_saw_the_last(
    new_asker: Callable[[], Asker],
) -> None:
    one = new_asker()
    guard = "/contract/guard/assignment"
    assert one.answer(Create(guard, b"", is_ephemeral=False)).value is True
    version = one.answer(Get(guard)).value.version
    offsets = {"/contract/guard/offsets/t/0": b"5", "/contract/guard/offsets/t/1": b"6"}
    assert one.answer(SetData(offsets, (guard, version))).value is True
    assert one.answer(Get("/contract/guard/offsets/t/1")).value.data == b"6"
    assert one.answer(SetData({guard: b"next"}, (guard, version))).value is True
    assert one.answer(SetData({"/contract/guard/offsets/t/0": b"9"}, (guard, version))).value is False
    assert one.answer(Get("/contract/guard/offsets/t/0")).value.data == b"5"


def test_what_names_a_session_that_is_over_is_not_done_and_any_session_will_do(new_asker: Callable[[], Asker]) -> None:
    one = new_asker()
    assert one.answer(Create("/contract/over/x", b""), session=one.session + 7).error is ZkError.EXPIRED
    assert one.answer(SetData({"/contract/over/y": b""}), session=ANY_SESSION).value is True
    assert one.answer(Children("/contract/over", watch=False)).value == ["y"]
