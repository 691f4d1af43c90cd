"""The command line. `PYTHONPATH=bench python -m coordbench --help`"""

from __future__ import annotations

import argparse
import gc
import resource
import signal
import subprocess
import sys
from typing import Any

from coordbench.groups import Session
from coordbench.launched import recover, start
from coordbench.messages import APIS
from coordbench.report import Report
from coordbench.scenarios import commit, heartbeat, idle, mix, produce, rebalance_, rejoin, storm
from coordbench.target import Target
from coordbench.types import MisbehavedError


def measure(options: argparse.Namespace) -> Report:
    report = Report(options.scenario, {}, {}, {}, [])
    hidden = {"scenario", "json", "bootstrap", "pid", "run", "command", "before", "log", "discard"}
    report.parameters = {name: value for name, value in vars(options).items() if name not in hidden}
    session = None
    try:
        if options.scenario in ("start", "recover"):
            rows = options.run(options)
        else:
            session = Session(Target(options.pid), options)
            report.versions = session.wire.versions
            rows = options.run(session)
        for case, row in rows:
            if row.get("failed"):
                report.failures.append(f"{case}: {row['failed']}")
            if not options.discard:
                report.cases.setdefault(case, []).append(row)
        if session is not None:
            session.disband()
    except (MisbehavedError, OSError, subprocess.CalledProcessError) as problem:
        report.failures.append(str(problem))
    return report


def address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host or "127.0.0.1", int(port)


def api_version(text: str) -> tuple[str, int]:
    api, _, version = text.partition("=")
    if api not in APIS:
        raise argparse.ArgumentTypeError(f"no such API: {api}; there are {', '.join(APIS)}")
    return api, int(version)


def arguments() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("bootstrap", type=address, help="host:port of the target")
    common.add_argument("--runs", type=int, default=3, help="runs per case; the median is reported")
    common.add_argument("--warmup", type=int, default=1, help="runs thrown away before those")
    common.add_argument("--topic", default="coordbench", help="topic of subscriptions and offsets")
    common.add_argument("--session-timeout", type=int, default=120, metavar="S", help="of every member")
    common.add_argument(
        "--max",
        type=api_version,
        nargs="+",
        default=[],
        metavar="API=V",
        help="use no higher version, e.g. join_group=5, for a target that claims more than it can",
    )
    common.add_argument("--json", action="store_true")
    running = argparse.ArgumentParser(add_help=False)
    running.add_argument(
        "--pid", type=int, nargs="+", default=[], help="the target's processes; descendants are counted in"
    )
    launched = argparse.ArgumentParser(add_help=False)
    launched.add_argument("--command", required=True, help="starts the target in the foreground; no shell")
    launched.add_argument("--before", default="", help="shell command run before each run, not counted")
    launched.add_argument("--log", default="", help="file for the target's output")

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    _add_scenarios(parser, common, running, launched)
    return parser


def _add_scenarios(
    parser: argparse.ArgumentParser,
    common: argparse.ArgumentParser,
    running: argparse.ArgumentParser,
    launched: argparse.ArgumentParser,
) -> None:
    scenarios = parser.add_subparsers(dest="scenario", required=True)

    def scenario(name: str, run: Any, *parents: argparse.ArgumentParser) -> argparse.ArgumentParser:
        summary = (run.__doc__ or name).splitlines()[0]
        sub = scenarios.add_parser(name, parents=[common, *parents], help=summary)
        sub.set_defaults(run=run, discard=False)
        return sub

    def shape(sub: argparse.ArgumentParser, groups: int, members: int) -> None:
        sub.add_argument("--groups", type=int, default=groups)
        sub.add_argument("--members", type=int, default=members, help="of each group")

    sub = scenario("heartbeat", heartbeat, running)
    shape(sub, 100, 10)
    sub.add_argument("--seconds", type=float, default=5.0)
    sub.add_argument("--rate", type=int, nargs="*", default=[5000], help="open loop, requests per second")

    sub = scenario("commit", commit, running)
    shape(sub, 100, 1)
    sub.add_argument("--seconds", type=float, default=5.0)
    sub.add_argument("--partitions", type=int, nargs="+", default=[1, 10, 100])
    sub.add_argument("--rate", type=int, nargs="*", default=[], help="open loop too, commits per second")

    sub = scenario("produce", produce, running)
    sub.add_argument("--connections", type=int, default=100)
    sub.add_argument("--size", type=int, default=100, help="bytes of a record")
    sub.add_argument("--seconds", type=float, default=5.0)
    sub.add_argument("--rate", type=int, nargs="*", default=[], help="open loop too, requests per second")

    sub = scenario("rejoin", rejoin, running)
    sub.add_argument("--groups", type=int, default=100)
    sub.add_argument("--seconds", type=float, default=5.0)
    sub.add_argument("--rate", type=int, nargs="*", default=[], help="open loop too, rejoins per second")

    sub = scenario("mix", mix, running)
    shape(sub, 100, 20)
    sub.add_argument("--seconds", type=float, default=60.0)
    sub.add_argument("--partitions", type=int, default=5, help="of each commit")

    sub = scenario("rebalance", rebalance_, running)
    sub.add_argument("--sizes", type=int, nargs="+", default=[10, 100, 1000])
    sub.add_argument("--rebalances", type=int, default=0, help="timed rebalances per run; 0: by size, 3 to 50")

    sub = scenario("storm", storm, running)
    shape(sub, 100, 10)
    sub.add_argument("--rebalances", type=int, default=5, help="storms per run")

    sub = scenario("idle", idle, running)
    sub.add_argument("--levels", type=int, nargs="+", default=[0, 1000, 10000])
    sub.add_argument("--members", type=int, default=10, help="of each group")
    sub.add_argument("--interval", type=float, default=3.0, help="seconds between heartbeats")
    sub.add_argument("--seconds", type=float, default=9.0)

    scenario("start", start, launched)

    sub = scenario("recover", recover, launched)
    sub.add_argument("--groups", type=int, default=2000)
    sub.add_argument("--partitions", type=int, nargs=1, default=[100], help="offsets per group")
    sub.add_argument("--connections", type=int, default=16)
    sub.add_argument("--patience", type=float, default=120.0)


def main() -> int:
    options = arguments().parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that a started target is stopped
    gc.disable()  # the generator's pauses must not look like the target's
    report = measure(options)
    print(report.as_json() if options.json else report.as_text())
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
