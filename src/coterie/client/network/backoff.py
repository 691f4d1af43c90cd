"""How long to wait before trying again: twice as long each time, up to a limit, and never all at once."""

from __future__ import annotations

__all__ = ["JITTER", "backoff_ms"]

JITTER = 0.2
_MOST_DOUBLINGS = 32


def backoff_ms(failures: int, first_ms: int, most_ms: int, chance: float) -> float:
    """After so many failures, of which there was at least one. `chance` is a random number from 0 to 1.

    As Kafka's ExponentialBackoff: the limit holds before the jitter of a fifth, which is so as much as a fifth above.
    """
    doublings = min(failures - 1, _MOST_DOUBLINGS)
    plain = min(first_ms << doublings, max(first_ms, most_ms))
    return plain * (1 - JITTER + 2 * JITTER * chance)
