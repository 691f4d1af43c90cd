"""Put each defect into a copy of the sources and see which defence notices it: `make mutants`, at the end of which it
says which defence caught how many, and 'N passed, M failed'.

ONLY="10 11" tries those of these rules, ONLY=sim those that the simulator has to find, each within so many seeds, and
ONLY=flush those whose words have this one. What noticed a defect the last time is tried first; --fresh forgets that,
--keep writes it down.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic  # noqa: TID251  how long a person waits

from mutants import MUTANTS, Mutant
from mutants.defences import Caught, caught_by

SEEDS = 100
JOBS = 2
NOTICED = Path(__file__).with_name("noticed.json")


def is_wanted(mutant: Mutant, words: list[str]) -> bool:
    return not words or mutant.rule in words or any(word in mutant.what.split() for word in words)


def keep(noticed: dict[str, str]) -> None:
    rows = {mutant.name: noticed[mutant.name] for mutant in MUTANTS if mutant.name in noticed}
    NOTICED.write_text(json.dumps(rows, indent=1) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="only those of these rules, or that are described by these words")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="so many for each that the simulator has to find")
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--fresh", action="store_true", help="try everything, as if nothing was known")
    parser.add_argument("--keep", action="store_true", help=f"write to {NOTICED.name} what noticed each")
    given = parser.parse_args()
    chosen = [mutant for mutant in MUTANTS if is_wanted(mutant, given.words)]
    noticed: dict[str, str] = json.loads(NOTICED.read_text()) if NOTICED.exists() else {}
    hints = {} if given.fresh else noticed
    defences: Counter[str] = Counter()
    survivors: list[Mutant] = []
    began = monotonic()

    def attempt(mutant: Mutant) -> tuple[Caught | None, float]:
        start = monotonic()
        return caught_by(mutant, given.seeds, hints.get(mutant.name)), monotonic() - start

    with ThreadPoolExecutor(given.jobs) as pool:
        for number, (mutant, (caught, took_s)) in enumerate(zip(chosen, pool.map(attempt, chosen), strict=True), 1):
            verdict = f"{caught.defence}, {caught.where}" if caught else "SURVIVED"
            print(f"[{number}/{len(chosen)}] {mutant.name}: {verdict} ({took_s:.0f} s)", flush=True)
            if caught is None:
                survivors.append(mutant)
                continue
            if caught.detail:
                print(f"    {caught.detail[:160]}", flush=True)
            defences[caught.defence] += 1
            noticed[mutant.name] = caught.hint
            if given.keep:
                keep(noticed)
    for mutant in survivors:
        print(f"SURVIVED: {mutant.name}")
    print("caught by: " + ", ".join(f"{defence} {count}" for defence, count in defences.most_common()))
    print(
        f"{len(chosen) - len(survivors)} passed, {len(survivors)} failed, "
        f"{given.seeds} seeds at most for each, {monotonic() - began:.0f} s"
    )
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
