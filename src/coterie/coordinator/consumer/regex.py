"""Subscriptions by regular expression (K7). RE2 has no look-ahead, and takes time linear in the length of a name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import re2

from coterie.coordinator.consumer.topic_image import TopicsImage

MAX_LENGTH = 1 << 15
_OPTIONS = re2.Options()
_OPTIONS.log_errors = False
_OPTIONS.max_mem = 1 << 20  # what a compiled expression may take; one that needs more is refused


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> Any:
    return re2.compile(pattern, options=_OPTIONS)


def why_invalid(pattern: str) -> str | None:
    """Return what is wrong with an expression; None if it can be used."""
    if len(pattern) > MAX_LENGTH:
        return f"the expression has {len(pattern)} characters; at most {MAX_LENGTH} are allowed"
    try:
        _compiled(pattern)
    except (re2.error, UnicodeEncodeError) as error:
        why = error.args[0] if error.args else "?"
        return why.decode(errors="replace") if isinstance(why, bytes) else str(why)
    return None


def matcher(pattern: str) -> Callable[[str], bool]:
    """Return a function that tells whether a valid expression matches a whole name."""
    matches = _compiled(pattern).fullmatch
    return lambda name: matches(name) is not None


def resolve(
    patterns: Iterable[str], image: TopicsImage, may_describe: Callable[[str], bool] | None
) -> dict[str, list[str]]:
    """Return the topics whose whole name each expression matches."""
    names = [name for name in image.topics if may_describe is None or may_describe(name)]
    found = {}
    for pattern in patterns:
        matches = matcher(pattern)
        found[pattern] = sorted(name for name in names if matches(name))
    return found
