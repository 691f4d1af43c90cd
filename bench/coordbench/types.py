"""What every part says: the errors of a target, the clock, what a script and a row are."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any

clock = time.perf_counter
Script = Generator[Any, bytes, Any]
Row = dict[str, Any]

REBALANCE_IN_PROGRESS = 27
MEMBER_ID_REQUIRED = 79
NOT_READY = {14, 15, 16}  # coordinator loading, not available, not coordinator
TOPIC_EXISTS = 36
GROUP_NOT_FOUND = 69


class MisbehavedError(Exception):
    """The target answered wrongly, late, or not at all."""


class ErrorReplyError(MisbehavedError):
    """The target answered with an error code."""

    def __init__(self, api: str, code: int) -> None:
        super().__init__(f"{api} answered error {code}")
        self.code = code
