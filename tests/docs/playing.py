"""Plays a page as its reader would: in a directory of its own, block after block.

A reader has port 9092 to himself and the clone around him. Here the port is another one, told by the environment and
put in place of 9092 wherever the page names it. If the page starts no broker, there is one.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import io
import os
import re
import sys
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, chdir, contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import duckdb

from apache_kafka import free_ports_in_a_row
from coterie import Broker
from coterie.stories import check_story
from docs.blocks import ROOT, Block
from docs.terminal import Terminal, as_read, pattern_of

__all__ = ["play"]

PROMISED = re.compile(r"#  ?-> (.*)$", re.MULTILINE)
"""print(...)  # -> what it prints"""
TYPED = re.compile(r"\$ ((?:.*\\\n)*.*)\n")
"""To the end of the line, or of the first that does not end with a backslash."""
PORTS = re.compile(r"\b909[234]\b")
BESIDE = ("examples", "bench", "tools", "docs", "src", "tests")


def play(blocks: Sequence[Block], folder: Path) -> None:
    page = Page(blocks, folder)
    with page.as_the_reader_has_it():
        for block in blocks:
            if block.not_run:
                continue
            try:
                page.plays(block)
            except BaseException as error:
                error.add_note(f"in {block}")
                raise


class Page:
    def __init__(self, blocks: Sequence[Block], folder: Path) -> None:
        self._folder = folder
        self._port = free_ports_in_a_row(3)
        self._serves = any(
            "coterie serve" in block.text for block in blocks if block.language == "console" and not block.not_run
        )
        self._environment = os.environ | {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "COTERIE_BOOTSTRAP": f"127.0.0.1:{self._port}",
            "COTERIE_LISTENERS": f"PLAINTEXT://127.0.0.1:{self._port}",
            "COLUMNS": "120",
            "NO_COLOR": "1",
            "PYSPARK_PYTHON": sys.executable,
        }
        self._terminals: dict[str, Terminal] = {}
        self._namespace: dict[str, Any] = {"__name__": "__main__"}
        self._loop = asyncio.new_event_loop()
        self._printed = ""
        self._shower: Terminal | None = None

    @contextmanager
    def as_the_reader_has_it(self) -> Iterator[None]:
        (self._folder / ".venv").symlink_to(Path(sys.executable).parent.parent)
        for name in BESIDE:
            (self._folder / name).symlink_to(ROOT / name)
        with ExitStack() as stack:
            stack.enter_context(chdir(self._folder))
            stack.callback(self._loop.close)
            if not self._serves:
                # Spark has a task for each partition of the offsets
                settings = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 4}
                stack.enter_context(Broker(settings=settings, port=self._port))
            stack.callback(self._leaves)
            yield

    def plays(self, block: Block) -> None:
        if block.before:
            self._terminal("").runs(block.before)
        if block.file:
            (self._folder / block.file).write_text(self._here(block.text))
        else:
            getattr(self, f"_{block.language}")(block)

    def _python(self, block: Block) -> None:
        text = self._here(block.text)
        code = compile(text, str(block), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        with redirect_stdout(io.StringIO()) as out:
            if code.co_flags & inspect.CO_COROUTINE:
                self._loop.run_until_complete(eval(code, self._namespace))
            else:
                exec(code, self._namespace)
        self._printed, self._shower = as_read(out.getvalue(), self._port), None
        at = 0
        for promise in PROMISED.findall(block.text):
            found = pattern_of(promise).search(self._printed, at)
            assert found, f"{promise!r} was not printed, but this:\n{self._printed[at:]}"
            at = found.end()

    def _console(self, block: Block) -> None:
        terminal = self._terminal(block.terminal)
        for part in re.split(r"^(?=\$ |\^C)", block.text, flags=re.MULTILINE):
            if not part.strip():
                continue
            if part.startswith("^C"):
                terminal.is_interrupted()
                continue
            typed = TYPED.match(part)
            assert typed, f"what is printed stands below what is typed: {part!r}"
            command, shown = typed[1], part[typed.end() :]
            if block.terminal:
                terminal.begins(self._here(command.strip()))
                self._shower = terminal
                if shown.strip():
                    terminal.shows(shown)
            else:
                self._printed, self._shower = terminal.runs(self._here(command)), None
                if shown.strip():
                    self._prints(shown)

    def _terminal(self, name: str) -> Terminal:
        return self._terminals.setdefault(name, Terminal(self._folder, self._environment, self._port))

    def _output(self, block: Block) -> None:
        shower = self._terminal(block.terminal) if block.terminal else self._shower
        if shower is None:
            self._prints(block.text)
        else:
            shower.shows(block.text)

    def _prints(self, shown: str) -> None:
        printed = "\n".join(line.rstrip() for line in self._printed.strip("\n").splitlines())
        assert pattern_of(shown).fullmatch(printed), f"expected:\n{shown}\nwas printed:\n{printed}"

    @staticmethod
    def _sql(block: Block) -> None:
        duckdb.connect().execute(block.text).fetchall()

    @staticmethod
    def _toml(block: Block) -> None:
        tomllib.loads(block.text)

    @staticmethod
    def _text(block: Block) -> None:
        if block.text.startswith("at_ms"):
            check_story(block.text)

    def _leaves(self) -> None:
        for terminal in reversed(self._terminals.values()):
            terminal.is_interrupted()

    def _here(self, text: str) -> str:
        """What the page says, as it is to be typed here."""
        text = PORTS.sub(lambda found: str(self._port + int(found[0]) - 9092), text)
        return text.replace("/data/", f"{self._folder}/data/").replace("/path/to/the/clone", str(ROOT))
