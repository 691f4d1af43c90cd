"""CPU per heartbeat over TLS, of Coterie and of Apache Kafka 4.3.1, in one run. `make bench-tls` runs it.

    PYTHONPATH=tests .venv/bin/python bench/tls.py [--json FILE] [--seconds 0.5]

Both brokers have the same certificate and run at once. Each connection is a member that has joined and synced, and has
one heartbeat under way at any time. The brokers are loaded in turn, in short slices, so that what else the machine does
hits both alike. Kafka is loaded for half a minute first, so that its code is compiled.
"""

from __future__ import annotations

import argparse
import ssl
import statistics
import tempfile
from pathlib import Path
from typing import Any

from heartbeat import closed_loop, join_all
from measured import Process, coterie_serve, write_results

from apache_kafka import SERVER
from secured_kafka import SecuredKafka

AIM = 0.6
WARM_UP_S = 30.0


class _Kafka(Process):
    """The process of a Kafka that runs already."""

    def __init__(self, pid: int) -> None:
        self.pid = pid


def measure(connections: int, seconds: float, slices: int) -> dict[str, Any]:
    delay = {"group.initial.rebalance.delay.ms": "3000"}  # so that all members join in one rebalance
    with SecuredKafka(delay, flags=SERVER) as kafka, tempfile.TemporaryDirectory() as directory:
        server = Path(kafka.home, "tls", "server.pem")
        context = ssl.create_default_context(cafile=kafka.certificates.ca)
        command = coterie_serve("--data", f"{directory}/data")
        for setting in (
            "listeners=SSL://127.0.0.1:0",
            "ssl.keystore.type=PEM",
            f"ssl.keystore.location={server}",
            "group.initial.rebalance.delay.ms=300",
        ):
            command += ["--set", setting]
        host, _, port = kafka.address_of("SSL").rpartition(":")
        with Process(command) as coterie:
            groups = connections // 10
            ours = join_all(coterie.ready(), groups, 10, context)
            theirs = join_all((host, int(port)), groups, 10, context)
            closed_loop(theirs, WARM_UP_S)
            closed_loop(ours, 1)
            cpu: dict[str, list[float]] = {"coterie": [], "kafka": []}
            for _ in range(slices):
                for name, process, links in (("coterie", coterie, ours), ("kafka", _Kafka(kafka.pid), theirs)):
                    before = process.cpu_s()
                    count = closed_loop(links, seconds)
                    cpu[name].append((process.cpu_s() - before) / count * 1e6)
            version = ours[0].socket.version()  # type: ignore[attr-defined]
    ratios = sorted(mine / its for mine, its in zip(cpu["coterie"], cpu["kafka"], strict=True))
    ratio = statistics.median(ratios)
    return {
        "aim": {"ratio": AIM, "met": ratio <= AIM},
        "tls": version,
        "connections": connections,
        "ratio": round(ratio, 2),
        "ratio_quartiles": [round(ratios[len(ratios) // 4], 2), round(ratios[3 * len(ratios) // 4], 2)],
        **{f"{name}_cpu_us": round(statistics.median(found), 1) for name, found in cpu.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json")
    parser.add_argument("--connections", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=0.5, help="of a slice")
    parser.add_argument("--slices", type=int, default=30, help="of each broker")
    options = parser.parse_args()
    write_results(options.json, measure(options.connections, options.seconds, options.slices))


if __name__ == "__main__":
    main()
