"""ISO 8601 durations, as `auto.offset.reset=by_duration:PT1H` and `groups reset --by-duration P7D` say them."""

from __future__ import annotations

import re

__all__ = ["duration_ms"]

_DURATION = re.compile(
    r"P(?:(?P<days>\d{1,9})D)?(?:T(?=\d)(?:(?P<hours>\d{1,9})H)?(?:(?P<minutes>\d{1,9})M)?(?:(?P<seconds>\d{1,9}(?:\.\d{1,9})?)S)?)?",
    re.ASCII,
)
_MS = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1_000}


def duration_ms(text: str) -> int:
    """Milliseconds; ValueError if it is no duration of days, hours, minutes and seconds."""
    match = _DURATION.fullmatch(text.strip().upper())
    parts = {} if match is None else {name: found for name, found in match.groupdict().items() if found}
    if not parts:
        raise ValueError(
            f"{text!r} is not a duration: give days, hours, minutes, seconds as in P7D, PT1H30M or P1DT0.5S"
        )
    return round(sum(float(found) * _MS[name] for name, found in parts.items()))
