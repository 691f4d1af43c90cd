"""Python source in the making: the lines of one function, and the objects that they use.

A reader or a writer that walks over a description of its message spends most of its time on the walk. So the walk is
taken once, and leaves behind the function one would have written by hand (`reader_source.py`, `writer_source.py`). Its
text comes from our own message classes alone: no byte from the wire has a part in it. `python -m coterie.protocol.apis
fetch 17` prints those of one API and version.
"""

from __future__ import annotations

from functools import cache
from struct import Struct
from typing import Any

SHORT = 128
"""Lengths below this are prepared, or read in place."""

_LITERALS = (bool, int, str, bytes, type(None))


@cache
def shape(layout: str) -> Struct:
    """Return the struct of numbers side by side, big-endian."""
    return Struct(">" + layout)


class Repeated(dict[int, Struct]):
    """`repeated("i")[3]` is the shape of three int32."""

    def __init__(self, code: str) -> None:
        self._code = code

    def __missing__(self, times: int) -> Struct:
        made = Struct(f">{times}{self._code}")
        if times < SHORT:
            self[times] = made
        return made


repeated = cache(Repeated)


class Source:
    """`with source.block("if x:"): source.line("y = 1")`."""

    def __init__(self, signature: str) -> None:
        self._name = signature.partition("(")[0]
        self._lines = [f"def {signature}:"]
        self._indent = "    "
        self._objects: dict[str, Any] = {}

    def line(self, text: str) -> None:
        self._lines.append(self._indent + text)

    def block(self, head: str) -> Source:
        self.line(head)
        self._indent += "    "
        return self

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        self._indent = self._indent[4:]

    def use(self, thing: Any, name: str) -> str:
        """Return the object's name in the source: a plain value as it is written, else `name` or a variant of it."""
        if type(thing) in _LITERALS or thing == ():
            return repr(thing)
        name = name.replace(" ", "_").replace("?", "t")  # the struct code of a bool
        while (used := self._objects.setdefault(name, thing)) is not thing and used != thing:
            name += "_"
        return name

    def __str__(self) -> str:
        lines = self._lines if len(self._lines) > 1 else [*self._lines, "    pass"]  # some messages have no fields
        return "\n".join(lines) + "\n"

    def function(self, what: str) -> Any:
        """Compile the source, as dataclasses and named tuples do; `what` is its file in a traceback."""
        names = dict(self._objects)
        exec(compile(str(self), f"<{what}>", "exec"), names)  # noqa: S102 - the head of this file says what is in it
        return names[self._name]
