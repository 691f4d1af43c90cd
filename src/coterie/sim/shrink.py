"""Make a failure small: leave steps out while the same invariant still breaks.

Luck is drawn by name, so that a step which is left out does not change what befalls the others much. First halves, then
quarters, then one by one; at last the run ends soon after it broke.
"""

from __future__ import annotations

from dataclasses import replace

from coterie.sim.run import Outcome, simulate

__all__ = ["shrink"]

MOST_RUNS = 150


def shrink(found: Outcome) -> Outcome:
    best, runs = found, 0
    size = max(len(best.plan.kept) // 2, 1)
    while True:
        numbers = [number for number, _ in best.plan.kept]
        was = len(numbers)
        for at in range(0, was, size):
            if runs >= MOST_RUNS:
                return best
            some = [number for number in numbers[at : at + size] if number not in best.plan.dropped]
            if not some or len(some) == len(best.plan.kept):
                continue
            tried = simulate(best.plan.without(some))
            runs += 1
            if tried.broken == best.broken:
                best = tried
        if size > 1:
            size = max(size // 2, 1)
        elif len(best.plan.kept) == was:
            return _shorter(best)


def _shorter(best: Outcome) -> Outcome:
    """What was to happen after it broke is of no interest."""
    late = [number for number, step in best.plan.kept if step.at_ms > best.at_ms]
    if not late:
        return best
    tried = simulate(replace(best.plan, dropped=best.plan.dropped | frozenset(late)))
    return tried if tried.broken == best.broken else best
