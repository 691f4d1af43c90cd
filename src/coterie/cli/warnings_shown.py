"""Warnings of a client on standard error, for commands that are one."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["warnings_shown"]


class _Handler(logging.Handler):
    def __init__(self, say: Callable[[str], None], hides: Callable[[object], bool]) -> None:
        super().__init__(logging.WARNING)
        self._say = say
        self._hides = hides

    def emit(self, record: logging.LogRecord) -> None:
        if not self._hides(getattr(record, "event", None)):
            self._say(record.getMessage().partition("] ")[2])


@contextmanager
def warnings_shown(logger: str, say: Callable[[str], None], hides: Callable[[object], bool]) -> Iterator[None]:
    """Hand each warning to `say`, without the name of the client; `hides` names events the command tells by itself."""
    handler = _Handler(say, hides)
    log = logging.getLogger(logger)
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
