"""Put each defect into a copy of the sources and see which defence notices it: `make mutants`, at the end of which it
says which defence caught how many, and 'N passed, M failed'.

ONLY="10 11" tries those of these rules, ONLY=sim those that the simulator has to find, each within so many seeds, and
ONLY=flush those whose words have this one.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from mutants import MUTANTS, Mutant
from mutants.defences import caught_by

SEEDS = 100
JOBS = 2


def is_wanted(mutant: Mutant, words: list[str]) -> bool:
    return not words or mutant.rule in words or any(word in mutant.what.split() for word in words)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="only those of these rules, or that are described by these words")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="so many for each that the simulator has to find")
    parser.add_argument("--jobs", type=int, default=JOBS)
    given = parser.parse_args()
    chosen = [mutant for mutant in MUTANTS if is_wanted(mutant, given.words)]
    defences: Counter[str] = Counter()
    with ThreadPoolExecutor(given.jobs) as pool:
        found = pool.map(partial(caught_by, seeds=given.seeds), chosen)
        for number, (mutant, caught) in enumerate(zip(chosen, found, strict=True), 1):
            verdict = f"{caught.defence}, {caught.where}" if caught else "SURVIVED"
            print(f"[{number}/{len(chosen)}] {mutant.rule}, {mutant.what}: {verdict}", flush=True)
            if caught and caught.detail:
                print(f"    {caught.detail[:160]}", flush=True)
            defences[caught.defence if caught else ""] += 1
    survivors = defences.pop("", 0)
    print("caught by: " + ", ".join(f"{defence} {count}" for defence, count in defences.most_common()))
    print(f"{len(chosen) - survivors} passed, {survivors} failed")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
