"""The client libraries: how a member of each is started, and how its words are brought into ours."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from apache_kafka import jars, java_command
from clients.members.telling import Orders

__all__ = ["LIBRARIES", "TESTS", "GoLibrary"]

TESTS = Path(__file__).parents[1]


class PythonLibrary:
    def __init__(self, script: str) -> None:
        self._script = script

    def command(self, told: Orders, _directory: Path) -> list[str]:
        return [sys.executable, "-m", f"clients.members.{self._script}", json.dumps(asdict(told))]

    def events(self, line: dict[str, Any]) -> Sequence[dict[str, Any]]:
        return [line]


class GoLibrary:
    """A program of `go/`, built beforehand."""

    def __init__(self, binary: Path) -> None:
        self._binary = binary

    def command(self, told: Orders, _directory: Path) -> list[str]:
        return [str(self._binary), json.dumps(asdict(told))]

    def events(self, line: dict[str, Any]) -> Sequence[dict[str, Any]]:
        return [line]


class JavaLibrary:
    """Apache's VerifiableConsumer: it polls, tells, commits; its words are brought into ours."""

    def command(self, told: Orders, directory: Path) -> list[str]:
        assert not told.pattern, "VerifiableConsumer takes one topic"
        (topic,) = told.topics
        config = directory / f"{told.client_id}.properties"
        newer = told.protocol == "consumer"
        intervals = "" if newer else f"heartbeat.interval.ms={told.heartbeat_interval_ms}\n"
        config.write_text(
            f"client.id={told.client_id}\n{intervals}"
            f"metadata.max.age.ms={told.metadata_max_age_ms}\n"
            f"max.poll.interval.ms={told.max_poll_interval_ms}\n"
        )
        instance = ["--group-instance-id", told.instance_id] if told.instance_id else []
        return java_command(
            "org.apache.kafka.tools.VerifiableConsumer",
            *("--bootstrap-server", told.bootstrap, "--topic", topic, "--group-id", told.group, *instance),
            *("--command-config", config, "--verbose"),
            *(_of_the_broker(told) if newer else _of_the_client(told)),
        )

    def events(self, line: dict[str, Any]) -> Sequence[dict[str, Any]]:
        name, at = line["name"], {"at_ms": line["timestamp"]}
        if name in {"partitions_assigned", "partitions_revoked"}:
            places = [(one["topic"], one["partition"]) for one in line["partitions"]]
            return [{"event": name.removeprefix("partitions_"), "partitions": places, **at}]
        if name == "record_data":
            record = (line["topic"], line["partition"], line["offset"], line["value"])
            return [{"event": "consumed", "records": [record], **at}]
        if name == "offsets_committed":
            if not line["success"]:
                return [{"event": "commit_failed", "error": line["error"], **at}]
            offsets = [(one["topic"], one["partition"], one["offset"]) for one in line["offsets"]]
            return [{"event": "committed", "offsets": offsets, **at}] if offsets else []
        words = {"startup_complete": "started", "shutdown_complete": "closed"}
        return [{"event": words[name], **at}] if name in words else []


def _of_the_client(told: Orders) -> list[str]:
    assignors = ",".join(JAVA_ASSIGNORS[one] for one in told.assignor.split(","))
    return ["--session-timeout", str(told.session_timeout_ms), "--assignment-strategy", assignors]


def _of_the_broker(told: Orders) -> list[str]:
    assignor = ["--group-remote-assignor", told.assignor] if told.assignor else []
    return ["--group-protocol", "consumer", *assignor]


_JAVA = "org.apache.kafka.clients.consumer"
JAVA_ASSIGNORS = {
    "range": f"{_JAVA}.RangeAssignor",
    "roundrobin": f"{_JAVA}.RoundRobinAssignor",
    "sticky": f"{_JAVA}.StickyAssignor",
    "cooperative-sticky": f"{_JAVA}.CooperativeStickyAssignor",
}


class JavaConsumerLibrary:
    """`members/JavaMember.java`: Apache's consumer with the orders and the words of the Python members."""

    def command(self, told: Orders, _directory: Path) -> list[str]:
        told = replace(told, assignor=JAVA_ASSIGNORS.get(told.assignor, told.assignor))
        command = java_command("JavaMember", json.dumps(asdict(told)))
        class_path = command.index("-cp") + 1
        with _COMPILING:
            compiled = _compiled_java_member().name
        command[class_path] += f":{compiled}"  # at the end, as the archive of Kafka's classes wants
        return command

    def events(self, line: dict[str, Any]) -> Sequence[dict[str, Any]]:
        return [line]


_COMPILING = threading.Lock()


@functools.cache
def _compiled_java_member() -> tempfile.TemporaryDirectory[str]:
    """Compile it once for all members: compiling takes longer than starting one."""
    directory = tempfile.TemporaryDirectory(prefix="java-member-")
    source = TESTS / "clients" / "members" / "JavaMember.java"
    command = ["javac", "-XDignore.symbol.file", "-cp", f"{jars()}/*", "-d", directory.name, str(source)]
    subprocess.run(command, check=True)
    return directory


LIBRARIES: dict[str, PythonLibrary | JavaLibrary | JavaConsumerLibrary | GoLibrary] = {
    "confluent": PythonLibrary("confluent_member"),
    "kafka-python": PythonLibrary("kafka_python_member"),
    "aiokafka": PythonLibrary("aiokafka_member"),
    "coterie": PythonLibrary("coterie_member"),
    "java": JavaLibrary(),
    "java-consumer": JavaConsumerLibrary(),
}
