"""Attack the secured listeners of a broker with clients that never log in, beside a member that has.

    make soak                                                     the last part of it
    PYTHONPATH=tests python tests/soak/unauthenticated.py --only PLAIN --share 0.1

`unauthenticated_attacks.py` has the attacks. Each runs in a process of its own, until its attempts have ended. The
member is at the SASL_SSL listener and sends 50 heartbeats a second. `adversary.py` says what its figures mean, and who
gets which CPU. The warm-up runs each attack once, with at most a thousand attempts, which is also how many clients may
be unauthenticated at a time. At the end, the broker's memory must be within a tenth of what it was after the warm-up.
The member must never be expired, and the broker must not work for long while a heartbeat waits. The log must have the
attackers' addresses, no password, and at most `LINES_A_SECOND`. Else the exit status is 1.
"""

from __future__ import annotations

import argparse
import multiprocessing
import ssl
import sys
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory

from apache_kafka import free_ports
from broker.peer import Peer, Serving
from broker.sasl_dialogues import plain
from coterie.protocol.apis import sasl_authenticate, sasl_handshake
from secured_kafka import Certificates
from soak.adversary import MOST_GROWN, SAMPLE_S, SETTLES_S, first, lowest, pin, quantile, set_priority, settled
from soak.processes import open_sockets, rss_bytes
from soak.steady_member import SteadyMember
from soak.unauthenticated_attacks import ATTACKS, GUESS, SOURCES, USER, StrangersAttack, Target

__all__ = ["StrangersOutcome", "strangers"]

PASSWORD = "the-password-of-alice"
PAUSE_S = 0.02
MOST_WORK_S = 0.5
WARM_UP = 1_000
"""Attempts of the warm-up, at most."""
MOST_MORE = 200 << 20
"""Memory that attackers may take for as long as they are there."""
LINES_A_SECOND = 50
LIMIT_S = 600.0
_SPAWN = multiprocessing.get_context("spawn")


@dataclass(slots=True)
class StrangersRow:
    """What one attack did. Memory in bytes, times in seconds."""

    name: str
    attempts: int
    took_s: float
    before: int
    peak: int
    after: int
    latencies: list[float]
    work: list[float]
    problem: str | None

    def __str__(self) -> str:
        memory = "".join(f"{each / 2**20:7.0f}" for each in (self.before, self.peak, self.after))
        shares = (0.5, 0.99, 1.0)
        times = [quantile(measured, share) for measured in (self.latencies, self.work) for share in shares]
        shown = "".join(f"{each * 1000:9.1f}" for each in times)
        return f"{self.name:44}{self.attempts:9d}{self.took_s:7.1f}{memory}{shown}  {self.problem or 'no'}"


HEADER = (
    f"{'attack':44}{'attempts':>9}{'s':>7}{'before':>7}{'peak':>7}{'after':>7}"
    f"{'p50 ms':>9}{'p99':>9}{'slowest':>9}{'work p50':>9}{'p99':>9}{'most':>9}  expired"
)


@dataclass(slots=True)
class StrangersOutcome:
    rows: list[StrangersRow] = field(default_factory=list)
    start: int = 0
    """Memory after the warm-up."""
    end: int = 0
    log_lines: int = 0
    log_s: float = 0.0
    problems: list[str] = field(default_factory=list)

    def judge(self, said: str) -> None:
        for row in self.rows:
            if row.problem:
                self.problems.append(f"{row.name}: {row.problem}")
            if row.work and row.work[-1] > MOST_WORK_S:
                self.problems.append(f"{row.name}: the broker worked {row.work[-1]:.1f} s while a heartbeat waited")
            if row.peak > self.start + MOST_MORE:
                self.problems.append(f"{row.name}: the broker had {row.peak >> 20} MiB")
        if self.end > self.start * MOST_GROWN:
            self.problems.append(f"memory grew from {self.start >> 20} to {self.end >> 20} MiB")
        self.log_lines = said.count("\n")
        if self.log_lines > 100 + LINES_A_SECOND * self.log_s:
            self.problems.append(f"{self.log_lines} lines of log in {self.log_s:.0f} s")
        self.problems += [f"the log has {text!r}" for text in (GUESS, PASSWORD, "Traceback", "Mistake") if text in said]
        self.problems += [f"the log does not have {address}" for address in SOURCES if address not in said]


def _settings(directory: Path, target: Target) -> list[str]:
    server = Certificates(directory / "tls").leaf("server", "127.0.0.1")
    users = directory / "users.properties"
    users.write_text(f"{USER}={PASSWORD}\n")
    settings = {
        "listeners": f"SASL_SSL://127.0.0.1:{target.tls_port},SASL_PLAINTEXT://127.0.0.1:{target.plain_port}",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "ssl.keystore.location": server.both,
        "coterie.users.file": users,
        "group.initial.rebalance.delay.ms": 0,
        "offsets.topic.num.partitions": 1,
    }
    return [f"--set={name}={value}" for name, value in settings.items()]


class LoggedIn(Peer):
    """A connection to the SASL_SSL listener that has logged in."""

    def __init__(self, port: int, ca: Path) -> None:
        super().__init__(f"127.0.0.1:{port}", timeout_s=60)
        self.socket = ssl.create_default_context(cafile=str(ca)).wrap_socket(self.socket, server_hostname="127.0.0.1")
        assert not self.ask(sasl_handshake, sasl_handshake.Request(mechanism="PLAIN"), 1).error
        token = sasl_authenticate.Request(auth_bytes=plain(USER, PASSWORD))
        assert not self.ask(sasl_authenticate, token, 2).error


def _attack(attack: StrangersAttack, target: Target, attempts: int, told: Connection) -> None:
    """The main function of an attacker's process."""
    set_priority(0)
    pin(0, is_broker=False)
    until = time.monotonic() + LIMIT_S
    ended = 0
    with closing(attack.run(target, attempts)) as steps:  # type: ignore[type-var]
        for some in steps:
            ended += some
            if time.monotonic() > until:
                break
    told.send(ended)


def _measure(
    name: str,
    attack: StrangersAttack,
    attempts: int,
    target: Target,
    pid: int,
    member: SteadyMember,
    settles_s: float = SETTLES_S,
) -> StrangersRow:
    before, sockets, began = rss_bytes(pid), open_sockets(pid), time.monotonic()
    peak = before
    hears, told = _SPAWN.Pipe(duplex=False)
    attacker = _SPAWN.Process(target=_attack, args=(attack, target, attempts, told), daemon=True)
    member.mark()
    attacker.start()
    while attacker.is_alive():
        peak = max(peak, rss_bytes(pid))
        attacker.join(SAMPLE_S)
    took_s = time.monotonic() - began
    latencies, work = member.mark()
    ended = int(hears.recv()) if hears.poll() else 0
    problem = member.problem
    if ended < attempts:
        problem = f"{ended} of {attempts} attempts ended (the attacker's exit status is {attacker.exitcode})"
    after = settled(pid, before, sockets, settles_s)
    return StrangersRow(name, ended, took_s, before, peak, after, latencies, work, problem)


def strangers(attacks: Mapping[str, StrangersAttack], share: float, directory: Path) -> StrangersOutcome:
    """Run each attack with a share of its attempts; the outcome tells what is wrong."""
    target = Target(*free_ports(2))
    outcome = StrangersOutcome()
    log = directory / "log"
    with Serving(directory / "data", *_settings(directory, target), port=None, log=log) as broker, first():
        broker.ready()
        began, pid = time.monotonic(), broker.process.pid
        for thread in Path(f"/proc/{pid}/task").iterdir():
            pin(int(thread.name), is_broker=True)
        peer = LoggedIn(target.tls_port, directory / "tls" / "ca.pem")
        member = SteadyMember(peer, pid, PAUSE_S)
        member.start()
        for name, attack in attacks.items():
            _measure(name, attack, min(int(attack.attempts * share), WARM_UP), target, pid, member, settles_s=0)
        outcome.start = lowest(pid)
        print(HEADER, flush=True)
        for name, attack in attacks.items():
            outcome.rows.append(_measure(name, attack, int(attack.attempts * share), target, pid, member))
            print(outcome.rows[-1], flush=True)
        outcome.end = settled(pid, outcome.start, open_sockets(pid))
        member.end()
        broker.signal()
        status, _ = broker.ended()
        outcome.log_s = time.monotonic() - began
    if status:
        outcome.problems.append(f"the broker's exit status is {status}")
    outcome.judge(log.read_text())
    return outcome


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="attacks whose names contain this")
    parser.add_argument("--share", type=float, default=1.0, help="of the attempts of each")
    options = parser.parse_args()
    attacks = {name: each for name, each in ATTACKS.items() if options.only in name}
    with TemporaryDirectory() as directory:
        outcome = strangers(attacks, options.share, Path(directory))
    print(
        f"memory: {outcome.start / 2**20:.0f} MiB at the start, {outcome.end / 2**20:.0f} MiB at the end; "
        f"{outcome.log_lines} lines of log in {outcome.log_s:.0f} s"
    )
    for problem in outcome.problems:
        print(problem)
    sys.exit(bool(outcome.problems))


if __name__ == "__main__":
    main()
