"""The reasons of rebalances in the log of Apache Kafka: the cause and the member of each wording."""

from __future__ import annotations

import re

from coterie.facts import Cause
from coterie.ledger.derived import DerivedCause

_CLIENT = re.compile(r"; client reason: (?P<reason>.*)$", re.DOTALL)
_NOT_PROVIDED = frozenset({"not provided", ""})

_TABLE: tuple[tuple[str, Cause], ...] = (
    (r"^adding new member (?P<member>\S+)", Cause.NEW_MEMBER),
    (r"^explicit `?LeaveGroup`? request for \((?P<member>.*)\) members", Cause.MEMBER_LEFT),
    (r"^removing member (?P<member>\S+) on LeaveGroup", Cause.MEMBER_LEFT),
    (r"^removing member (?P<member>\S+) on heartbeat expiration", Cause.SESSION_EXPIRED),
    (r"^removing (?P<member>.*) on pending sync request expiration", Cause.SYNC_TIMEOUT),
    (r"^(?:the )?leader (?P<member>\S+) (?:is )?re-?joining group", Cause.LEADER_REJOINED),
    (r"selectedProtocol will change because static member (?P<member>\S+)", Cause.STATIC_MEMBER_CHANGED_VOTE),
    (r"^updating metadata for static member (?P<member>\S+)", Cause.STATIC_MEMBER_REPLACED),
    (r"^updating metadata for member (?P<member>\S+)", Cause.PROTOCOLS_CHANGED),
    (r"when storing group assignment.*\(member: (?P<member>\S+?)\)", Cause.WRITE_FAILED),
    (r"freshly-loaded group .*over capacity", Cause.OVER_SIZE_AT_LOAD),
)
_REASONS = tuple((re.compile(text, re.IGNORECASE), cause) for text, cause in _TABLE)


def cause_of(reason: str) -> tuple[Cause | DerivedCause, list[str], str | None]:
    """Return the cause, the members behind it, and the reason that the client sent, from the text in the log.

    The cause of an unknown wording is unknown. Kafka before 1.1 wrote no reason.
    """
    client = _CLIENT.search(reason)
    said = client["reason"].strip() if client else ""
    text = reason[: client.start()] if client else reason
    for pattern, cause in _REASONS:
        found = pattern.search(text)
        if found is not None:
            members = members_in(found.groupdict().get("member") or "")
            return cause, members, None if said in _NOT_PROVIDED else said
    return DerivedCause.UNKNOWN, [], None if said in _NOT_PROVIDED else said


_COLLECTION = re.compile(r"^(?:[A-Za-z]*Set|List|Vector)?[(\[{]?(?P<inner>.*?)[)\]}]?\.?$", re.DOTALL)


def members_in(text: str) -> list[str]:
    """Return the member ids in a collection as Scala or Java print it: `Set(a, b)`, `[a, b]`, `a`."""
    found = _COLLECTION.match(text.strip())
    inner = found["inner"] if found else text
    return [one.strip() for one in inner.split(",") if one.strip()]
