"""Start and stop a real ZooKeeper server, which is among the jars of pyspark. It needs Java.

with ZooKeeper(directory) as zookeeper:
    client = KazooClient(zookeeper.address)

It listens on a free port of 127.0.0.1 and keeps everything in the directory it is given.
"""

from __future__ import annotations

import socket
import subprocess
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Self

from coterie.errors import CoterieError
from coterie.extras import how_to_install
from coterie.java import find_java, why_no_java

HOST = "127.0.0.1"
PATIENCE_S, PAUSE_S = 60.0, 0.05
TICK_MS = 500
"""Sessions last from two to twenty ticks."""
MAIN = "org.apache.zookeeper.server.ZooKeeperServerMain"
FLAGS = (
    "-Xmx256m",
    "-XX:TieredStopAtLevel=1",  # nothing here runs long enough for more
    "-XX:+UseSerialGC",
    "-Dzookeeper.4lw.commands.whitelist=mntr",
    "-Dzookeeper.admin.enableServer=false",
)


def why_no_zookeeper() -> str | None:
    """Return why ZooKeeper cannot run on this machine, or None."""
    no_java = why_no_java("ZooKeeper")
    if no_java is not None:
        return no_java
    if _jars() is None:
        return f"ZooKeeper is taken from pyspark's jars, which are not installed: {how_to_install('history')}"
    if find_spec("kazoo") is None:
        return f"the ZooKeeper client kazoo is not installed: {how_to_install('history')}"
    return None


def _jars() -> Path | None:
    found = find_spec("pyspark")
    if found is None or not found.submodule_search_locations:
        return None
    jars = Path(found.submodule_search_locations[0]) / "jars"
    return jars if any(jars.glob("zookeeper-*.jar")) else None


class ZooKeeper:
    def __init__(self, directory: Path) -> None:
        reason = why_no_zookeeper()
        if reason is not None:
            raise CoterieError(reason)
        self._directory = directory
        self._log = directory / "zookeeper.log"
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def __enter__(self) -> Self:
        java, jars = find_java(), _jars()
        assert java is not None
        self._directory.mkdir(parents=True, exist_ok=True)
        self.port = _free_port()
        settings = {
            "tickTime": TICK_MS,
            "dataDir": self._directory / "data",
            "clientPort": self.port,
            "clientPortAddress": HOST,
            "maxClientCnxns": 0,
        }
        config = self._directory / "zookeeper.cfg"
        config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603  the Java that is here
                [java, *FLAGS, "-cp", f"{jars}/*", MAIN, str(config)], stdout=log, stderr=log, start_new_session=True
            )
        try:
            self._wait()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._stop()

    def _stop(self) -> None:
        if self._process is not None:
            self._process.kill()  # its data is not needed any more
            self._process.wait()
            self._process = None

    def _wait(self) -> None:
        assert self._process is not None
        give_up = time.monotonic() + PATIENCE_S  # noqa: TID251  this is the real world
        while "zk_server_state" not in self.command("mntr"):  # it listens before it serves
            if self._process.poll() is not None or time.monotonic() > give_up:  # noqa: TID251
                raise CoterieError(f"ZooKeeper did not start: {self._log.read_text(errors='replace')[-1_500:]}")
            time.sleep(PAUSE_S)

    def command(self, word: str) -> str:
        """Return the answer to a four-letter command, or an empty string if the server does not listen."""
        with suppress(OSError), socket.create_connection((HOST, self.port), timeout=5) as connection:
            connection.sendall(word.encode())
            parts = []
            while part := connection.recv(65_536):
                parts.append(part)
            return b"".join(parts).decode()
        return ""

    def counts(self) -> dict[str, int]:
        """Return the server's counters (`mntr`). zk_sum_node_children_watch_count counts notifications of children."""
        rows = (line.split("\t") for line in self.command("mntr").splitlines())
        return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdigit()}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port
