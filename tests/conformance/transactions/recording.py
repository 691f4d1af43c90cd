"""The file with Apache Kafka's answers: a line for each cell."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

__all__ = ["RECORDED", "read", "write"]

RECORDED = Path(__file__).with_name("recorded.txt")


def read(path: Path) -> dict[tuple[str, str], str]:
    found: dict[tuple[str, str], str] = {}
    state = ""
    for line in path.read_text().splitlines():
        if line.startswith("# "):
            state = line.removeprefix("# ")
        else:
            request, _, answer = line.partition(": ")
            found[state, request] = answer
    return found


def write(path: Path, answers: Mapping[tuple[str, str], str]) -> None:
    lines: list[str] = []
    last = ""
    for (state, request), answer in answers.items():
        if state != last:
            lines.append(f"# {state}")
            last = state
        lines.append(f"{request}: {answer}")
    path.write_text("\n".join(lines) + "\n")
