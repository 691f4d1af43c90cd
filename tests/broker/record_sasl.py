"""Records what Apache Kafka 4.3.1 answers to each SASL dialogue: `python tests/broker/record_sasl.py`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from broker.sasl_dialogues import DIALOGUES, talk_to
from secured_kafka import SHARED, SecuredKafka

RECORD = Path(__file__).with_name("kafka_sasl.json")


def heard_from(address: str) -> dict[str, list[Any]]:
    """What each dialogue hears from a broker."""
    found = {}
    for name, (_, say) in DIALOGUES.items():
        with talk_to(address) as talk:
            say(talk)
            found[name] = talk.heard
    return found


def main() -> None:
    with SecuredKafka(SHARED) as kafka:
        found = heard_from(kafka.address_of("SASL_PLAINTEXT"))
    rows = ",\n".join(f" {json.dumps(name)}: {json.dumps(heard)}" for name, heard in sorted(found.items()))
    RECORD.write_text(f"{{\n{rows}\n}}\n")


if __name__ == "__main__":
    main()
