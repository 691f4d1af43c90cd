"""The back-off between retries: it doubles each time, up to a limit, with jitter."""

from __future__ import annotations

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
