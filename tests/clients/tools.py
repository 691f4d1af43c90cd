"""Apache Kafka's command line tools, as an operator types them; all in one JVM (ToolRunner.java)."""

from __future__ import annotations

import os
import re
import select
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

from apache_kafka import java_command

__all__ = ["TOOLS", "ToolError", "Tools", "rows"]

TOOLS = "org.apache.kafka.tools"
SECONDS = 120.0


def rows(table: str) -> list[list[str]]:
    """From the header on, cut where there are blanks; the one in a coordinator's name does not count."""
    lines = [line for line in table.replace("  (", " (").splitlines() if line.strip()]
    begin = next(at for at, line in enumerate(lines) if line.startswith("GROUP"))
    return [re.split(r"\s+", re.sub(r"\s+\((ID|\d+)\)", r"(\1)", line.strip())) for line in lines[begin:]]


class ToolError(Exception):
    """A tool ended with another status than 0; the message is what it wrote."""


class Tools:
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = ("--bootstrap-server", bootstrap)
        command = java_command(Path(__file__).with_name("ToolRunner.java"))
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def topics(self, *arguments: str) -> str:
        return self._run(f"{TOOLS}.TopicCommand", *arguments)

    def configs(self, *arguments: str) -> str:
        return self._run("kafka.admin.ConfigCommand", *arguments)

    def groups(self, *arguments: str) -> str:
        return self._run(f"{TOOLS}.consumer.group.ConsumerGroupCommand", *arguments)

    def all_groups(self, *arguments: str) -> str:
        return self._run(f"{TOOLS}.GroupsCommand", *arguments)

    def log_directories(self, *arguments: str) -> str:
        return self._run(f"{TOOLS}.LogDirsCommand", *arguments)

    def reassign(self, *arguments: str) -> str:
        return self._run(f"{TOOLS}.reassign.ReassignPartitionsCommand", *arguments)

    def elect(self, *arguments: str) -> str:
        return self._run(f"{TOOLS}.LeaderElectionCommand", *arguments)

    def quorum(self, *arguments: str) -> str:
        return self._run(f"{TOOLS}.MetadataQuorumCommand", *arguments)

    def transactions(self, *arguments: str) -> str:
        return self._run(f"{TOOLS}.TransactionsCommand", *arguments)

    def features(self, *arguments: str) -> str:
        return self._run(f"{TOOLS}.FeatureCommand", *arguments)

    def offsets(self, *arguments: str) -> str:
        return self._run(f"{TOOLS}.GetOffsetShell", *arguments)

    def client_metrics(self, *arguments: str) -> str:
        return self._run(f"{TOOLS}.ClientMetricsCommand", *arguments)

    def api_versions(self) -> str:
        return self._run(f"{TOOLS}.BrokerApiVersionsCommand")

    def produce(self, *arguments: str) -> str:
        return self._run(f"{TOOLS}.ProducerPerformance", *arguments)

    def _run(self, main_class: str, *arguments: str) -> str:
        return self.run(main_class, *self._bootstrap, *arguments)

    def run(self, main_class: str, *arguments: str) -> str:
        """What the tool prints; one that fails raises with what it said."""
        assert self._process.stdin
        self._process.stdin.write("\t".join([main_class, *arguments]).encode() + b"\n")
        self._process.stdin.flush()
        header = b""
        while not header.endswith(b"\n"):
            header += self._read(1)
        status, size = map(int, header.split())
        written = b""
        while len(written) < size:
            written += self._read(size - len(written))
        said = written.decode(errors="replace")
        if status:
            raise ToolError(f"{main_class} {' '.join(arguments)} ended with {status}:\n{said}")
        return said

    def _read(self, size: int) -> bytes:
        assert self._process.stdout
        pipe = self._process.stdout.fileno()
        ready, _, _ = select.select([pipe], [], [], SECONDS)
        data = os.read(pipe, size) if ready else b""
        if not data:
            raise ToolError(f"no answer within {SECONDS:.0f} s; the JVM's status is {self._process.poll()}")
        return data
