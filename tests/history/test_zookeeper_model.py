"""What the model keeps of a real ensemble: order, lag, sessions."""

from __future__ import annotations

from typing import Any

from coterie.history.design_types import (
    Children,
    ChildrenChanged,
    Create,
    Get,
    Operation,
    SessionBegan,
    SessionEnded,
    SetData,
    ZkError,
    ZkRequest,
    ZkResponse,
)
from coterie.history.zookeeper_model import Ensemble, EnsembleClient
from coterie.sim.schedule import Rng, Schedule

SESSION_MS = 6_000


class Asker:
    def __init__(self, ensemble: Ensemble, server: int) -> None:
        self.events: list[Any] = []
        self.client: EnsembleClient = ensemble.client("a", self.events.append)
        self._schedule = ensemble.schedule
        self.client.connect()
        self.client.server = ensemble.servers[server]
        ensemble.schedule.run(ensemble.schedule.now_ms + 500)
        assert self.client.session

    def asks(self, operation: Operation) -> None:
        self.client.send(ZkRequest(operation, self.client.session))

    def answer(self, operation: Operation, within_ms: int = 500) -> Any:
        self.asks(operation)
        self._schedule.run(self._schedule.now_ms + within_ms)
        last = self.events[-1]
        assert isinstance(last, ZkResponse) and last.request.operation == operation, self.events
        return last.value


def ensemble(lag_ms: int) -> Ensemble:
    return Ensemble(Schedule(), Rng(1).of("x"), session_timeout_ms=SESSION_MS, lags_ms=(lag_ms,))


def test_a_follower_answers_from_what_it_has_which_may_be_old() -> None:
    model = ensemble(200)
    near, far = Asker(model, 0), Asker(model, 1)
    assert near.answer(Create("/a/x", b""), 20) is True
    assert far.answer(Children("/a", watch=False), 20) == []
    model.schedule.run(model.schedule.now_ms + 200)
    assert far.answer(Children("/a", watch=False), 20) == ["x"]


def test_whoever_writes_reads_its_own_write_also_from_a_follower() -> None:
    model = ensemble(200)
    far = Asker(model, 1)
    far.asks(Create("/a/x", b"1"))
    node = far.answer(Get("/a/x"))
    assert node is not None and node.data == b"1"


def test_a_watch_rings_once_at_the_server_of_its_client_and_before_the_news_can_be_read() -> None:
    model = ensemble(200)
    near, far = Asker(model, 0), Asker(model, 1)
    assert far.answer(Children("/a")) == []
    near.asks(Create("/a/x", b""))
    near.asks(Create("/a/y", b""))
    model.schedule.run(model.schedule.now_ms + 100)
    assert ChildrenChanged("/a") not in far.events and near.events[-1].value is True
    model.schedule.run(model.schedule.now_ms + 150)
    assert far.answer(Children("/a", watch=False)) == ["x", "y"]
    assert far.events.count(ChildrenChanged("/a")) == 1 and far.client.counts["notifications"] == 1


def test_of_two_who_create_the_same_node_one_does() -> None:
    model = ensemble(50)
    one, two = Asker(model, 0), Asker(model, 1)
    one.asks(Create("/a/x", b"one"))
    two.asks(Create("/a/x", b"two"))
    model.schedule.run(model.schedule.now_ms + 500)
    assert sorted([one.events[-1].value, two.events[-1].value]) == [False, True]


def test_what_is_ephemeral_goes_with_its_session_and_the_rest_stays() -> None:
    model = ensemble(5)
    one, two = Asker(model, 0), Asker(model, 1)
    one.answer(Create("/a/x", b""))
    one.answer(Create("/a/y", b"", is_ephemeral=False))
    one.client.crash()
    model.schedule.run(model.schedule.now_ms + SESSION_MS // 2)
    assert two.answer(Children("/a")) == ["x", "y"]
    model.schedule.run(model.schedule.now_ms + SESSION_MS)
    assert two.answer(Children("/a")) == ["y"]


def test_a_guard_lets_pass_only_who_saw_the_last_version() -> None:
    model = ensemble(5)
    one = Asker(model, 0)
    one.answer(SetData({"/g": b"0"}))
    guarded = SetData({"/g": b"1", "/v": b"1"}, ("/g", 0))
    assert one.answer(guarded) is True
    assert one.answer(guarded) is False, "the version is another now"


def test_a_follower_that_lags_by_more_than_a_session_loses_it_and_its_client_hears_late() -> None:
    model = ensemble(5)
    far = Asker(model, 1)
    model.servers[1].lag_ms = 2 * SESSION_MS
    model.schedule.run(model.schedule.now_ms + SESSION_MS + 1_000)
    assert not any(isinstance(event, SessionEnded) for event in far.events)
    model.schedule.run(model.schedule.now_ms + 2 * SESSION_MS)
    assert SessionEnded(1) in far.events


def test_what_was_asked_in_a_session_that_is_over_is_not_done() -> None:
    model = ensemble(5)
    one = Asker(model, 0)
    one.client.cut()
    one.asks(Create("/a/x", b""))
    model.schedule.run(model.schedule.now_ms + 2 * SESSION_MS)
    one.client.repair()
    model.schedule.run(model.schedule.now_ms + 500)
    assert [type(event) for event in one.events] == [SessionBegan, SessionEnded, ZkResponse, SessionBegan]
    assert one.events[2].error is ZkError.EXPIRED and model.leader.tree.get("/a/x") is None
