"""What is measured of a target that runs: heartbeat, commit, rebalance, storm, idle. Each yields a case and a row."""

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
from coordbench.target import Meter, load_row, spread
from coordbench.types import MisbehavedError, Row, Script, clock

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


def _closed(session: Session, pairs: list[tuple[Connection, bytearray, Known]], seconds: float) -> Row:
    latencies = array.array("d")
    meter = Meter(session.target)
    end = clock() + seconds
    session.driver.run(
        ((connection, closed_loop(frame, known, end, latencies)) for connection, frame, known in pairs),
        seconds + 60,
    )
    meter.stop()
    return load_row(meter, latencies)


def _paced(session: Session, members: list[Member], rate: float, seconds: float) -> Row:
    latencies = array.array("d")
    period = len(members) / rate
    meter = Meter(session.target)
    begin = clock() + 0.05
    session.driver.run(
        (
            (
                member.connection,
                open_loop(
                    member.heartbeat(),
                    session.heartbeats,
                    begin + number / rate,
                    period,
                    begin + seconds,
                    latencies,
                ),
            )
            for number, member in enumerate(members)
        ),
        seconds + 60,
    )
    meter.stop()
    return load_row(meter, latencies)


def heartbeat(session: Session) -> Rows:
    options = session.options
    members = [member for group in session.form(options.groups, options.members) for member in group.members]
    for _ in runs(options):
        pairs = [(member.connection, member.heartbeat(), session.heartbeats) for member in members]
        yield f"closed {len(members)} conns", _closed(session, pairs, options.seconds)
    for rate in options.rate:
        for _ in runs(options):
            yield f"open {rate}/s {len(members)} conns", _paced(session, members, rate, options.seconds)


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
        for _ in runs(options):
            yield f"fetch {label}", _closed(session, fetches, options.seconds)


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
                row = _paced(session, members, len(members) / options.interval, options.seconds)
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
