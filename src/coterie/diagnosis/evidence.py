"""Statements with their evidence: what is said, who says it, and how sure that is.

A source makes claims. A statement is the set of all claims about one thing: its value is the claim of the strongest
grade, and a claim that does not agree with it is a disagreement, which is shown. No claim means that it is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any, Generic, TypeVar

T = TypeVar("T")

UNKNOWN_TEXT = "unknown"
"""How an unknown value is shown, in tables, JSON and pages."""


class Grade(StrEnum):
    """The strength of evidence, by how its source knows it; the strongest first."""

    OBSERVED = "observed"
    """The coordinator itself recorded it: the facts of a Coterie broker."""
    LOGGED = "logged"
    """A line in the log of a broker says it."""
    DERIVED = "derived"
    """It follows from the records of `__consumer_offsets`."""
    SAMPLED = "sampled"
    """It was seen when the group was described; what happened between two samples is not seen."""
    REPORTED = "reported"
    """A client said it about itself (KIP-714)."""
    INFERRED = "inferred"
    """It is probable; the evidence says on what it rests."""


STRENGTH: Mapping[Grade, int] = {grade: index for index, grade in enumerate(Grade)}
"""0 is the strongest."""


class Bound(StrEnum):
    """The kind of a number: the value itself, or a limit of it."""

    EXACT = ""
    AT_LEAST = "at least"
    AT_MOST = "at most"


@dataclass(frozen=True, slots=True)
class Evidence:
    """The source of a claim."""

    grade: Grade
    source: str
    """The place: `server.log:120`, `__consumer_offsets-7@4711`, `describe`, `__coterie_facts`."""
    at_ms: int | None = None
    """The time of the line, the record or the sample."""
    says: str = ""
    """The text of the source or, for an inference, its grounds."""

    @property
    def order(self) -> tuple[int, int, str, str]:
        """Return the key by which evidence is sorted: the strongest first, then the earliest."""
        return STRENGTH[self.grade], self.at_ms if self.at_ms is not None else 1 << 62, self.source, self.says

    def to_json(self) -> dict[str, Any]:
        return {"grade": str(self.grade), "source": self.source, "at_ms": self.at_ms, "says": self.says}


@dataclass(frozen=True, slots=True)
class Claim(Generic[T]):
    """A value that one source gives."""

    value: T
    evidence: Evidence
    bound: Bound = Bound.EXACT

    @property
    def order(self) -> tuple[Any, ...]:
        """Return the key by which claims are sorted. An exact value comes before a limit of the same grade."""
        strength, *rest = self.evidence.order
        return strength, self.bound is not Bound.EXACT, *rest, repr(self.value)


Agrees = Callable[[Claim[T], Claim[T]], bool]
"""Whether a weaker claim can be true if the stronger one is. It gets the stronger one first."""


def same_value(strong: Claim[Any], weak: Claim[Any]) -> bool:
    return bool(strong.value == weak.value)


def near(slack: int) -> Agrees[int]:
    """Return a rule for numbers: exact values may differ by `slack`, limits must not exclude each other."""

    def agree(strong: Claim[int], weak: Claim[int]) -> bool:
        low = {Bound.AT_LEAST, Bound.EXACT}
        high = {Bound.AT_MOST, Bound.EXACT}
        too_low = strong.bound in high and weak.bound in low and weak.value > strong.value + slack
        too_high = strong.bound in low and weak.bound in high and weak.value < strong.value - slack
        return not too_low and not too_high

    return agree


@dataclass(frozen=True)
class Statement(Generic[T]):
    """All claims about one thing, the strongest first."""

    claims: tuple[Claim[T], ...] = ()
    agrees: Agrees[T] = same_value

    @cached_property
    def best(self) -> Claim[T] | None:
        return self.claims[0] if self.claims else None

    @property
    def is_known(self) -> bool:
        return bool(self.claims)

    @property
    def value(self) -> T | None:
        """Return the value of the strongest claim; None if it is unknown."""
        return self.claims[0].value if self.claims else None

    @property
    def grade(self) -> Grade | None:
        return self.claims[0].evidence.grade if self.claims else None

    @property
    def bound(self) -> Bound:
        return self.claims[0].bound if self.claims else Bound.EXACT

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        """Return the evidence of all claims that agree with the value."""
        return tuple(claim.evidence for claim in self.claims if self.agrees(self.claims[0], claim))

    @property
    def disagreements(self) -> tuple[Claim[T], ...]:
        """Return the claims that cannot be true if the strongest is."""
        return tuple(claim for claim in self.claims if not self.agrees(self.claims[0], claim))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Statement) and self.claims == other.claims

    def __hash__(self) -> int:
        return hash(self.claims)

    def to_json(self, show: Callable[[T], Any] = lambda value: value) -> dict[str, Any]:
        """Return value, bound, grade and evidence; the value of an unknown one is the word `unknown`."""
        if self.best is None:
            return {"value": UNKNOWN_TEXT, "bound": "", "grade": None, "evidence": [], "disagreements": []}
        return {
            "value": show(self.best.value),
            "bound": str(self.bound),
            "grade": str(self.grade),
            "evidence": [one.to_json() for one in self.evidence],
            "disagreements": [
                {"value": show(claim.value), "bound": str(claim.bound), **claim.evidence.to_json()}
                for claim in self.disagreements
            ],
        }


def unknown(agrees: Agrees[Any] = same_value) -> Statement[Any]:
    """Return a statement without claims."""
    return Statement((), agrees)


def said(
    value: T | None, evidence: Evidence, bound: Bound = Bound.EXACT, agrees: Agrees[T] = same_value
) -> Statement[T]:
    """Return a statement with one claim; without one if the value is None."""
    return Statement(() if value is None else (Claim(value, evidence, bound),), agrees)


def merged(statements: Iterable[Statement[T]]) -> Statement[T]:
    """Return one statement with the claims of all. Neither the order nor a repetition makes a difference."""
    all_of = list(statements)
    claims = {claim: None for one in all_of for claim in one.claims}
    return Statement(tuple(sorted(claims, key=lambda claim: claim.order)), all_of[0].agrees if all_of else same_value)
