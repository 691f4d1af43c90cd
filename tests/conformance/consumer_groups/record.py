"""Records Apache Kafka 4.3.1's answers to the cases of consumer groups, and says where our broker answers differently.

python tests/conformance/consumer_groups/record.py            # compares, and throws the answers away
python tests/conformance/consumer_groups/record.py --keep     # into recorded.txt, which `make test` replays
python tests/conformance/consumer_groups/record.py --keep --only 'mixed story*'     # these cases alone
python tests/conformance/consumer_groups/record.py --recorded # compares with recorded.txt, without Kafka
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from fnmatch import fnmatchcase
from itertools import groupby

from apache_kafka import ApacheKafka
from conformance.consumer_groups.cases import cases
from conformance.consumer_groups.compare import compare
from conformance.consumer_groups.kafka_side import PROPERTIES, KafkaBroker
from conformance.consumer_groups.mixed_cases import settings_of
from conformance.consumer_groups.playing import Playing
from conformance.consumer_groups.recording import RECORDED, read, write


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", action="store_true", help="write the answers to recorded.txt")
    parser.add_argument("--only", default="*", help="the cases whose names match; the others keep their answers")
    parser.add_argument("--recorded", action="store_true", help="compare with the answers in recorded.txt")
    chosen = parser.parse_args()
    wanted = {name: steps for name, steps in cases().items() if fnmatchcase(name, chosen.only)}
    answers = (
        {name: steps for name, steps in read().items() if name in wanted} if chosen.recorded else ask_kafka(wanted)
    )
    if chosen.keep:
        known = read() | answers
        write(RECORDED, {name: known[name] for name in cases() if name in known})
    differences = list(compare(answers))
    unexplained = [found for found, row in differences if row is None]
    for found in unexplained:
        print(found)
    count = sum(map(len, answers.values()))
    print(
        f"consumer groups: {len(answers)} cases, {count} steps: {len(differences) - len(unexplained)} explained and "
        f"{len(unexplained)} unexplained differences from Apache Kafka 4.3.1"
    )
    return bool(unexplained)


def ask_kafka(wanted: Mapping[str, list[str]]) -> dict[str, list[tuple[str, str]]]:
    """Return each step of the cases with Kafka's answer."""
    answers: dict[str, list[tuple[str, str]]] = {}
    for more, names in groupby(wanted, settings_of):
        with ApacheKafka({**PROPERTIES, **more}) as kafka:
            broker = KafkaBroker(kafka)
            for name in names:
                answers[name] = list(zip(wanted[name], Playing(broker).play(wanted[name]), strict=True))
                broker.ended()
    return answers


if __name__ == "__main__":
    sys.exit(main())
