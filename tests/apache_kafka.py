"""Apache Kafka 4.3.1 itself, one node, for tests that hold us to it.

    with ApacheKafka({"group.initial.rebalance.delay.ms": "0"}) as kafka:
        connect(kafka.bootstrap)
        kafka.kill()                    # as kill -9 does; the data directory stays
        kafka.start()                   # same port, same data

A test asks for it by `@needs_apache_kafka`, and is skipped, with the reason, on a machine that cannot run it. The jars
come from the directory named by COTERIE_KAFKA_LIBS or are fetched once by Maven into the user's cache.
"""

from __future__ import annotations

import fcntl
import functools
import os
import shutil
import socket
import struct
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from secrets import choice
from types import TracebackType
from typing import Self

import pytest

__all__ = [
    "QUICK",
    "SERVER",
    "ApacheKafka",
    "free_ports",
    "jars",
    "java_command",
    "needs_apache_kafka",
    "run_java",
    "why_not",
]

VERSION = "4.3.1"
CLUSTER_ID = "Q290ZXJpZSBpbiB0ZXN0cw"
"""Any 16 bytes in URL-safe base64."""
STARTS_WITHIN_SECONDS = 300
STOPS_WITHIN_SECONDS = 60
PAUSE_SECONDS = 0.1

QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""For a JVM that lives for seconds: it compiles less."""
SERVER = ("-XX:+UseG1GC",)

_ARTIFACTS = (
    ("org.apache.kafka", "kafka_2.13", VERSION),
    ("org.apache.kafka", "kafka-tools", VERSION),
    ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.24.3"),
)
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>coterie</groupId><artifactId>apache-kafka-for-tests</artifactId><version>1</version>
  <dependencies>%s</dependencies>
</project>"""
_DEPENDENCY = "<dependency><groupId>%s</groupId><artifactId>%s</artifactId><version>%s</version></dependency>"

_LOG4J2 = """rootLogger.level = WARN
rootLogger.appenderRef.out.ref = OUT
appender.out.type = Console
appender.out.name = OUT
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %p %c: %m%n
"""

# One copy of everything, since there is one node; no wait and no lower bound that a test would have to sit out.
_PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    # A killed broker may not register again before its old session has ended: 9 s if nothing is said.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}
_API_VERSIONS_V0 = struct.pack(">ihhih", 10, 18, 0, 1, -1)


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "coterie" / f"kafka-{VERSION}"


def why_not() -> str | None:
    """Why this machine cannot run Apache Kafka; None if it can."""
    if not shutil.which("java"):
        return f"Apache Kafka {VERSION} needs Java 17 or later, and there is no `java` on the PATH"
    if os.environ.get("COTERIE_KAFKA_LIBS") or _cache().is_dir() or shutil.which("mvn"):
        return None
    return (
        f"the jars of Apache Kafka {VERSION} are not here: set COTERIE_KAFKA_LIBS to a directory of them, "
        "or put Maven (`mvn`) on the PATH to have them fetched"
    )


needs_apache_kafka = pytest.mark.skipif(why_not() is not None, reason=why_not() or "")


def jars() -> Path:
    """The directory of Kafka's jars; the first call on a machine fetches them (54 MB)."""
    given = os.environ.get("COTERIE_KAFKA_LIBS")
    if given:
        if not any(Path(given).glob(f"kafka_2.13-{VERSION}.jar")):
            raise FileNotFoundError(f"COTERIE_KAFKA_LIBS is {given}, which holds no kafka_2.13-{VERSION}.jar")
        return Path(given)
    libs = _cache()
    if not libs.is_dir():
        _fetch(libs)
    return libs


def _fetch(libs: Path) -> None:
    libs.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=libs.parent) as scratch:
        pom = Path(scratch, "pom.xml")
        pom.write_text(_POM % "".join(_DEPENDENCY % artifact for artifact in _ARTIFACTS))
        fetched = Path(scratch, "libs")
        command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={fetched}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"Maven could not fetch Apache Kafka {VERSION}:\n{done.stdout}{done.stderr}")
        try:
            fetched.rename(libs)  # whole or not at all, so that an interrupted fetch is never taken for the jars
        except OSError:
            if not libs.is_dir():  # otherwise another test run was faster
                raise


def run_java(*arguments: str | Path, timeout_seconds: float = 300, flags: Sequence[str] | None = None) -> str:
    """What a Java program on Kafka's class path prints: a tool's main class or a source file, and its arguments."""
    command = java_command(*arguments, flags=flags)
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_seconds, check=False)
    if done.returncode:
        raise RuntimeError(f"{arguments[0]} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-4000:]}")
    return done.stdout


def java_command(*arguments: str | Path, heap: str = "128m", flags: Sequence[str] | None = None) -> list[str]:
    """Return the command of a JVM on Kafka's class path. Without `flags` it starts fast, and never gets fast."""
    if flags is None:
        flags = (*QUICK, *_archived_classes())
    return ["java", f"-Xmx{heap}", *flags, "-Dlog4j2.level=ERROR", "-cp", f"{jars()}/*", *map(str, arguments)]


@functools.cache
def _archived_classes() -> Sequence[str]:
    """Return the flags for an archive of Kafka's classes, which halves the start of a JVM; the first call makes it.

    Java ignores an archive that does not fit its version or class path. While another process makes the archive, and
    with jars of COTERIE_KAFKA_LIBS, there is none.
    """
    archive = _cache().with_name(f"kafka-{VERSION}.jsa")
    if jars() != _cache():
        return ()
    if not archive.exists():
        with archive.with_suffix(".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return ()
            new = archive.with_suffix(".new")
            with ApacheKafka(flags=(*QUICK, f"-XX:ArchiveClassesAtExit={new}", "-Xlog:disable")) as kafka:
                kafka.stop()
            new.rename(archive)
    return (f"-XX:SharedArchiveFile={archive}", "-Xlog:disable")


class ApacheKafka:
    """One KRaft node on free ports of 127.0.0.1, with a data directory of its own that lives as long as the `with`.

    It starts fast. For a benchmark, give it the flags of a server: `flags=SERVER`. It logs warnings, and what
    `loggers` ask for: `{"org.apache.kafka.coordinator.group": "INFO"}`. It has the newest level of each feature, and of
    those in `features` the level that is given.
    """

    cluster_id = CLUSTER_ID

    def __init__(
        self,
        properties: Mapping[str, str] | None = None,
        *,
        heap: str = "512m",
        flags: Sequence[str] | None = None,
        loggers: Mapping[str, str] | None = None,
        features: Mapping[str, int] | None = None,
    ) -> None:
        self.properties = {**_PROPERTIES, **(properties or {})}
        self.loggers = loggers or {}
        self.features = features or {}
        self.heap = heap
        self.flags = flags
        self.port, self._controller_port = free_ports(2)
        self._home: tempfile.TemporaryDirectory[str] | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def home(self) -> Path:
        assert self._home, "ApacheKafka lives inside a `with`"
        return Path(self._home.name)

    @property
    def data_dir(self) -> Path:
        """Where the partitions are: `data_dir / "__consumer_offsets-0"`."""
        return self.home / "data"

    @property
    def log(self) -> Path:
        """What the node writes to stdout and stderr, of all its runs."""
        return self.home / "server.log"

    @property
    def pid(self) -> int:
        assert self._process, "Kafka is not running"
        return self._process.pid

    def __enter__(self) -> Self:
        self._home = tempfile.TemporaryDirectory(prefix="apache-kafka-")
        try:
            self._write_properties()
            config = self.home / "server.properties"
            options: list[str | Path] = ["-t", self.cluster_id, "-c", config, *self._format_options()]
            run_java("kafka.tools.StorageTool", "format", *options, flags=QUICK if self.flags else None)
            self.start()
        except BaseException:
            self._home.cleanup()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()  # nobody reads the directory after this, so it need not be left in order
        assert self._home
        self._home.cleanup()

    def start(self) -> None:
        """Start, or start again on what the last run left behind; returns when the node answers."""
        assert self._process is None, "Kafka is running already"
        command = java_command("kafka.Kafka", self.home / "server.properties", heap=self.heap, flags=self.flags)
        command.insert(1, f"-Dlog4j2.configurationFile={self.home}/log4j2.properties")
        with (self.home / "server.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=self.home)
        try:
            self._wait_until_it_answers()
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Shut down in order: the log is flushed and closed."""
        if self._process:
            self._process.terminate()
            self._process.wait(STOPS_WITHIN_SECONDS)
            self._process = None

    def kill(self) -> None:
        """Kill -9: what was not flushed by Kafka itself is left to the page cache."""
        if self._process:
            self._process.kill()
            self._process.wait(STOPS_WITHIN_SECONDS)
            self._process = None

    def _listeners(self) -> Mapping[str, int]:
        """The port of each listener for clients."""
        return {"PLAINTEXT": self.port}

    def _format_options(self) -> Sequence[str]:
        """What the data directory is formatted with, besides the cluster's id."""
        return [option for name, level in self.features.items() for option in ("--feature", f"{name}={level}")]

    def _write_properties(self) -> None:
        clients = ",".join(f"{name}://127.0.0.1:{port}" for name, port in self._listeners().items())
        lines = {
            **self.properties,
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller_port}",
            "listeners": f"{clients},CONTROLLER://127.0.0.1:{self._controller_port}",
            "advertised.listeners": clients,
            "log.dirs": str(self.data_dir),
        }
        text = "".join(f"{key}={value}\n" for key, value in lines.items())
        (self.home / "server.properties").write_text(text)
        levels = (
            f"logger.{index}.name = {name}\nlogger.{index}.level = {level}\n"
            for index, (name, level) in enumerate(self.loggers.items())
        )
        (self.home / "log4j2.properties").write_text(_LOG4J2 + "".join(levels))

    def _wait_until_it_answers(self) -> None:
        assert self._process
        for _ in range(int(STARTS_WITHIN_SECONDS / PAUSE_SECONDS)):
            if self._answers():
                return
            try:
                code = self._process.wait(PAUSE_SECONDS)
            except subprocess.TimeoutExpired:
                continue
            raise RuntimeError(f"Apache Kafka ended with {code} while starting:\n{self._last_words()}")
        raise TimeoutError(
            f"Apache Kafka did not answer on {self.bootstrap} within {STARTS_WITHIN_SECONDS} s:\n{self._last_words()}"
        )

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
                connection.sendall(_API_VERSIONS_V0)
                return len(connection.recv(8)) > 0
        except OSError:
            return False

    def _last_words(self) -> str:
        return (self.home / "server.log").read_text(errors="replace")[-4000:]


_PORTS = range(10_000, 32_768)
"""Below the ports that the system gives to connections: one of these is not taken again before Kafka listens."""
_given: set[int] = set()


def free_ports(count: int) -> list[int]:
    """Return ports that are free, and that this process has not been given before."""
    found: list[int] = []
    while len(found) < count:
        port = choice(_PORTS)
        if port not in _given and _is_free(port):
            _given.add(port)
            found.append(port)
    return found


def free_ports_in_a_row(count: int) -> int:
    """Return the first of some ports that are free."""
    while True:
        (first,) = free_ports(1)
        if all(_is_free(first + more) for more in range(1, count)):
            return first


def _is_free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True
