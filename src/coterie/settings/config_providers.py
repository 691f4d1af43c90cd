"""Values that are references: `${env:NAME}` and `${file:PATH}`, so that a secret need not stand in a file or an option.

Kafka calls this config providers (KIP-297, KIP-887). `${file:PATH:KEY}` is a value of a properties file, as in Java;
`${file:PATH}` is all that a file has, as a mounted secret of Kubernetes. A reference may be a part of a value, and what
it gives is not looked at again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from coterie.errors import MalformedError
from coterie.settings.config_def import Given
from coterie.settings.sources import parse_properties

_REFERENCE = re.compile(r"\$\{(env|file):([^}]*)\}")


def resolve_references(given: Sequence[Given], problems: list[str]) -> list[Given]:
    """Put what references mean in their place. One that cannot be followed is a problem, and is left out."""
    resolved = []
    for each in given:
        if "${" in each.text:
            try:
                resolved.append(each._replace(text=_REFERENCE.sub(_meaning, each.text)))
            except ValueError as error:
                problems.append(f"{each.name} ({each.where}): {error}")
        else:
            resolved.append(each)
    return resolved


def _meaning(match: re.Match[str]) -> str:
    return _PROVIDERS[match[1]](match[2])


def _from_environ(name: str) -> str:
    value = os.environ.get(name)
    if value is None:
        raise ValueError(f"${{env:{name}}} names a variable that the environment of this process does not have")
    return value


def _from_file(reference: str) -> str:
    path, colon, key = reference.rpartition(":") if ":" in reference else (reference, "", "")
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise ValueError(f"${{file:{reference}}} cannot be read: {why}") from None
    if not colon:
        return text.rstrip("\r\n")
    try:
        values = {entry.key: entry.value for entry in parse_properties(text)}
    except MalformedError as error:
        raise ValueError(f"${{file:{reference}}} cannot be read: {error}") from None
    if key not in values:
        raise ValueError(f"${{file:{reference}}} names a key that the properties file does not have")
    return values[key]


_PROVIDERS: Mapping[str, Callable[[str], str]] = {"env": _from_environ, "file": _from_file}
