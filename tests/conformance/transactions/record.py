"""Records Apache Kafka 4.3.1's answers to each request in each state of a transaction, and where ours differ.

python tests/conformance/transactions/record.py            # compares, and throws the answers away
python tests/conformance/transactions/record.py --keep     # into recorded.txt, which `make test` replays
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from apache_kafka import ApacheKafka
from conformance.transactions.cells import all_cells, ask
from conformance.transactions.recording import RECORDED, read, write
from conformance.transactions.sides import PROPERTIES, KafkaSide, OurSide


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", action="store_true", help="write the answers to recorded.txt")
    parser.add_argument("--recorded", action="store_true", help="compare with the answers in recorded.txt")
    chosen = parser.parse_args()
    if chosen.recorded:
        answers = read(RECORDED)
    else:
        with ApacheKafka(PROPERTIES) as kafka:
            side = KafkaSide(kafka)
            answers = {cell: ask(side, number, *cell) for number, cell in enumerate(all_cells())}
    if chosen.keep:
        write(RECORDED, answers)
    ours = OurSide()
    different = 0
    for number, (cell, theirs) in enumerate(answers.items()):
        mine = ask(ours, number, *cell)
        if mine != theirs:
            different += 1
            print(f"{cell[0]}: {cell[1]}\n  Kafka {theirs}\n  ours  {mine}")
    print(f"transactions: {len(answers)} cells, {different} differences from Apache Kafka 4.3.1")
    return bool(different)


if __name__ == "__main__":
    sys.exit(main())
