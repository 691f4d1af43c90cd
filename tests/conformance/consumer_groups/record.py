"""Records Apache Kafka 4.3.1's answers to the cases of consumer groups, and says where our broker answers differently.

python tests/conformance/consumer_groups/record.py            # compares, and throws the answers away
python tests/conformance/consumer_groups/record.py --keep     # into recorded.txt, which `make test` replays
"""

from __future__ import annotations

import argparse
import sys
from fnmatch import fnmatchcase

from apache_kafka import ApacheKafka
from conformance.consumer_groups.cases import cases
from conformance.consumer_groups.compare import compare
from conformance.consumer_groups.kafka_side import PROPERTIES, KafkaBroker
from conformance.consumer_groups.playing import Playing
from conformance.consumer_groups.recording import RECORDED, read, write


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", action="store_true", help="write the answers to recorded.txt")
    parser.add_argument("--only", default="*", help="the cases whose names match; the others keep their answers")
    chosen = parser.parse_args()
    answers: dict[str, list[tuple[str, str]]] = {}
    with ApacheKafka(PROPERTIES) as kafka:
        broker = KafkaBroker(kafka)
        for name, steps in cases().items():
            if fnmatchcase(name, chosen.only):
                answers[name] = list(zip(steps, Playing(broker).play(steps), strict=True))
                broker.ended()
    if chosen.keep:
        known = read() | answers
        write(RECORDED, {name: known[name] for name in cases()})
    unexplained = [found for found, row in compare(answers) if row is None]
    for found in unexplained:
        print(found)
    count = sum(map(len, answers.values()))
    print(
        f"consumer groups: {len(answers)} cases, {count} steps: {len(unexplained)} differences from Apache Kafka 4.3.1"
    )
    return bool(unexplained)


if __name__ == "__main__":
    sys.exit(main())
