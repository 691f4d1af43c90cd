"""What is measured of a target that runs: one function for each scenario. Each yields a case and a row."""

from __future__ import annotations

import argparse
import array
import statistics
import time
from collections.abc import Iterator
from functools import partial

from coordbench.generator import Connection, Known
from coordbench.groups import Group, Member, Session
from coordbench.offsets import commit_frame, fetch_frame, verify_commit, verify_fetch
from coordbench.produced import KnownProduced, produce_frame
from coordbench.target import Meter, load_row, spread
from coordbench.types import REBALANCE_IN_PROGRESS, MisbehavedError, Row, Script, clock

Rows = Iterator[tuple[str, Row]]


def closed_loop(frame: bytearray, known: Known, end: float, latencies: array.array[float]) -> Script:
    check, note = known.check, latencies.append
    while (sent := clock()) < end:
        reply = yield frame
        note(clock() - sent)
        check(reply)


def open_loop(
    frame: bytearray, known: Known, first: float, period: float, end: float, latencies: array.array[float]
) -> Script:
    """Send on schedule. A request held back by an unanswered one counts from when it was due."""
    due = first
    while due < end:
        late = clock() - due  # positive only because the reply before was late
        if late < 0:
            yield -late
            late = 0.0
        sent = clock()
        reply = yield frame
        latencies.append(clock() - sent + late)
        known.check(reply)
        due += period


Request = tuple[Connection, bytearray, Known]
"""A request that is sent again and again, and how its answer is checked."""


def _closed(session: Session, pairs: list[Request], seconds: float) -> Row:
    latencies = array.array("d")
    meter = Meter(session.target)
    end = clock() + seconds
    session.driver.run(
        ((connection, closed_loop(frame, known, end, latencies)) for connection, frame, known in pairs),
        seconds + 60,
    )
    meter.stop()
    return load_row(meter, latencies)


def _paced(session: Session, requests: list[Request], rate: float, seconds: float) -> Row:
    latencies = array.array("d")
    period = len(requests) / rate
    meter = Meter(session.target)
    begin = clock() + 0.05
    session.driver.run(
        (
            (connection, open_loop(frame, known, begin + number / rate, period, begin + seconds, latencies))
            for number, (connection, frame, known) in enumerate(requests)
        ),
        seconds + 60,
    )
    meter.stop()
    return load_row(meter, latencies)


def _heartbeats(session: Session, members: list[Member]) -> list[Request]:
    return [(member.connection, member.heartbeat(), session.heartbeats) for member in members]


def heartbeat(session: Session) -> Rows:
    options = session.options
    members = [member for group in session.form(options.groups, options.members) for member in group.members]
    requests = _heartbeats(session, members)
    for _ in runs(options):
        yield f"closed {len(members)} conns", _closed(session, requests, options.seconds)
    for rate in options.rate:
        for _ in runs(options):
            yield f"open {rate}/s {len(members)} conns", _paced(session, requests, rate, options.seconds)


def commit(session: Session) -> Rows:
    options, wire = session.options, session.wire
    groups = session.form(options.groups, options.members)
    for partitions in options.partitions:
        layout = session.topics(partitions)
        committed = Known(partial(verify_commit, wire, layout))
        commits, fetches = [], []
        for number, group in enumerate(groups):
            base = 1_000_000 + number * 1000
            right = Known(partial(verify_fetch, wire, layout, base))
            asking = fetch_frame(wire, group.name, layout)
            for member in group.members:
                frame = commit_frame(wire, group.name, layout, base, member.id, member.generation)
                commits.append((member.connection, frame, committed))
                fetches.append((member.connection, bytearray(asking), right))
        label = f"p={partitions}" if len(layout) == 1 else f"p={partitions} in {len(layout)} topics"
        for _ in runs(options):
            yield f"commit {label}", _closed(session, commits, options.seconds)
        for rate in options.rate:
            for _ in runs(options):
                yield f"commit {label} open {rate}/s", _paced(session, commits, rate, options.seconds)
        for _ in runs(options):
            yield f"fetch {label}", _closed(session, fetches, options.seconds)


def produce(session: Session) -> Rows:
    """Producers that wait for each record: one of 100 bytes in a request, each to a partition of its own."""
    options, wire = session.options, session.wire
    if not wire.has("produce"):
        raise MisbehavedError("the target does not speak Produce v9")
    ((topic, partitions),) = session.topics(options.connections)
    where = session.leaders(topic)
    known = KnownProduced(wire, topic)
    requests: list[Request] = [
        (session.connect(where[partition]), produce_frame(wire, topic, partition, options.size), known)
        for partition in partitions
    ]
    for _ in runs(options):
        yield f"closed {len(requests)} conns", _closed(session, requests, options.seconds)
    for rate in options.rate:
        for _ in runs(options):
            yield f"open {rate}/s {len(requests)} conns", _paced(session, requests, rate, options.seconds)


def rejoin(session: Session) -> Rows:
    """Members of groups of one change their subscription: a JoinGroup and a SyncGroup are one request here."""
    options = session.options
    members = [member for group in session.form(options.groups, 1) for member in group.members]

    def closed(member: Member, end: float, latencies: array.array[float]) -> Script:
        while (begin := clock()) < end:
            yield from _changed(member)
            latencies.append(clock() - begin)

    def paced(member: Member, first: float, period: float, end: float, latencies: array.array[float]) -> Script:
        due = first
        while due < end:
            early = due - clock()
            if early > 0:
                yield early
            yield from _changed(member)
            latencies.append(clock() - due)
            due += period

    for rate in (None, *options.rate):
        for _ in runs(options):
            latencies = array.array("d")
            meter = Meter(session.target)
            begin, seconds = clock() + 0.05, options.seconds
            session.driver.run(
                (
                    (
                        member.connection,
                        closed(member, begin + seconds, latencies)
                        if rate is None
                        else paced(member, begin + at / rate, len(members) / rate, begin + seconds, latencies),
                    )
                    for at, member in enumerate(members)
                ),
                seconds + 60,
            )
            meter.stop()
            how = "closed" if rate is None else f"open {rate}/s"
            yield f"{how} {len(members)} groups", load_row(meter, latencies)


def _changed(member: Member) -> Script:
    member.flavour ^= 1
    yield from member.join()


DEPLOY = 0.6
"""The part of a mix in which members are restarted. The last one joins when the others have sent a heartbeat."""


def mix(session: Session) -> Rows:
    """A usual minute: heartbeats every 3 s, commits every 5 s, and all members of one group are restarted in turn."""
    options = session.options
    groups = session.form(options.groups, options.members)
    members = [member for group in groups for member in group.members]
    layout = session.topics(options.partitions)
    for _ in runs(options):
        beats, commits = array.array("d"), array.array("d")
        meter = Meter(session.target)
        begin = clock() + 0.05
        end = begin + options.seconds
        scripts = []
        for at, member in enumerate(members):
            user = _User(session, member, layout, (beats, commits))
            in_deploy = member.group is groups[0]
            every = DEPLOY * options.seconds / options.members
            restart_at = begin + member.index * every if in_deploy else None
            share = at / len(members)
            scripts.append((member.connection, user.live(begin + share * 3, begin + share * 5, end, restart_at)))
        session.driver.run(scripts, options.seconds + 60)
        meter.stop()
        session.driver.run((member.connection, member.settle(0.02)) for member in groups[0].members)
        requests = len(beats) + len(commits)
        yield (
            f"{len(members)} members",
            {
                "requests": requests,
                "cpu_percent": None if meter.cpu is None else 100 * meter.cpu / meter.seconds,
                **meter.per(requests, 1e6),
                **{f"heartbeat_{name}": value for name, value in spread(beats).items()},
                **{f"commit_{name}": value for name, value in spread(commits).items()},
            },
        )


class _User:
    """A member that heartbeats and commits on schedule, and follows rebalances. A deploy restarts it once."""

    HEARTBEAT_S, COMMIT_S = 3.0, 5.0

    def __init__(
        self, session: Session, member: Member, layout: list[tuple[str, range]], spent: tuple[array.array[float], ...]
    ) -> None:
        self._wire, self._member, self._layout = session.wire, member, layout
        self._beats, self._commits = spent
        self._committed = (-1, bytearray())

    def live(self, beat_at: float, commit_at: float, end: float, restart_at: float | None) -> Script:
        while True:
            due = min(beat_at, commit_at, restart_at or end)
            if due >= end:
                return
            early = due - clock()
            if early > 0:
                yield early
            if due == restart_at:
                restart_at = None
                yield from self._member.group.leave([self._member])
                self._member.forget()
                yield from self._member.join()
            elif due == beat_at:
                beat_at += self.HEARTBEAT_S
                reply = yield self._member.heartbeat()
                self._beats.append(clock() - due)
                if self._error(int(self._wire.parse("heartbeat", reply).error_code)):
                    yield from self._member.join()
            else:
                commit_at += self.COMMIT_S
                reply = yield self._commit()
                self._commits.append(clock() - due)
                errors = [
                    int(partition.error_code)
                    for topic in self._wire.parse("offset_commit", reply).topics
                    for partition in topic.partitions
                ]
                self._error(max(errors))

    def _commit(self) -> bytearray:
        member = self._member
        if self._committed[0] != member.generation:
            frame = commit_frame(
                self._wire, member.group.name, self._layout, 1_000, member_id=member.id, generation=member.generation
            )
            self._committed = (member.generation, frame)
        return self._committed[1]

    def _error(self, error: int) -> int:
        """Return the error of a rebalance, which is part of it; any other is the target's."""
        if error not in {0, REBALANCE_IN_PROGRESS}:
            raise MisbehavedError(f"a member of a mix was answered error {error}")
        return error


def rebalance_(session: Session) -> Rows:
    """A member joins a group, all others rejoin at once, the leader assigns, everybody syncs.

    Timed: from that member's JoinGroup until the last SyncGroup reply, join-triggered rebalances
    only. After each, that member leaves and the others go through a rebalance of their own, which
    is not timed. CPU is per rebalance, averaged over both kinds.
    """
    for size in session.options.sizes:
        (group,) = session.form(1, size)
        count = session.options.rebalances or max(3, min(50, 3000 // size))
        for _ in runs(session.options):
            yield f"n={size}", _rebalances(session, group, count)
        session.driver.run(group.leaving())
        session.groups.remove(group)
        for member in group.members:
            session.driver.close(member.connection)


def _rebalances(session: Session, group: Group, count: int) -> Row:
    driver, newcomer = session.driver, group.members[-1]
    others = group.members[:-1]
    walls = []
    _depart(session, group, newcomer)
    meter = Meter(session.target)
    for _ in range(count):
        driver.call(newcomer.connection, newcomer.introduce())

        def lead() -> Script:
            yield from others[0].until_rebalance()
            for member in others[1:]:
                driver.start(member.connection, member.join())
            yield from others[0].join()

        begin = clock()
        driver.run([(newcomer.connection, newcomer.join()), (others[0].connection, lead())])
        walls.append((clock() - begin) * 1e3)
        group.check()
        _depart(session, group, newcomer)
    meter.stop()
    driver.call(newcomer.connection, newcomer.introduce())
    driver.run((member.connection, member.settle(0.02)) for member in group.members)
    group.check()
    return {
        "rebalances": count,
        "wall_ms": statistics.median(walls),
        "wall_min_ms": min(walls),
        "wall_max_ms": max(walls),
        **meter.per(2 * count, 1e3),
        **meter.per(2 * count * len(group.members), 1e6, "_per_member"),
    }


def _depart(session: Session, group: Group, newcomer: Member) -> None:
    """The newcomer leaves; the others go through a rebalance without it."""
    session.driver.call(newcomer.connection, group.leave([newcomer]))
    newcomer.forget()
    others = group.members[:-1]
    session.driver.run((member.connection, member.join()) for member in others)
    if len({member.generation for member in others}) != 1:
        raise MisbehavedError("members of one group ended in different generations")


def storm(session: Session) -> Rows:
    """All members of all groups change their subscription and rejoin at once."""
    options = session.options
    groups = session.form(options.groups, options.members)
    members = [member for group in groups for member in group.members]
    for _ in runs(options):
        walls, ended = [], array.array("d")

        def timed(member: Member, begin: float, ended: array.array[float] = ended) -> Script:
            yield from member.join()
            ended.append(clock() - begin)

        meter = Meter(session.target)
        for _ in range(options.rebalances):
            before = {group.name: group.members[0].generation for group in groups}
            for member in members:
                member.flavour ^= 1
                member.prepare()
            begin = clock()
            session.driver.run((member.connection, timed(member, begin)) for member in members)
            walls.append((clock() - begin) * 1e3)
            for group in groups:
                group.check()
                if group.members[0].generation == before[group.name]:
                    raise MisbehavedError("a changed subscription did not start a rebalance")
        meter.stop()
        yield (
            f"{len(groups)} groups x {options.members}",
            {
                "storms": options.rebalances,
                "wall_ms": statistics.median(walls),
                "wall_max_ms": max(walls),
                **meter.per(options.rebalances, 1e3),
                **meter.per(options.rebalances * len(members), 1e6, "_per_member"),
                **{f"member_{name}": value for name, value in spread(ended).items()},
            },
        )


def idle(session: Session) -> Rows:
    """Memory with so many joined members, and CPU while each heartbeats every few seconds."""
    options = session.options
    members: list[Member] = []
    for level in sorted(options.levels):
        missing = level - len(members)
        begin = clock()
        if missing > 0:
            formed = session.form(missing // options.members, options.members)
            members += [member for group in formed for member in group.members]
        joined_in = clock() - begin
        for _ in runs(options):
            if members:
                row = _paced(session, _heartbeats(session, members), len(members) / options.interval, options.seconds)
            else:
                meter = Meter(session.target)
                time.sleep(options.seconds)
                meter.stop()
                row = {"broker_cores": None if meter.cpu is None else meter.cpu / meter.seconds}
            cores = row.pop("broker_cores")
            row = {
                "rss_mib": session.target.rss_mib(),
                "cpu_percent": None if cores is None else 100 * cores,
                **row,
            }
            row["joined_in_s"] = joined_in
            yield f"{len(members)} members", row


def runs(options: argparse.Namespace) -> Iterator[int]:
    """Numbers the runs; the first `--warmup` ones are negative and are not reported."""
    for number in range(-options.warmup, options.runs):
        options.discard = number < 0
        yield number
