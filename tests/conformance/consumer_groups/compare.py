"""What our broker answers next to what Kafka answered, and the differences that are meant."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from conformance.compare import TABLE
from conformance.consumer_groups.our_side import OurBroker
from conformance.consumer_groups.playing import Playing
from conformance.consumer_groups.recording import Answers

ROWS: list[dict[str, str]] = tomllib.loads(TABLE.read_text()).get("consumer_group", [])
_CASES_OF_A_BROKER = 100
"""Each leaves a group behind, and lists of groups get longer."""


class Found(NamedTuple):
    case: str
    step: str
    kafka: str
    ours: str

    def __str__(self) -> str:
        return f"{self.case}\n  {self.step}\n  Kafka: {self.kafka}\n  ours:  {self.ours}"


def compare(answers: Answers) -> Iterator[tuple[Found, dict[str, str] | None]]:
    """Return the first difference of each case, with the row that explains it. What follows from it is not compared."""
    for number, (case, steps) in enumerate(answers.items()):
        if number % _CASES_OF_A_BROKER == 0:
            broker = OurBroker()
        played = Playing(broker).play([step for step, _ in steps])
        for (step, kafka), ours in zip(steps, played, strict=True):
            if kafka != ours:
                found = Found(case, step, kafka, ours)
                yield found, explained(found, ROWS)
                break


def explained(found: Found, rows: Iterable[dict[str, Any]]) -> dict[str, str] | None:
    for row in rows:
        if fnmatchcase(found.case, row["case"]) and fnmatchcase(found.step, row["step"]):
            return row
    return None
