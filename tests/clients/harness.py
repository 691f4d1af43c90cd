"""Real clients against a real broker: processes, files and the wall clock.

    with BrokerProcess(directory) as broker:
        crew = Crew(broker, directory, "orders")
        first = crew.start("confluent", topics=["t"], assignor="range")
        crew.wait_until_settled("t", partitions=6)

The broker is `coterie serve`, told to write its facts as JSON; members are the scripts of `members/` and Apache's
VerifiableConsumer. Everybody writes to a file of its own, so nobody ever waits for a reader; a test waits by looking at
those files until a condition holds, and fails at a deadline with everything that was said.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from clients.libraries import LIBRARIES, TESTS
from clients.members.telling import Orders
from coterie.protocol.subscription import read_assignment

__all__ = [
    "BrokerProcess",
    "Crew",
    "Facts",
    "Lines",
    "LoggedFacts",
    "Member",
    "Place",
    "RunningBroker",
    "places_of",
    "wait_until",
]

Place = tuple[str, int]
"""A topic and a partition."""

PATIENCE_S = 90.0
"""Far above what anything takes: the two cores may be busy with other work."""
PAUSE_S = 0.02

QUICK: Mapping[str, str | int] = {
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 100,
    "group.consumer.assignment.interval.ms": 0,
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.consumer.heartbeat.interval.ms": 300,
    "group.consumer.min.session.timeout.ms": 1_000,
    "group.consumer.session.timeout.ms": 6_000,
    "offsets.topic.num.partitions": 4,
    "connections.max.idle.ms": 3_600_000,  # one broker for all tests of the room, which may take longer than 10 minutes
}


def wait_until(holds: Callable[[], bool], what: str, said: Callable[[], str], within_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + within_s
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError(f"after {within_s:.0f} s still not true: {what}\n{said()}")
        time.sleep(PAUSE_S)


class Lines:
    """The lines of a file that is still being written; each is read once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._at = 0

    def new(self) -> Iterator[str]:
        with self.path.open("rb") as file:
            file.seek(self._at)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._at += len(line)
                yield line.decode(errors="replace").rstrip("\n")

    def tail(self, count: int = 15) -> str:
        return "\n".join(self.path.read_text(errors="replace").splitlines()[-count:])


class Facts:
    """What is known of groups, in order; a fact is a dict with its name under "fact"."""

    def __init__(self) -> None:
        self.all: list[dict[str, Any]] = []

    def read(self) -> list[dict[str, Any]]:
        """All there is to know by now."""
        return self.all

    def of(self, group: str, *names: str) -> list[dict[str, Any]]:
        return [one for one in self.read() if one["group_id"] == group and (not names or one["fact"] in names)]

    def member_ids(self, group: str) -> dict[str, str]:
        """From a member id to the client id of its process."""
        return {
            one["member_id"]: one["client_id"]
            for one in self.of(group, "MemberIdGiven", "MemberJoined")
            if one["member_id"]
        }

    def lasting_name(self, group: str, member_id: str) -> str:
        """A static member is the same under a new id (KIP-345)."""
        joined = (one for one in self.of(group, "MemberJoined", "MemberReplaced") if one["member_id"] == member_id)
        return next((one["instance_id"] for one in joined if one.get("instance_id")), member_id)

    def assignments(self, group: str) -> list[tuple[int, dict[str, set[Place]]]]:
        """Generation by generation, which member id was given which partitions."""
        return [
            (one["generation_id"], {member: places_of(data) for member, data in one["assignments"].items()})
            for one in self.of(group, "AssignmentStored")
        ]

    def generation(self, group: str) -> int:
        """The one that was last handed out; 0 before the first."""
        stored = self.of(group, "AssignmentStored")
        return int(stored[-1]["generation_id"]) if stored else 0

    def committed(self, group: str) -> dict[Place, int]:
        return {
            (topic, partition): offset
            for one in self.of(group, "OffsetsStored")
            for topic, partition, offset, *_ in one["offsets"]
        }


class LoggedFacts(Facts):
    """What `coterie serve` tells in its log."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._lines = Lines(path)
        self.noise: list[str] = []
        """What is no fact: notes, and tracebacks if there should be any."""

    def read(self) -> list[dict[str, Any]]:
        for line in self._lines.new():
            try:
                told = json.loads(line)
            except ValueError:
                told = None
            if isinstance(told, dict) and "fact" in told:
                self.all.append(told)
            else:
                self.noise.append(line)
        return self.all


def places_of(data: str) -> set[Place]:
    if not data:
        return set()
    by_topic = read_assignment(bytes.fromhex(data)).partitions
    return {(topic, partition) for topic, partitions in by_topic.items() for partition in partitions}


class RunningBroker(Protocol):
    """What a crew needs of a broker, whoever's it is."""

    @property
    def bootstrap(self) -> str: ...
    @property
    def facts(self) -> Facts: ...
    def said(self) -> str: ...


class BrokerProcess:
    """`coterie serve` on a free port, with a data directory that outlives it."""

    def __init__(self, directory: Path, settings: Mapping[str, str | int] | None = None) -> None:
        self.data = directory / "data"
        self._sets = [f"--set={name}={value}" for name, value in {**QUICK, **(settings or {})}.items()]
        self._out, self._err = directory / "broker.out", directory / "broker.err"
        self.facts = LoggedFacts(self._err)
        self.bootstrap = ""
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        """Also after a stop: on the same port, with what the last one left behind."""
        coterie = str(Path(sys.executable).with_name("coterie"))
        command = [coterie, "serve", f"--port={self._port}", f"--data={self.data}"]
        # Its settings are ours alone: names that begin so would be taken for some.
        quiet = {name: value for name, value in os.environ.items() if not name.startswith(("COTERIE_", "KAFKA_"))}
        with self._out.open("wb") as out, self._err.open("ab") as err:
            self._process = process = subprocess.Popen(
                [*command, "--log=json", *self._sets], stdout=out, stderr=err, env=quiet
            )
        lines = Lines(self._out)

        def ready() -> bool:
            if process.poll() is not None:
                raise AssertionError(f"the broker ended with {process.returncode} while starting:\n{self.said()}")
            self.bootstrap = next((line.removeprefix("ready ") for line in lines.new()), "")
            return bool(self.bootstrap)

        wait_until(ready, "the broker is ready", self.said)
        self._port = int(self.bootstrap.rpartition(":")[2])
        return self

    def stop(self) -> None:
        """In order: and the broker must have nothing to complain of, its own mistakes least of all."""
        assert self._process
        self._process.terminate()
        status = self._process.wait(PATIENCE_S)
        self._process = None
        self.facts.read()
        assert status == 0, f"the broker ended with {status}:\n{self.said()}"
        notes = [line for line in self.facts.noise if '"note": ' not in line]
        assert not notes, "the broker wrote what is no fact:\n" + "\n".join(notes)
        trouble = [one for one in self.facts.all if one["fact"] in {"Trouble", "ConnectionDropped"}]
        assert not trouble, f"the broker had trouble: {trouble}"

    def kill(self) -> None:
        """SIGKILL, as a crash: it can be started again."""
        assert self._process
        self._process.kill()
        self._process.wait(PATIENCE_S)
        self._process = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.stop()
        elif self._process is not None:
            self._process.kill()
            self._process.wait()

    def said(self) -> str:
        return f"--- broker, last lines\n{Lines(self._err).tail(40)}"


class Member:
    """One consumer in a process of its own, and what it has told so far."""

    def __init__(self, library: str, told: Orders, directory: Path) -> None:
        self.library = library
        self.client_id = told.client_id
        self.instance_id = told.instance_id
        self.events: list[dict[str, Any]] = []
        self.owned: set[Place] = set()
        self.ended_ms: int | None = None
        """When it was killed, or told to go."""
        self._err = directory / f"{told.client_id}.err"
        out = directory / f"{told.client_id}.out"
        with out.open("wb") as stdout, self._err.open("wb") as stderr:
            self._process = subprocess.Popen(
                LIBRARIES[library].command(told, directory),
                stdout=stdout,
                stderr=stderr,
                cwd=TESTS,
                env={**os.environ, "PYTHONPATH": str(TESTS)},
            )
        self._lines = Lines(out)

    def read(self) -> Member:
        for line in self._lines.new():
            for event in LIBRARIES[self.library].events(json.loads(line)):
                self.events.append(event)
                places = {(topic, partition) for topic, partition in event.get("partitions", ())}
                if event["event"] == "assigned":
                    self.owned |= places
                elif event["event"] in {"revoked", "lost"}:
                    self.owned -= places
        return self

    def told(self, name: str) -> list[dict[str, Any]]:
        return [event for event in self.read().events if event["event"] == name]

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    @property
    def consumed(self) -> list[tuple[str, int, int, str]]:
        return [(*record,) for event in self.told("consumed") for record in event["records"]]

    def kill(self) -> None:
        """SIGKILL: no goodbye."""
        self._end(signal.SIGKILL)
        self._process.wait()

    def leave(self) -> None:
        """SIGTERM: it closes its consumer, which leaves the group unless it is a static member."""
        self._end(signal.SIGTERM)
        status = self._process.wait(PATIENCE_S)
        assert status in {0, 143}, f"{self.client_id} ended with {status}:\n{self.said()}"  # 143: a JVM after its hooks
        assert self.told("closed"), f"{self.client_id} did not close in order:\n{self.said()}"

    def is_next_slow(self) -> None:
        """Tell it that the records it takes next are processed for as long as it was told at its start."""
        self._process.send_signal(signal.SIGUSR1)

    def slow_down(self) -> None:
        """The records it takes next are processed for as long as it was told at its start."""
        self.is_next_slow()
        wait_until(lambda: bool(self.told("busy")), f"{self.client_id} is busy", self.said)

    def suspend(self) -> None:
        """SIGSTOP: it does nothing, and does not know it, until it is resumed."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def _end(self, number: signal.Signals) -> None:
        assert self.is_running, f"{self.client_id} has ended by itself:\n{self.said()}"
        self.ended_ms = time.time_ns() // 1_000_000
        self._process.send_signal(number)

    def discard(self) -> None:
        if self.is_running:
            self._process.kill()
            self._process.wait()

    def said(self) -> str:
        return f"--- {self.client_id}\n{self._lines.tail()}\n{Lines(self._err).tail()}"


class Crew:
    """The members of one group, past and present."""

    def __init__(self, broker: RunningBroker, directory: Path, group: str) -> None:
        self.broker = broker
        self.group = group
        self.members: list[Member] = []
        self._directory = directory / group
        self._directory.mkdir()

    def start(self, library: str, **told: Any) -> Member:
        client_id = f"{self.group}-{library}-{len(self.members)}"
        orders = Orders(bootstrap=self.broker.bootstrap, group=self.group, client_id=client_id, **told)
        member = Member(library, orders, self._directory)
        self.members.append(member)
        return member

    @property
    def present(self) -> list[Member]:
        return [member for member in self.members if member.ended_ms is None]

    def wait_until(self, holds: Callable[[], bool], what: str, within_s: float = PATIENCE_S) -> None:
        def holds_and_all_live() -> bool:
            for member in self.present:
                assert member.is_running, f"{member.client_id} has ended by itself:\n{member.said()}"
            return holds()

        wait_until(holds_and_all_live, f"group {self.group}: {what}", self.said, within_s)

    def wait_until_settled(self, places: set[Place]) -> None:
        """All members that are there, and nobody else, own `places`, and the broker and they agree on who owns what."""
        self.wait_until(lambda: self._is_settled(places), f"{len(self.present)} members share {sorted(places)}")

    def _is_settled(self, places: set[Place]) -> bool:
        stored = self.broker.facts.assignments(self.group)
        if not stored:
            return False
        clients = self.broker.facts.member_ids(self.group)
        names = {member_id: self.broker.facts.lasting_name(self.group, member_id) for member_id in stored[-1][1]}
        given = {clients.get(names[member_id], names[member_id]): owned for member_id, owned in stored[-1][1].items()}
        owned = {member.instance_id or member.client_id: member.read().owned for member in self.present}
        return given == owned and set().union(*owned.values()) == places

    def wait_until_shares_are(self, counts: Sequence[int]) -> None:
        """Where members hear of new partitions one after the other, the first agreement need not be the last."""
        self.wait_until(
            lambda: [len(member.read().owned) for member in self.present] == list(counts), f"shares are {counts}"
        )

    def wait_until_committed(self, ends: Mapping[Place, int]) -> None:
        """The group has committed all that was produced."""
        self.wait_until(
            lambda: self.broker.facts.committed(self.group) == ends, f"everything is committed, up to {dict(ends)}"
        )

    def rebalances(self) -> int:
        return len(self.broker.facts.of(self.group, "RebalanceStarted"))

    def discard(self) -> None:
        for member in self.members:
            member.discard()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.discard()

    def said(self) -> str:
        return "\n".join([*(member.said() for member in self.members), self.broker.said()])
