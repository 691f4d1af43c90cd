"""Our broker answers the requests of consumer groups as Apache Kafka 4.3.1 was recorded to, but for the meant rows."""

from __future__ import annotations

from functools import cache

from conformance.consumer_groups.cases import cases
from conformance.consumer_groups.compare import ROWS, Found, compare
from conformance.consumer_groups.recording import read


@cache
def differences() -> list[tuple[Found, dict[str, str] | None]]:
    return list(compare(read()))


def test_we_answer_as_kafka_did() -> None:
    """Rules K1 to K26 in every state, wrong in one and in two ways."""
    unexplained = [str(found) for found, row in differences() if row is None]
    assert not unexplained, f"{len(unexplained)} of them:\n" + "\n".join(unexplained[:5])


def test_what_was_recorded_is_what_the_tables_ask() -> None:
    recorded = {name: [step for step, _ in steps] for name, steps in read().items()}
    assert recorded == cases(), "record again: make conformance KEEP=1"


def test_a_difference_that_is_meant_is_met() -> None:
    """A row that explains nothing would hide the next mistake."""
    met = [row["what"] for _, row in differences() if row is not None]
    assert {row["what"] for row in ROWS} == set(met)


def test_thousands_of_steps_were_recorded() -> None:
    assert sum(map(len, read().values())) > 60_000
