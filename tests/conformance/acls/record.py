"""Asks Apache Kafka 4.3.1 every API with every right again, and says where our broker answers differently.

python tests/conformance/acls/record.py             # compares; `make conformance` runs it
python tests/conformance/acls/record.py --keep      # and replaces recorded.txt, which `make test` replays
python tests/conformance/acls/record.py --only Metadata
"""

from __future__ import annotations

import argparse
import sys
import time

from conformance.acls.cells import REQUESTS
from conformance.acls.compare import differences
from conformance.acls.kafka_side import KafkaBroker, secured_kafka
from conformance.acls.our_side import OurBroker
from conformance.acls.recording import RECORDED, read, write


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--keep", action="store_true", help="replace what is recorded")
    arguments.add_argument("--only", default="", help="requests whose name contains this")
    chosen = arguments.parse_args()
    began = time.monotonic()
    with secured_kafka() as kafka:
        broker = KafkaBroker(kafka)
        broker.prepare()
        answers = broker.ask_all(chosen.only)
        broker.close()
    if chosen.keep:
        kept = {**(read(RECORDED) if chosen.only else {}), **answers}
        write(RECORDED, {request.name: kept[request.name] for request in REQUESTS if request.name in kept})
    cells = sum(map(len, answers.values()))
    print(f"{len(answers)} requests, {cells} cells recorded in {time.monotonic() - began:.0f} s", flush=True)
    ours = OurBroker()
    ours.prepare()
    found = differences(answers, ours.ask_all(chosen.only))
    unexplained = [one for one in found if one.reason is None]
    for one in unexplained:
        print(one)
    print(f"{cells} cells: {len(unexplained)} differences from Apache Kafka 4.3.1, and {len(found) - len(unexplained)} "
          "that are meant")  # fmt: skip
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
