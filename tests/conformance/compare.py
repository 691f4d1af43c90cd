"""A transcript of Kafka's next to what our broker says, and the rows that say which differences are meant."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from conformance.hearing import Heard
from conformance.ours import OurBroker
from conformance.transcript import Transcript

__all__ = ["ELSEWHERE", "ROWS", "Difference", "Found", "alike", "compare"]


@dataclass(frozen=True)
class Difference:
    """A row of differences.toml: what is meant to differ, in which cases, and why."""

    what: str
    kafka: str
    ours: str
    why: str
    case: str
    """The name of a case, `*` standing for anything."""
    step: str
    """The request that is answered differently, `*` likewise."""
    kafka_says: str
    """What its answer contains, as it is written down; nothing: it is not answered at this point."""
    we_say: str
    field: str = ""
    """The only field that differs; none: the whole answer."""
    ends: bool = False
    """What comes after it cannot be compared."""

    def explains(self, found: Found) -> bool:
        return (
            fnmatchcase(found.case, self.case)
            and fnmatchcase(found.step, self.step)
            and _contains(found.kafka, self.kafka_says)
            and _contains(found.ours, self.we_say)
            and (not self.field or _without(found.kafka, self.field) == _without(found.ours, self.field))
        )


@dataclass(frozen=True)
class Found:
    case: str
    number: int
    step: str
    kafka: Any
    ours: Any

    def __str__(self) -> str:
        return (
            f"{self.case}\n  {self.number} {self.step}\n    Kafka: {_text(self.kafka)}\n    ours:  {_text(self.ours)}"
        )


def _text(answer: Any) -> str:
    return "" if answer is None else json.dumps(answer, separators=(",", ":"), ensure_ascii=False)


def _contains(answer: Any, wanted: str) -> bool:
    return wanted in _text(answer) if wanted else answer is None


def _without(answer: Any, field: str) -> Any:
    if isinstance(answer, list):
        return [_without(each, field) for each in answer]
    if isinstance(answer, dict):
        return {key: _without(each, field) for key, each in answer.items() if key != field}
    return answer


TABLE = Path(__file__).parent / "differences.toml"
_TABLES = tomllib.loads(TABLE.read_text())
ROWS = [Difference(**row) for row in _TABLES["recorded"]]
ELSEWHERE: list[dict[str, str]] = _TABLES["elsewhere"]
"""What no recorded case shows, and the test that holds it."""


def compare(
    broker: OurBroker, transcript: Transcript, setups: Mapping[str, Transcript]
) -> Iterator[tuple[Found, Difference | None]]:
    """Each difference, and the row that explains it; without a row, the first is the last."""
    case = transcript.case
    before = setups[case.after] if case.after else None
    steps = (*before.case.steps, *case.steps) if before else case.steps
    heard_of_kafka = [*before.heard, *transcript.heard] if before else transcript.heard
    ours = broker.play(steps, transcript.made)
    for at, (theirs, own) in enumerate(zip(heard_of_kafka, ours, strict=True)):
        in_setup = before is not None and at < len(before.heard)
        over = False
        for number in sorted({*theirs, *own}):
            pair = (theirs.get(number), own.get(number))
            if pair[0] == pair[1] or (in_setup and alike(pair[0]) == alike(pair[1])):
                continue
            found = Found(case.name, number, steps[number - 1], *pair)
            row = next((row for row in ROWS if row.explains(found)), None)
            yield found, row
            over = over or row is None or row.ends
        if over:
            return


def alike(answer: Any) -> Any:
    """Without the order of members, which follows from their ids: a setup is recorded once, and played with others."""
    if isinstance(answer, list):
        return sorted((alike(each) for each in answer), key=_text)
    if isinstance(answer, dict):
        return {key: alike(each) for key, each in answer.items()}
    return answer


def agree(some: Sequence[Heard], others: Sequence[Heard]) -> bool:
    return [alike(each) for each in some] == [alike(each) for each in others]
