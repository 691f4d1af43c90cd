"""What Kafka answered: for each case its steps, and below each step the answer as JSON.

Most cases begin and end as the case before: `= 7` stands for its first seven steps, or at the end of a case for its
last seven, with their answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import takewhile
from pathlib import Path

RECORDED = Path(__file__).parent / "recorded.txt"
Answers = Mapping[str, list[tuple[str, str]]]
"""By case: each step with its answer."""


def write(path: Path, answers: Answers) -> None:
    lines = []
    before: list[tuple[str, str]] = []
    for name, steps in answers.items():
        first = _same(before, steps)
        last = _same(before[first:][::-1], steps[first:][::-1])
        lines += [f"# {name}", *([f"= {first}"] if first else [])]
        for step, answer in steps[first : len(steps) - last]:
            lines += [step, f"\t{answer}"]
        lines += [f"= {last}"] if last else []
        before = steps
    path.write_text("\n".join(lines) + "\n")


def _same(before: list[tuple[str, str]], steps: list[tuple[str, str]]) -> int:
    """Return how many steps are the same from the first on."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(before, steps, strict=False)))


def read(path: Path = RECORDED) -> dict[str, list[tuple[str, str]]]:
    answers: dict[str, list[tuple[str, str]]] = {}
    steps: list[tuple[str, str]] = []
    step = ""
    for line in path.read_text().splitlines():
        if line.startswith("# "):
            before, steps = steps, []
            answers[line.removeprefix("# ")] = steps
        elif line.startswith("= "):
            count = int(line.removeprefix("= "))
            steps += before[-count:] if steps else before[:count]
        elif line.startswith("\t"):
            steps.append((step, line.removeprefix("\t")))
        else:
            step = line
    return answers
