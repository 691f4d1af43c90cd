"""A case on our broker: the node without sockets, on a clock that is moved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from broker.driver import Client, World
from conformance.asking import Known, request_frame
from conformance.hearing import Ears, Heard
from conformance.profiles import TOPICS, Profile
from conformance.script import Step, parse

__all__ = ["OurBroker", "OurCase"]


class _World(World):
    """Its next UUID can be given to it."""

    given: UUID | None = None

    def _fresh_id(self) -> UUID:
        given, self.given = self.given, None
        return given or super()._fresh_id()


class OurBroker:
    """Cases share it as long as none of them moves the clock."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self._shared: _World | None = None
        self._cases = 0

    def play(self, texts: Sequence[str], made: Mapping[int, str]) -> list[Heard]:
        steps = [parse(text) for text in texts]
        case = self.case(steps, made)
        return [case.step(number) for number in range(1, len(steps) + 1)]

    def case(self, steps: Sequence[Step], made: Mapping[int, str] | None = None) -> OurCase:
        self._cases += 1
        name = f"conf{self._cases}"
        if any(step.kind is None for step in steps):
            return OurCase(name, self.profile, _prepared(self.profile), steps, made or {})
        if self._shared is None:
            self._shared = _prepared(self.profile)
        return OurCase(name, self.profile, self._shared, steps, made or {})


def _prepared(profile: Profile) -> _World:
    world = _World(settings=profile.settings)
    admin = world.client()
    for name, partitions in TOPICS.items():
        admin.create(name, partitions)
    admin.find_coordinator()
    return world


class OurCase:
    """One case, step by step. `made` are UUIDs for the ids of members, by number of the join."""

    def __init__(
        self, name: str, profile: Profile, world: _World, steps: Sequence[Step], made: Mapping[int, str]
    ) -> None:
        self._profile = profile
        self._world = world
        self._made = made
        self._steps = dict(enumerate(steps, 1))
        self._open: dict[int, Client] = {}
        self._idle: list[Client] = []
        topics = world.cluster.directory.topics
        self._known = Known(f"{name}-", {topic: topics[topic].id for topic in TOPICS}, log_dir=world.cluster.data_path)
        self._ears = Ears(self._known, self._steps)

    def step(self, number: int) -> Heard:
        """Do it, and say what was heard until nothing more happens by itself."""
        step = self._steps[number]
        if step.kind is not None:
            self._world.given = UUID(self._made[number]) if number in self._made else None
            client = self._open[number] = self._idle.pop() if self._idle else self._world.client()
            client.send_frame(request_frame(step, self._known, number))
        else:
            _WORLDLY[step.what](self, step.args["it"])
        return self._ears.hear(self._frames())

    def _frames(self) -> dict[int, bytes]:
        answered = [number for number, client in self._open.items() if client.answers]
        frames = {}
        for number in answered:
            client = self._open.pop(number)
            frames[number] = client._inbox.popleft()
            self._idle.append(client)
        for number in [number for number, client in self._open.items() if client.closed]:
            self._open.pop(number)
            frames[number] = b""
        return frames

    def _wait(self, ms: str) -> None:
        """Each timer rings at its own time."""
        world = self._world
        until_ms = world.now_ms + int(ms)
        while world.now_ms < until_ms:
            due_ms = world.cluster.next_ms()
            world.advance((until_ms if due_ms is None else min(due_ms, until_ms)) - world.now_ms)

    def _restart(self, _nothing: str) -> None:
        if self._profile.kill:
            self._world.cluster.directory.release()
        else:
            self._world.stop()
        self._world = _World(self._world.files, self._profile.settings_after_restart, now_ms=self._world.now_ms + 1)
        self._open.clear()
        self._idle.clear()

    def _create(self, name: str) -> None:
        self._known.topic_ids[name] = self._world.client().create(self._known.topic(name))

    def _drop(self, name: str) -> None:
        assert not self._world.client().delete(self._known.topic(name))


_WORLDLY = {
    "wait": OurCase._wait,
    "restart": OurCase._restart,
    "create": OurCase._create,
    "drop": OurCase._drop,
}
