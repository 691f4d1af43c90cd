"""CPU per heartbeat of the broker at 1 000 connections, next to a server that does next to nothing (bench/bare.py).

    make bench-heartbeat            # or: .venv/bin/python bench/heartbeat.py [--json FILE] [--seconds 0.25]

Each connection is a member that has joined and synced. Closed loop: each has one heartbeat under way at any time. Both
servers run at once and are loaded in turn, in short slices, by the same generator, so that what else the machine does
hits both alike. The ratio is the median over pairs of neighbouring slices; its quartiles tell how noisy it was.
"""

from __future__ import annotations

import argparse
import select
import socket
import ssl
import statistics
import sys
import tempfile
import time
from pathlib import Path
from types import ModuleType
from typing import Any

from measured import Process, coterie_serve, write_results

from coterie.errors import ErrorCode
from coterie.protocol.apis import find_coordinator, heartbeat, join_group, sync_group
from coterie.protocol.frames import read_response_header, request_frame
from coterie.protocol.messages import Heartbeat, JoinedGroup, JoinGroup, Protocol, SyncGroup

AIM = 2.2
ANSWER = bytes.fromhex("0000000c") + bytes(12)
"""To correlation id 0: no error. Any other answer ends the run."""


class Link:
    """A connection with its prepared heartbeat."""

    def __init__(self, where: tuple[str, int], tls: ssl.SSLContext | None = None) -> None:
        self.socket = socket.create_connection(where, timeout=60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname=where[0])
        self.beat = b""
        self.expected = ANSWER

    def send(self, api: ModuleType, request: Any, version: int) -> None:
        body = api.write_request(request, version)
        flexible = version >= api.API.flexible
        self.socket.sendall(request_frame(api.API.key, version, 0, "bench", body, flexible=flexible))

    def answer(self, api: ModuleType, version: int) -> Any:
        size = int.from_bytes(self._read(4), "big")
        frame = self._read(size)
        _, at = read_response_header(frame, flexible=api.API.has_flexible_response_header(version))
        return api.read_response(frame, at, version)

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            if not piece:
                raise SystemExit("the server closed a connection")
            data += piece
        return data

    def prepare(self, group: str, member_id: str, generation_id: int) -> None:
        body = heartbeat.write_request(Heartbeat(None, group, member_id, None, generation_id), 4)
        self.beat = request_frame(heartbeat.API.key, 4, 0, "bench", body, flexible=True)


def join_all(where: tuple[str, int], groups: int, members: int, tls: ssl.SSLContext | None = None) -> list[Link]:
    """All members of all groups, joined and synced, each on its own connection."""
    finder = Link(where, tls)
    until = time.perf_counter() + 30
    finder.send(find_coordinator, find_coordinator.Request(keys=["g"]), 1)
    while finder.answer(find_coordinator, 1).coordinators[0].error:  # Kafka creates the topic of the groups first
        if time.perf_counter() > until:
            raise SystemExit("there is no coordinator")
        time.sleep(0.1)
        finder.send(find_coordinator, find_coordinator.Request(keys=["g"]), 1)
    finder.socket.close()
    crowds = {f"group-{number}": [Link(where, tls) for _ in range(members)] for number in range(groups)}
    for group, crowd in crowds.items():
        request = JoinGroup(
            None, group, "", None, "consumer", [Protocol("range", bytes(100))], 1_800_000, 60_000, fresh_id=""
        )
        for link in crowd:
            link.send(join_group, request, 3)
    for group, crowd in crowds.items():
        joined: list[JoinedGroup] = [link.answer(join_group, 3) for link in crowd]
        if {(one.error, one.generation_id) for one in joined} != {(ErrorCode.NONE, 1)}:
            raise SystemExit(f"{group} did not come together in one rebalance: {joined}")
        for link, one in zip(crowd, joined, strict=True):
            given = [(member.member_id, bytes(100)) for member in one.members]
            link.send(sync_group, SyncGroup(None, group, one.member_id, None, 1, given), 3)
        for link, one in zip(crowd, joined, strict=True):
            if link.answer(sync_group, 3).error:
                raise SystemExit(f"{group}: a sync was refused")
            link.prepare(group, one.member_id, 1)
    return [link for crowd in crowds.values() for link in crowd]


def same_beats(where: tuple[str, int], links: list[Link]) -> list[Link]:
    """As many connections to the bare server, with the very same heartbeats."""
    copies = [Link(where) for _ in links]
    for copy, link in zip(copies, links, strict=True):
        copy.beat = link.beat
    return copies


def closed_loop(links: list[Link], seconds: float) -> int:
    """Heartbeats answered in so many seconds, one under way on each connection."""
    by_fd = {link.socket.fileno(): (link.socket, link.beat, link.expected) for link in links}
    poller = select.epoll()
    for fd, (connection, beat, _) in by_fd.items():
        connection.settimeout(0)
        poller.register(fd, select.EPOLLIN)
        connection.send(beat)
    count, waiting = 0, len(by_fd)
    until = time.perf_counter() + seconds
    going_on = True
    while waiting:
        events = poller.poll(5)
        if not events:
            raise SystemExit(f"{waiting} heartbeats were not answered for 5 s")
        going_on = going_on and time.perf_counter() < until
        for fd, _ in events:
            connection, beat, expected = by_fd[fd]
            try:
                answer = connection.recv(256)
            except ssl.SSLWantReadError:  # a message of TLS itself
                continue
            if answer != expected:
                raise SystemExit("a heartbeat was answered with an error")
            count += 1
            if going_on:
                connection.send(beat)
            else:
                waiting -= 1
    poller.close()
    return count


def one_slice(server: Process, links: list[Link], seconds: float) -> tuple[float, float]:
    """Microseconds of the server's CPU per heartbeat, and heartbeats per second."""
    cpu, began = server.cpu_s(), time.perf_counter()
    count = closed_loop(links, seconds)
    return (server.cpu_s() - cpu) / count * 1e6, count / (time.perf_counter() - began)


def calm(values: list[float]) -> float:
    """The value a tenth of the slices stay below: neighbours only ever add to what a request costs."""
    return sorted(values)[len(values) // 10]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json")
    parser.add_argument("--groups", type=int, default=100)
    parser.add_argument("--members", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=0.25, help="of a slice")
    parser.add_argument("--slices", type=int, default=80, help="of each server")
    options = parser.parse_args()
    rows: dict[str, list[tuple[float, float]]] = {"broker": [], "bare": []}
    with (
        tempfile.TemporaryDirectory() as directory,
        Process(
            coterie_serve("--data", f"{directory}/data", "--set", "group.initial.rebalance.delay.ms=300")
        ) as broker,
        Process([sys.executable, str(Path(__file__).with_name("bare.py"))]) as bare,
    ):
        links = join_all(broker.ready(), options.groups, options.members)
        others = same_beats(bare.ready(), links)
        closed_loop(links, 1)
        closed_loop(others, 1)
        for _ in range(options.slices):
            rows["broker"].append(one_slice(broker, links, options.seconds))
            rows["bare"].append(one_slice(bare, others, options.seconds))
        rss = broker.rss_mib()
    cpu = {name: [row[0] for row in found] for name, found in rows.items()}
    ratios = sorted(ours / least for ours, least in zip(cpu["broker"], cpu["bare"], strict=True))
    ratio = statistics.median(ratios)
    figures = {
        "aim": {"ratio": AIM, "met": ratio <= AIM},
        "connections": len(links),
        "ratio": round(ratio, 2),
        "ratio_quartiles": [round(ratios[len(ratios) // 4], 2), round(ratios[3 * len(ratios) // 4], 2)],
        "ratio_of_calm_slices": round(calm(cpu["broker"]) / calm(cpu["bare"]), 2),
        "broker_cpu_us": {"calm": round(calm(cpu["broker"]), 2), "median": round(statistics.median(cpu["broker"]), 2)},
        "bare_cpu_us": {"calm": round(calm(cpu["bare"]), 2), "median": round(statistics.median(cpu["bare"]), 2)},
        **{f"{name}_per_s": round(statistics.median(row[1] for row in found)) for name, found in rows.items()},
        "broker_rss_mib": round(rss, 1),
    }
    write_results(options.json, figures)


if __name__ == "__main__":
    main()
