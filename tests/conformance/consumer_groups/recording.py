"""What Kafka answered: for each case its steps, and below each step the answer as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

RECORDED = Path(__file__).parent / "recorded.txt"
Answers = Mapping[str, list[tuple[str, str]]]
"""By case: each step with its answer."""


def write(path: Path, answers: Answers) -> None:
    lines = []
    for name, steps in answers.items():
        lines.append(f"# {name}")
        for step, answer in steps:
            lines += [step, f"\t{answer}"]
    path.write_text("\n".join(lines) + "\n")


def read(path: Path = RECORDED) -> dict[str, list[tuple[str, str]]]:
    answers: dict[str, list[tuple[str, str]]] = {}
    step = ""
    for line in path.read_text().splitlines():
        if line.startswith("# "):
            steps = answers[line.removeprefix("# ")] = []
        elif line.startswith("\t"):
            steps.append((step, line.removeprefix("\t")))
        else:
            step = line
    return answers
