"""Faults that a test scripts: each has a beginning and an end, and fails the test if it never fired.

    with broker.faults.on("OffsetCommit", group="billing").answer("COORDINATOR_LOAD_IN_PROGRESS", times=3) as fault:
        consumer.commit()
    assert len(fault.hits) == 3

A fault sits between the frame of a request and its handler (`controlled_server.py`). If several faults concern a
request, the one that began last has it.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Never, Self

from coterie.broker.broker_effects import Effects
from coterie.errors import CoterieError, ErrorCode, MalformedError
from coterie.testing.answers import ANSWERED_FIRST, error_answer, has_throttle_time, with_error, with_throttle_time
from coterie.testing.groups import TIMEOUT_S, Waited
from coterie.testing.requests import Request, api_named, error_named, nearest

if TYPE_CHECKING:
    from coterie.broker.calls import Call
    from coterie.testing.controlled_server import ControlledServer, Exchange
    from coterie.testing.kafka_broker import KafkaBroker

__all__ = ["Fault", "FaultBuilder", "FaultNotFiredError", "Faults", "RequestFault"]

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


class FaultNotFiredError(AssertionError):
    """A fault has ended and never fired, so the test did not test what it says. The text says what came instead."""


@dataclass(frozen=True, slots=True)
class Filter:
    """Which requests a fault concerns."""

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


class Fault:
    """A fault: in force within its `with` block, or from `begin` to `end`."""

    def __init__(self, broker: KafkaBroker, what: str) -> None:
        self._broker = broker
        self.what = what
        """What it does, as a text."""
        self.is_in_force = False
        """Whether it has begun and not ended."""

    def __repr__(self) -> str:
        return f"<fault {self.what}: {self.count} hits{', in force' if self.is_in_force else ''}>"

    @property
    @abstractmethod
    def count(self) -> int:
        """How often it has fired."""

    def begin(self) -> Self:
        """Put the fault in force.

        Returns:
            The fault itself.

        Raises:
            CoterieError: It is in force already.
        """
        if self.is_in_force:
            raise CoterieError(f"this fault is in force already: {self.what}")
        self._begin()
        self.is_in_force = True
        self._broker.note_fault(self)
        return self

    def end(self) -> None:
        """End the fault.

        Raises:
            FaultNotFiredError: It never fired.
        """
        if self.is_in_force:
            self.is_in_force = False
            self._broker.forget_fault(self)
            self._end()
            if not self.count:
                raise FaultNotFiredError(self._broker.run_on_broker(self._why_not))

    def abandon(self) -> None:
        """End the fault, whether it fired or not."""
        with suppress(FaultNotFiredError, CoterieError):
            self.end()

    def __enter__(self) -> Self:
        return self.begin()

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.end()
        else:
            self.abandon()  # the test has failed for another reason

    async def __aenter__(self) -> Self:
        return self.begin()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)

    def wait_hit(self, count: int = 1, *, timeout: float = TIMEOUT_S) -> int:
        """Wait until the fault has fired.

        Args:
            count: How often it has to have fired.
            timeout: How many seconds to wait at most.

        Returns:
            How often it has fired.

        Raises:
            WaitTimeoutError: It did not fire as often in time.
        """
        return self._broker.wait(*self._hit(count), timeout)

    async def wait_hit_async(self, count: int = 1, *, timeout: float = TIMEOUT_S) -> int:  # noqa: ASYNC109
        """Do what `wait_hit` does, in a test with asyncio."""
        return await self._broker.wait_async(*self._hit(count), timeout)

    def _hit(self, count: int) -> Waited[int]:
        times = "" if count == 1 else f" {count} times"
        return f"the fault {self.what} to fire{times}", lambda _: self.count if self.count >= count else None, None

    def _begin(self) -> None:
        self._broker.await_on_broker(self._begin_on)

    def _end(self) -> None:
        self._broker.await_on_broker(self._end_on)

    # --- in the broker's thread ---------------------------------------------------------------------------------------

    async def _begin_on(self, server: ControlledServer) -> None:
        raise NotImplementedError

    async def _end_on(self, server: ControlledServer) -> None:
        raise NotImplementedError

    def _why_not(self, _server: ControlledServer) -> str:
        return f"this fault never fired: {self.what}"


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
        return len(self.hits)

    async def _begin_on(self, server: ControlledServer) -> None:
        self._matched = 0
        server.controls.rules.append(self)

    async def _end_on(self, server: ControlledServer) -> None:
        server.controls.rules.remove(self)

    def refusal(self, request: Request) -> str:
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
        self.hits.append(exchange.request)
        exchange.request.fault = self._label
        effects = self._fire(server, exchange, now_ms)
        server.controls.waits.soon()
        return effects

    @abstractmethod
    def _fire(self, server: ControlledServer, exchange: Exchange, now_ms: int) -> Effects | None: ...

    def answering(self, server: ControlledServer, exchange: Exchange, data: bytes) -> bytes | None:  # noqa: ARG002
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


class _CutOff(RequestFault):
    """No request of a client is answered, and its connections are closed."""

    def __init__(self, broker: KafkaBroker, client_id: str) -> None:
        super().__init__(broker, Filter(None, client_id=client_id), "cut off")
        self._client_id = client_id
        self._closed = 0

    @property
    def count(self) -> int:
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


class _DiskFull(Fault):
    """No file can be written."""

    def __init__(self, broker: KafkaBroker) -> None:
        super().__init__(broker, "the disk is full")
        self.hits: list[str] = []
        """The files that could not be written."""

    @property
    def count(self) -> int:
        return len(self.hits)

    async def _begin_on(self, server: ControlledServer) -> None:
        def refused(path: str) -> None:
            self.hits.append(path)
            server.look_soon()

        self._broker.disk.on_refusal = refused

    async def _end_on(self, _server: ControlledServer) -> None:
        self._broker.disk.on_refusal = None

    def _why_not(self, _server: ControlledServer) -> str:
        return f"this fault never fired: {self.what}. Nothing was written to the disk while it was in force"


class _SlowDisk(Fault):
    """Each sync takes longer. The thread that waits for the disk waits; nothing else does."""

    def __init__(self, broker: KafkaBroker, seconds: float | None) -> None:
        super().__init__(broker, "the disk hangs" if seconds is None else f"each sync takes {seconds:g} s")
        self.hits: list[str] = []
        """The files whose syncs took longer."""
        self._seconds = seconds
        self._over = threading.Event()

    @property
    def count(self) -> int:
        return len(self.hits)

    async def _begin_on(self, server: ControlledServer) -> None:
        self._over.clear()

        def slow(path: str) -> None:
            self.hits.append(path)
            server.look_soon()
            self._over.wait(self._seconds)

        self._broker.disk.on_sync = slow
        server.controls.disk_is_slow = True

    async def _end_on(self, server: ControlledServer) -> None:
        self._broker.disk.on_sync = None
        server.controls.disk_is_slow = False
        self._over.set()

    def _why_not(self, _server: ControlledServer) -> str:
        how = "" if self._broker.syncs else ". This broker syncs nothing (flush='os')"
        return f"this fault never fired: {self.what}. Nothing was synced while it was in force{how}"


class _Happens(Fault):
    """Something that happens at the beginning, whatever clients do."""

    _has_happened = False

    @property
    def count(self) -> int:
        return int(self._has_happened)


class _StopNode(_Happens):
    def __init__(self, broker: KafkaBroker, node: int) -> None:
        super().__init__(broker, f"node {node} is stopped")
        self._node = node

    async def _begin_on(self, server: ControlledServer) -> None:
        if server.cluster.leadership.up == {self._node}:
            raise CoterieError(f"node {self._node} is the only one that runs: use crash, or KafkaBroker(nodes=3)")
        await server.stop_node(self._node)
        self._has_happened = True

    async def _end_on(self, server: ControlledServer) -> None:
        await server.start_node(self._node)


class _MoveCoordinator(_Happens):
    def __init__(self, broker: KafkaBroker, group: str, node: int) -> None:
        super().__init__(broker, f"node {node} is the coordinator of {group}")
        self._group = group
        self._node = node
        self._was = node

    async def _begin_on(self, server: ControlledServer) -> None:
        self._was = server.coordinator_of(self._group)
        await server.move_coordinator(self._group, self._node)
        self._has_happened = True

    async def _end_on(self, server: ControlledServer) -> None:
        if self._was in server.cluster.leadership.up:
            await server.move_coordinator(self._group, self._was)


class _Crash(_Happens):
    def __init__(self, broker: KafkaBroker, *, lose_unsynced: bool) -> None:
        super().__init__(broker, "the broker has crashed")
        self._lose_unsynced = lose_unsynced

    def _begin(self) -> None:
        self._broker.go_down(lose_unsynced=self._lose_unsynced)
        self._has_happened = True

    def _end(self) -> None:
        self._broker.come_up()


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


class Faults:
    """The faults of a broker under test, `broker.faults`."""

    def __init__(self, broker: KafkaBroker) -> None:
        self._broker = broker

    def __repr__(self) -> str:
        return f"<faults of {self._broker!r}>"

    def on(
        self,
        api: str,
        *,
        group: str | None = None,
        member: str | None = None,
        client_id: str | None = None,
        instance: str | None = None,
        generation: int | None = None,
        topic: str | None = None,
        state: str | None = None,
        nth: int | None = None,
        **unknown: Never,
    ) -> FaultBuilder:
        """Choose the requests that a fault is about: those for which all that is given is true.

        Args:
            api: The name of the API, such as `OffsetCommit`.
            group: The id of the group that they name.
            member: The client id, member id or group instance id of the member that they are of.
            client_id: The client id.
            instance: The group instance id.
            generation: The generation, or the member epoch (KIP-848).
            topic: The name of a topic that they name.
            state: The state that the group is in when they arrive, such as `PreparingRebalance`.
            nth: Which of them, from the beginning of the fault on: 1 is the first.
            **unknown: Nothing else.

        Returns:
            What says which fault it is, by its methods.

        Raises:
            CoterieError: There is no such API, state or filter.
        """
        for name in unknown:
            raise CoterieError(f"requests cannot be chosen by {name!r}: {nearest(name, [*FILTERS, 'nth'])}")
        if state is not None and state not in STATES:
            raise CoterieError(f"there is no state {state!r} of a group: {nearest(state, STATES)}")
        chosen = Filter(api_named(api).name, group, member, client_id, instance, generation, topic, state)
        return FaultBuilder(self._broker, chosen, nth)

    def cut_off(self, client_id: str) -> RequestFault:
        """Cut a client off from all nodes: its connections are closed, and none of its requests is answered.

        To its group that is a crash: nothing is heard of the member. `clock.silence` lets its session expire, and so
        does `clock.advance`, since it is not connected. When the fault ends, the client can connect again.

        Args:
            client_id: The client id.

        Returns:
            The fault; it begins with its `with` block, or with `begin`.
        """
        return _CutOff(self._broker, client_id)

    def disk_full(self) -> Fault:
        """Let no file be written.

        Returns:
            The fault; it begins with its `with` block, or with `begin`.
        """
        return _DiskFull(self._broker)

    def slow_disk(self, seconds: float | None = None) -> Fault:
        """Let each sync of a file take longer: what waits for it, such as a commit, is answered later.

        While it is in force, `clock.advance` does not wait for the disk.

        Args:
            seconds: How much longer, of real time; without it, until the fault ends.

        Returns:
            The fault; it begins with its `with` block, or with `begin`.
        """
        return _SlowDisk(self._broker, seconds)

    def stop_node(self, node: int) -> Fault:
        """Stop a node: its partitions and groups go to other nodes, and its connections are closed.

        When the fault ends, the node starts again, and what it led before comes back to it.

        Args:
            node: The number of the node, from 1 on.

        Returns:
            The fault; it begins with its `with` block, or with `begin`, which raises a CoterieError if there is no such
            node, or no other.
        """
        return _StopNode(self._broker, node)

    def move_coordinator(self, group: str, node: int) -> Fault:
        """Make a node the coordinator of a group. When the fault ends, the one before is its coordinator again.

        Args:
            group: The id of the group.
            node: The number of the node, from 1 on.

        Returns:
            The fault; it begins with its `with` block, or with `begin`.
        """
        return _MoveCoordinator(self._broker, group, node)

    def crash(self, *, lose_unsynced: bool = True) -> Fault:
        """Let the broker crash, as if its machine had lost its power. When the fault ends, it starts again.

        Meanwhile its ports refuse connections, and nothing can be asked of it. What was acknowledged is there
        afterwards if the broker has `flush="sync"`, which is the default; with `flush="os"` it is lost.

        Args:
            lose_unsynced: Whether what was not synced is lost; else it is a crash of the process alone.

        Returns:
            The fault; it begins with its `with` block, or with `begin`.
        """
        return _Crash(self._broker, lose_unsynced=lose_unsynced)
