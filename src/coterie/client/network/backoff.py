"""Retries: which errors are tried again, and the back-off before, which doubles up to a limit, with jitter. No I/O."""

from __future__ import annotations

from coterie.errors import STALE_METADATA, KafkaError, RequestTimedOutError

JITTER = 0.2
_MOST_DOUBLINGS = 32
CONCURRENT_BACKOFF_MS = 20
"""The pause after CONCURRENT_TRANSACTIONS, as in Java: the last transaction is completed within milliseconds."""


def backoff_ms(failures: int, first_ms: int, most_ms: int, chance: float) -> float:
    """Return how long to wait after `failures` failures, at least 1. `chance` is a random number from 0 to 1.

    As Kafka's ExponentialBackoff: `most_ms` caps the pause before the jitter of ±20 %, so that a pause can be up to
    1.2 times `most_ms`.
    """
    doublings = min(failures - 1, _MOST_DOUBLINGS)
    plain = min(first_ms << doublings, max(first_ms, most_ms))
    return plain * (1 - JITTER + 2 * JITTER * chance)


class Retries:
    """The failed attempts of one operation."""

    def __init__(self) -> None:
        self.failures = 0
        self.last: KafkaError | None = None
        """The error of the last attempt."""

    def again(self, error: KafkaError) -> bool:
        """An attempt has failed: return whether there is another one."""
        if not error.retriable:
            return False
        self.failures += 1
        self.last = error
        return True

    @property
    def needs_metadata(self) -> bool:
        """True if the last attempt asked a node that leads or coordinates no longer what it was asked for."""
        return self.last is not None and self.last.code in STALE_METADATA

    def timed_out(self, what: str, within_ms: float) -> RequestTimedOutError:
        """Return the error of an operation whose time has ended; `what` begins it."""
        return RequestTimedOutError(gave_up(what, self.last, within_ms))


def gave_up(what: str, last: KafkaError | None, within_ms: float) -> str:
    """Say that something was not done in time: `what`, unless the last error says it all, and that error."""
    said = "the cluster did not answer" if last is None else str(last)
    return f"{what}{': ' if what else ''}{said} (gave up after {within_ms / 1000:g} s)"
