"""Your own driver: two members of a group share a topic; then one leaves, and the other gets all partitions.

`python examples/own_driver.py` starts a broker in memory; any Kafka cluster works too. The membership makes all
decisions, and the driver performs the effects. A consumer would also read records.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import coterie
from coterie.assignors import Topic
from coterie.client.member import MemberSettings, Membership, effects, events
from coterie.errors import ConnectionLostError, KafkaError, RequestTimedOutError
from coterie.protocol.apis import (
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    metadata,
    offset_commit,
    offset_fetch,
    sync_group,
)
from coterie.protocol.frames import read_response_header, request_frame
from coterie.protocol.messages import Heartbeat, JoinGroup, LeaveGroup, OffsetCommit, OffsetFetch, SyncGroup

BY_NAME = 9  # OffsetCommit and OffsetFetch 10 name topics by id
API: dict[type, tuple[Any, int]] = {
    JoinGroup: (join_group, 9),
    SyncGroup: (sync_group, 5),
    Heartbeat: (heartbeat, 4),
    LeaveGroup: (leave_group, 5),
    OffsetCommit: (offset_commit, BY_NAME),
    OffsetFetch: (offset_fetch, BY_NAME),
}


async def ask(stream: Any, api: Any, version: int, request: Any, client_id: str = "own-driver") -> Any:
    reader, writer = stream
    body = api.write_request(request, version)
    writer.write(request_frame(api.API.key, version, 1, client_id, body, flexible=version >= api.API.flexible))
    frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
    _, at = read_response_header(frame, flexible=api.API.has_flexible_response_header(version))
    return api.read_response(frame, at, version)


class Driver:
    def __init__(self, address: tuple[str, int], settings: MemberSettings) -> None:
        self.address = address
        self.member = Membership(settings)
        self.assigned: list[Any] = []
        self.events: deque[Any] = deque()
        self.changed = asyncio.Event()
        self.closed = asyncio.Event()
        self.timers: dict[str, asyncio.TimerHandle] = {}
        self.lanes: dict[Any, Any] = {}  # a connection and a lock for each coordinator and lane
        self.tasks: set[asyncio.Task[None]] = set()

    def now_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)

    def handle(self, event: Any) -> None:
        """Handle one event after the other: a new event waits until the effects of the last one are performed."""
        self.events.append(event)
        if len(self.events) > 1:
            return
        while self.events:
            for effect in self.member.handle(self.events[0], self.now_ms()):
                self.perform(effect)
            self.events.popleft()
        self.changed.set()

    def perform(self, effect: Any) -> None:
        match effect:
            case effects.SendRequest(to, request, timeout_ms, then, lane):
                self.answer(then, self.send((to, lane), request, timeout_ms))
            case effects.FindCoordinator(then):
                self.answer(then, self.find())
            case effects.RefreshMetadata(topics, then):
                self.answer(then, self.topics(topics))
            case effects.Disconnect(node):
                for key in [key for key in self.lanes if key[0] == node]:
                    self.disconnect(key)
            case effects.StartTimer(key, at_ms, then):
                self.perform(effects.StopTimer(key))
                delay_s = max(at_ms - self.now_ms(), 0) / 1000
                self.timers[key] = asyncio.get_running_loop().call_later(delay_s, self.handle, then)
            case effects.StopTimer(key):
                if key in self.timers:
                    self.timers.pop(key).cancel()
            case effects.CallListener(kind, partitions, then):
                print(f"{self.member.settings.client_id}: {kind} {' '.join(map(str, partitions)) or 'nothing'}")
                self.handle(then)  # a listener that raises: set then.error
            case effects.SetAssignment(partitions):
                self.assigned = list(partitions)
            case effects.AskPositions(then):
                then.reply = {}  # nothing is read here, so there is nothing to commit
                self.handle(then)
            case effects.Ended():
                self.closed.set()
            case effects.Fail(error):
                raise error  # a consumer keeps it for the caller of poll

    def answer(self, then: events.Answer, work: Any) -> None:
        """Every `then` comes back once, with a reply or an error."""

        async def run() -> None:
            try:
                then.reply = await work
            except KafkaError as error:
                then.error = error
            except TimeoutError:
                then.error = RequestTimedOutError("no answer in time")
            except (OSError, EOFError, asyncio.CancelledError) as error:
                then.error = ConnectionLostError(f"the connection was lost: {error!r}")
            self.handle(then)

        task = asyncio.create_task(run())
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def send(self, key: Any, request: Any, timeout_ms: int) -> Any:
        (host, port), _ = key
        if key not in self.lanes:
            self.lanes[key] = (asyncio.ensure_future(asyncio.open_connection(host, port)), asyncio.Lock())
        stream, lock = self.lanes[key]
        try:
            async with asyncio.timeout(timeout_ms / 1000), lock:
                client_id = self.member.settings.client_id
                return await ask(await asyncio.shield(stream), *API[type(request)], request, client_id)
        except (OSError, EOFError, TimeoutError):
            self.disconnect(key)  # the next request opens a new one
            raise

    def disconnect(self, key: Any) -> None:
        """Close the connection. Requests that wait there read the end of the stream, and get ConnectionLostError."""
        stream, _ = self.lanes.pop(key, (None, None))
        if stream is not None and not stream.cancel() and not stream.cancelled() and stream.exception() is None:
            stream.result()[1].close()

    async def find(self) -> tuple[str, int]:
        stream = await asyncio.open_connection(*self.address)
        request = find_coordinator.Request(keys=[self.member.settings.group_id])
        found = (await ask(stream, find_coordinator, 4, request)).coordinators
        stream[1].close()
        if len(found) != 1 or found[0].error:
            raise KafkaError(f"no coordinator: {found}", found[0].error)
        return found[0].host, found[0].port

    async def topics(self, names: Any) -> dict[str, Topic]:
        stream = await asyncio.open_connection(*self.address)
        asked = None if names is None else [metadata.Topic(name=name) for name in sorted(names)]
        answer = await ask(stream, metadata, 9, metadata.Request(topics=asked))
        stream[1].close()
        return {topic.name: Topic(len(topic.partitions)) for topic in answer.topics if not topic.error}

    async def until(self, number: int) -> None:
        while len(self.assigned) != number or self.member.state != "Stable":
            self.changed.clear()
            await self.changed.wait()

    async def close(self) -> None:
        self.handle(events.CloseAsked(self.now_ms() + 5_000))
        await self.closed.wait()
        for key in list(self.lanes):
            self.disconnect(key)


async def main() -> None:
    settings = {"group.initial.rebalance.delay.ms": 100, "num.partitions": 4}
    with coterie.Broker(settings=settings) as broker:
        host, _, port = broker.bootstrap_servers.partition(":")
        ada, bob = (
            Driver((host, int(port)), MemberSettings("readers", client_id=name, heartbeat_interval_ms=100))
            for name in ("ada", "bob")
        )
        for driver in (ada, bob):
            driver.handle(events.Subscribed(["orders"]))
            driver.handle(events.PollBegan())  # and PollEnded whenever the user goes off to work
        async with asyncio.timeout(30):
            await asyncio.gather(ada.until(2), bob.until(2))
            await ada.close()
            await bob.until(4)
            print(bob.member.explain(bob.now_ms()))
            await bob.close()


if __name__ == "__main__":
    asyncio.run(main())
