"""A terminal in which a reader types commands: one that ends at once, or one that goes on beside the others."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path

__all__ = ["Terminal", "as_read", "pattern_of"]

ENDS_WITHIN_S = 560.0
SAYS_WITHIN_S = 60.0


def pattern_of(shown: str) -> re.Pattern[str]:
    """What is shown, where `...` stands for anything; a blank at the end of a line does not count."""
    lines = [line.rstrip() for line in shown.strip("\n").splitlines()]
    return re.compile(r"[ ]*\n".join(".*?".join(map(re.escape, line.split("..."))) for line in lines), re.DOTALL)


def as_read(said: str, port: int) -> str:
    """With the ports that a reader has."""
    for more in range(3):
        said = said.replace(f":{port + more}", f":{9092 + more}")
    return said


class Terminal:
    def __init__(self, folder: Path, environment: Mapping[str, str], port: int) -> None:
        self._folder = folder
        self._environment = environment
        self._port = port
        self._process: subprocess.Popen[bytes] | None = None
        self._said = bytearray()
        self._news = threading.Condition()
        self._seen = 0

    def runs(self, command: str) -> str:
        """To its end; what it said on stdout and stderr."""
        process = self._started(command)
        try:
            said, _ = process.communicate(timeout=ENDS_WITHIN_S)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)  # whatever it has started, too
            process.communicate()  # and its pipe is closed
            raise
        assert process.returncode == 0, f"{command}\nended with {process.returncode}:\n{self._readable(said)}"
        return self._readable(said)

    def begins(self, command: str) -> None:
        assert self._process is None, f"this terminal is busy; {command} needs another"
        self._process = self._started(f"exec {command}")
        threading.Thread(target=self._listens, args=(self._process,), daemon=True).start()

    def shows(self, expected: str) -> None:
        """Sooner or later, after what it showed before."""
        pattern = pattern_of(expected)

        def found() -> bool:
            match = pattern.search(self._readable(bytes(self._said)), self._seen)
            if match:
                self._seen = match.end()
            return match is not None

        with self._news:
            assert self._news.wait_for(found, SAYS_WITHIN_S), (
                f"expected:\n{expected}\nwas shown:\n{self._readable(bytes(self._said))[self._seen :]}"
            )

    def is_interrupted(self) -> None:
        """^C: what was begun ends in order."""
        if self._process is None:
            return
        os.killpg(self._process.pid, signal.SIGINT)
        try:
            status = self._process.wait(ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            raise
        finally:
            self._process = None
        assert status in (0, 128 + signal.SIGINT, -signal.SIGINT), (
            f"ended with {status}:\n{self._readable(bytes(self._said))}"
        )

    def _started(self, command: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            ["bash", "-c", command],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def _listens(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        with process.stdout as stream:
            for line in stream:
                with self._news:
                    self._said += line
                    self._news.notify_all()

    def _readable(self, said: bytes) -> str:
        return as_read(said.decode(errors="replace"), self._port)
