"""What the broker takes besides its table: second names, and variables of the environment."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from coterie.settings.sources import Given

__all__ = ["ALIASES", "from_environ"]

ALIASES = {"broker.id": "node.id", "log.dir": "log.dirs"}
"""Kafka's second names: the first one counts where both are given."""

_PREFIXES = ("KAFKA_", "COTERIE_")
_NOT_SETTINGS = re.compile(
    r"KAFKA_(VERSION|HOME|USER|DEBUG|MODE|CLUSTERS|(.*_)?OPTS|(TOOLS_)?LOG4J_.*|JMX_.*|CLASSPATH|CFG_.*)"
    r"|KAFKA_(.*_)?SERVICE_(HOST|PORT(_.*)?)|KAFKA_(.*_)?PORT(_[0-9]+_(TCP|UDP)(_.*)?)?"
    r"|COTERIE_(BOOTSTRAP|KAFKA_LIBS|TEST_CLOCK)"
)
"""Of Kafka's images and scripts, of a Kubernetes service called kafka, of our own commands and tests."""


def from_environ(environ: Mapping[str, str], settings: Iterable[str], problems: list[str]) -> list[Given]:
    """`KAFKA_` as Kafka's image takes them, `COTERIE_` above them; `COTERIE_FLUSH` is `coterie.flush`."""
    ours = {name.removeprefix("coterie.") for name in settings if name.startswith("coterie.")}
    given = []
    for prefix in _PREFIXES:
        for variable in sorted(environ):
            if not variable.startswith(prefix) or _NOT_SETTINGS.fullmatch(variable):
                continue
            name = _name_in(variable.removeprefix(prefix))
            if not name:
                problems.append(f"{variable}: no setting is named")
                continue
            if prefix == "COTERIE_" and name in ours:
                name = f"coterie.{name}"
            given.append(Given(name, environ[variable], variable, is_certain=prefix == "COTERIE_"))
    return given


def _name_in(variable: str) -> str:
    """Kafka's image: one underscore is a dot, two are an underscore, three a dash."""
    return variable.lower().replace("_", ".").replace("...", "-").replace("..", "_")
