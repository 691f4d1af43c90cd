"""Faults of requests: what happens to those that a filter chooses.

    with broker.faults.on("OffsetCommit", group="billing").answer("COORDINATOR_LOAD_IN_PROGRESS", times=3) as fault:
        consumer.commit()
    assert len(fault.hits) == 3

A fault sits between the frame of a request and its handler (`controlled_server.py`). If several faults concern a
request, the one that began last has it.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from coterie.broker.broker_effects import Effects
from coterie.errors import CoterieError, ErrorCode, MalformedError
from coterie.testing.answers import ANSWERED_FIRST, error_answer, has_throttle_time, with_error, with_throttle_time
from coterie.testing.faults import Fault
from coterie.testing.requests import Request, api_named, error_named

if TYPE_CHECKING:
    from coterie.broker.calls import Call
    from coterie.testing.controlled_server import ControlledServer, Exchange
    from coterie.testing.kafka_broker import KafkaBroker

MOST_PASSED = 1_000
"""So many requests that a fault did not concern are remembered, to say why."""
FILTERS = ("group", "member", "client_id", "instance", "generation", "topic", "state")
STATES = (
    "Empty",
    "PreparingRebalance",
    "CompletingRebalance",
    "Stable",
    "Dead",
    "Assigning",
    "Reconciling",
)


@dataclass(frozen=True, slots=True)
class Filter:
    """A choice of requests: those that a fault concerns."""

    api: str | None
    """The name of the API; None is every API."""
    group: str | None = None
    member: str | None = None
    client_id: str | None = None
    instance: str | None = None
    generation: int | None = None
    topic: str | None = None
    state: str | None = None

    def __str__(self) -> str:
        said = [f"{name}={getattr(self, name)!r}" for name in FILTERS if getattr(self, name) is not None]
        return f"{self.api or 'every request'}({', '.join(said)})"

    def refusal(self, request: Request) -> str:
        """Return why a request is not concerned; "" if it is."""
        if self.api is not None and request.api != self.api:
            return f"it is {request.api}"
        try:
            if self.group is not None and self.group not in request.groups:
                return f"its group is {request.group!r}, not {self.group!r}"
            if self.member is not None and not request.is_of(self.member):
                return f"its member is {request.member or request.client_id!r}, not {self.member!r}"
            if self.client_id is not None and request.client_id != self.client_id:
                return f"its client id is {request.client_id!r}, not {self.client_id!r}"
            if self.instance is not None and request.instance != self.instance:
                return f"its group instance id is {request.instance!r}, not {self.instance!r}"
            if self.generation is not None and request.generation != self.generation:
                return f"its generation is {request.generation}, not {self.generation}"
            if self.topic is not None and self.topic not in request.topics:
                return f"its topics are {request.topics}, without {self.topic!r}"
            if self.state is not None and request.state != self.state:
                return f"its group was {request.state or 'not named'}, not {self.state}"
        except MalformedError:
            return "it cannot be read"
        return ""


class RequestFault(Fault):
    """A fault of requests that a filter chooses."""

    def __init__(
        self, broker: KafkaBroker, chosen: Filter, what: str, *, nth: int | None = None, times: int | None = None
    ) -> None:
        limit = "" if times is None else f", times={times}"
        which = "" if nth is None else f", the {nth}. request"
        super().__init__(broker, f"{chosen} -> {what}{which}{limit}")
        self.hits: list[Request] = []
        """The requests that it has hit; each says what, when, and of which member it was."""
        if times is not None and times < 1:
            raise CoterieError(f"times={times}: a fault that fires is one that fires once or more")
        if nth is not None and nth < 1:
            raise CoterieError(f"nth={nth}: requests are counted from 1")
        self._filter = chosen
        self._label = what
        self._nth = nth
        self._times = 1 if nth is not None and times is None else times
        self._matched = 0
        self._passed: list[tuple[Request, str]] = []

    @property
    def count(self) -> int:
        """Return how many requests it has hit."""
        return len(self.hits)

    async def _begin_on(self, server: ControlledServer) -> None:
        self._matched = 0
        server.controls.rules.append(self)

    async def _end_on(self, server: ControlledServer) -> None:
        server.controls.rules.remove(self)

    def refusal(self, request: Request) -> str:
        """Return why the fault does not fire for a request; "" if it does."""
        why = self._filter.refusal(request)
        if not why:
            self._matched += 1
            if self._nth is not None and self._matched < self._nth:
                why = f"it is the {self._matched}., not the {self._nth}."
            elif self._times is not None and len(self.hits) >= self._times:
                why = f"the fault has fired {self._times} times, which is enough"
        if why and self._filter.api in {None, request.api} and len(self._passed) < MOST_PASSED:
            self._passed.append((request, why))
        return why

    def fire(self, server: ControlledServer, exchange: Exchange, now_ms: int) -> Effects | None:
        """Let the fault hit a request. Returns the effects in place of its handling; None: it is handled as usual."""
        self.hits.append(exchange.request)
        exchange.request.fault = self._label
        effects = self._fire(server, exchange, now_ms)
        server.controls.waits.soon()
        return effects

    @abstractmethod
    def _fire(self, server: ControlledServer, exchange: Exchange, now_ms: int) -> Effects | None: ...

    def answering(self, server: ControlledServer, exchange: Exchange, data: bytes) -> bytes | None:  # noqa: ARG002
        """Return the frame to send in place of an answer; None: the connection is closed instead."""
        return data

    def _why_not(self, _server: ControlledServer) -> str:
        first = f"this fault never fired: {self.what}\n"
        api = self._filter.api or "request"
        if not self._passed:
            return f"{first}No {api} was received while it was in force.\n\n{self._broker.story_now()}"
        lines = [f"  {request!r}: {why}" for request, why in self._passed[:10]]
        rest = f"\n  and {len(self._passed) - 10} more" if len(self._passed) > 10 else ""
        return f"{first}These {api} were received, and did not match:\n" + "\n".join(lines) + rest


class _Answer(RequestFault):
    def __init__(self, error: ErrorCode, broker: KafkaBroker, chosen: Filter, **limits: Any) -> None:
        super().__init__(broker, chosen, f"answer {error.name}", **limits)
        self._error = error

    def _fire(self, server: ControlledServer, exchange: Exchange, _now_ms: int) -> Effects | None:
        request = exchange.request
        if request.api in ANSWERED_FIRST:
            exchange.rule = self
            return None
        body = error_answer(api_named(request.api), request.version, request.body, self._error)
        return server.answer(exchange, body)

    def answering(self, _server: ControlledServer, exchange: Exchange, data: bytes) -> bytes | None:
        request = exchange.request
        api = api_named(request.api)
        head = _head(request)
        topics = None if self._filter.topic is None else [self._filter.topic]
        body = with_error(api, request.version, data[head:], self._error, topics)
        return _frame(data[:head], body)


class _Delay(RequestFault):
    def __init__(self, seconds: float, broker: KafkaBroker, chosen: Filter, **limits: Any) -> None:
        super().__init__(broker, chosen, f"delay {seconds:g} s", **limits)
        self._ms = round(seconds * 1_000)
        if self._ms <= 0:
            raise CoterieError(f"a delay of {seconds!r} s: give more than 0")

    def _fire(self, server: ControlledServer, exchange: Exchange, now_ms: int) -> Effects | None:
        server.delay(exchange, self._ms, now_ms)
        return []


class _Hold(RequestFault):
    def __init__(self, broker: KafkaBroker, chosen: Filter, **limits: Any) -> None:
        super().__init__(broker, chosen, "hold", **limits)
        self._held: list[tuple[Exchange, Call]] = []

    def _fire(self, server: ControlledServer, exchange: Exchange, _now_ms: int) -> Effects | None:
        self._held.append((exchange, server.hold(exchange)))
        return []

    async def _end_on(self, server: ControlledServer) -> None:
        await super()._end_on(server)
        held, self._held = self._held, []
        for exchange, call in held:
            server.run("a request that was held", partial(server.go_on_with, exchange, call))


class _Drop(RequestFault):
    def _fire(self, server: ControlledServer, exchange: Exchange, _now_ms: int) -> Effects | None:
        return server.close(exchange)


class _Lose(RequestFault):
    def _fire(self, _server: ControlledServer, exchange: Exchange, _now_ms: int) -> Effects | None:
        exchange.rule = self
        return None

    def answering(self, _server: ControlledServer, _exchange: Exchange, _data: bytes) -> bytes | None:
        return None


class _Garble(_Lose):
    def answering(self, _server: ControlledServer, exchange: Exchange, data: bytes) -> bytes | None:
        """Cut the answer in half: no version of any API can be read then."""
        head = _head(exchange.request)
        return _frame(data[:head], data[head : head + (len(data) - head) // 2])


class _Throttle(_Lose):
    def __init__(self, ms: int, broker: KafkaBroker, chosen: Filter, **limits: Any) -> None:
        super().__init__(broker, chosen, f"throttle {ms} ms", **limits)
        self._ms = ms

    def refusal(self, request: Request) -> str:
        if request.api == self._filter.api and not has_throttle_time(api_named(request.api), request.version):
            why = f"version {request.version} has no throttle_time_ms"
            self._passed.append((request, why))
            return why
        return super().refusal(request)

    def answering(self, _server: ControlledServer, exchange: Exchange, data: bytes) -> bytes | None:
        request = exchange.request
        head = _head(request)
        return _frame(data[:head], with_throttle_time(api_named(request.api), request.version, data[head:], self._ms))


class ClientCutOff(RequestFault):
    """No request of a client is answered, and its connections are closed."""

    def __init__(self, broker: KafkaBroker, client_id: str) -> None:
        super().__init__(broker, Filter(None, client_id=client_id), "cut off")
        self._client_id = client_id
        self._closed = 0

    @property
    def count(self) -> int:
        """Return how many requests it has hit, and how many connections it has closed."""
        return len(self.hits) + self._closed

    async def _begin_on(self, server: ControlledServer) -> None:
        await super()._begin_on(server)
        self._closed = server.close_all_of(self._client_id)
        await server.settled()

    def _fire(self, server: ControlledServer, exchange: Exchange, _now_ms: int) -> Effects | None:
        return server.close(exchange)


def _head(request: Request) -> int:
    """Return where the body of an answer begins in its frame, behind length, correlation id and tagged fields."""
    return 9 if api_named(request.api).has_flexible_response_header(request.version) else 8


def _frame(head: bytes, body: bytes) -> bytes:
    return (len(head) - 4 + len(body)).to_bytes(4, "big") + head[4:] + body


class FaultBuilder:
    """The requests that a fault is about; its methods say what happens to them.

    Each takes `times`: how often the fault fires at most, else until it ends.
    """

    def __init__(self, broker: KafkaBroker, chosen: Filter, nth: int | None) -> None:
        self._broker = broker
        self._filter = chosen
        self._nth = nth

    def __repr__(self) -> str:
        return f"<requests {self._filter}>"

    def answer(self, error: str | ErrorCode, *, times: int | None = None) -> RequestFault:
        """Answer the request with an error, and do nothing else for it.

        Args:
            error: The error under Kafka's name, such as `COORDINATOR_LOAD_IN_PROGRESS`.
            times: How often at most.

        Returns:
            The fault; it begins with its `with` block, or with `begin`.

        Raises:
            CoterieError: There is no such error.
        """
        return _Answer(error_named(error), self._broker, self._filter, nth=self._nth, times=times)

    def delay(self, seconds: float, *, times: int | None = None) -> RequestFault:
        """Look at the request later, by the broker's clock: `clock.advance` ends a delay as well.

        What the client sends on the same connection waits behind it.

        Args:
            seconds: How much later.
            times: How often at most.

        Returns:
            The fault; it begins with its `with` block, or with `begin`.
        """
        return _Delay(seconds, self._broker, self._filter, nth=self._nth, times=times)

    def hold(self, *, times: int | None = None) -> RequestFault:
        """Look at the request when the fault ends, and not before.

        Args:
            times: How often at most.

        Returns:
            The fault; it begins with its `with` block, or with `begin`.
        """
        return _Hold(self._broker, self._filter, nth=self._nth, times=times)

    def drop_connection(self, *, times: int | None = None) -> RequestFault:
        """Close the connection instead of answering: nothing is done for the request.

        Args:
            times: How often at most.

        Returns:
            The fault; it begins with its `with` block, or with `begin`.
        """
        return _Drop(self._broker, self._filter, "drop the connection", nth=self._nth, times=times)

    def lose_answer(self, *, times: int | None = None) -> RequestFault:
        """Do what the request asks, and close the connection instead of answering.

        Args:
            times: How often at most.

        Returns:
            The fault; it begins with its `with` block, or with `begin`.
        """
        return _Lose(self._broker, self._filter, "lose the answer", nth=self._nth, times=times)

    def garble(self, *, times: int | None = None) -> RequestFault:
        """Do what the request asks, and send an answer that cannot be read: half of the right one.

        Args:
            times: How often at most.

        Returns:
            The fault; it begins with its `with` block, or with `begin`.
        """
        return _Garble(self._broker, self._filter, "garble the answer", nth=self._nth, times=times)

    def throttle(self, ms: int, *, times: int | None = None) -> RequestFault:
        """Answer as usual, and tell the client to wait before its next request (`throttle_time_ms`).

        Args:
            ms: How many milliseconds it is told to wait.
            times: How often at most.

        Returns:
            The fault; it begins with its `with` block, or with `begin`.
        """
        return _Throttle(ms, self._broker, self._filter, nth=self._nth, times=times)

    def move_coordinator(self, node: int | None = None, *, times: int | None = None) -> RequestFault:
        """Make another node the coordinator of the group, and then look at the request as usual.

        So it is answered NOT_COORDINATOR. The coordinator stays there when the fault ends.

        Args:
            node: The number of the node, from 1 on; without it, the one after the coordinator.
            times: How often at most.

        Returns:
            The fault; it begins with its `with` block, or with `begin`.
        """
        from coterie.testing.happenings import MoveCoordinatorOnRequest

        return MoveCoordinatorOnRequest(node, self._broker, self._filter, nth=self._nth, times=times)

    def expire_member(self, *, times: int | None = None) -> RequestFault:
        """Let the session of the member expire, as `clock.silence` does, and then look at the request as usual.

        So it is answered UNKNOWN_MEMBER_ID.

        Args:
            times: How often at most.

        Returns:
            The fault; it begins with its `with` block, or with `begin`.
        """
        from coterie.testing.happenings import ExpireMember

        return ExpireMember(self._broker, self._filter, "expire the member", nth=self._nth, times=times)
