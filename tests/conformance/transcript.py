"""What was recorded, as text: cases, their steps, and under each step the answers that came before the next one.

    profile plain
                                                 (an empty line before each case)
    # heartbeat v4 | Stable | unknown member
    after Stable
    made 1=0d6f… 3=99a2…
    a heartbeat member=ghost
      7 {"error_code":"UNKNOWN_MEMBER_ID"}

Numbers are those of the requests, from 1, the steps of `after` included. `made` has the UUIDs of the ids that the
broker made for joins, so that a replay can be given the same ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

from conformance.hearing import Heard
from conformance.script import Case

__all__ = ["RECORDED", "Transcript", "read", "write"]

RECORDED = Path(__file__).parent / "recorded"


@dataclass
class Transcript:
    """Of one case: what was heard at each of its own steps. What was heard at those of `after` is in its transcript."""

    case: Case
    heard: list[Heard]
    made: dict[int, str] = field(default_factory=dict)


def write(path: Path, profile: str, transcripts: Iterable[Transcript]) -> None:
    lines = [f"profile {profile}"]
    for one in transcripts:
        lines += ["", f"# {one.case.name}"]
        if one.case.after:
            lines.append(f"after {one.case.after}")
        if one.made:
            made = " ".join(f"{number}={UUID(text).hex}" for number, text in sorted(one.made.items()))
            lines.append(f"made {made}")
        for step, heard in zip(one.case.steps, one.heard, strict=True):
            lines.append(step)
            lines += [
                f"  {number} {json.dumps(answer, separators=(',', ':'), ensure_ascii=False)}"
                for number, answer in sorted(heard.items())
            ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")


def read(path: Path) -> tuple[str, list[Transcript]]:
    """The profile, and what was recorded with it."""
    head, *blocks = path.read_text().rstrip("\n").split("\n\n")
    return head.removeprefix("profile "), [_read_one(block) for block in blocks]


def _read_one(block: str) -> Transcript:
    title, *lines = block.split("\n")
    after, made = "", {}
    if lines and lines[0].startswith("after "):
        after = lines.pop(0).removeprefix("after ")
    if lines and lines[0].startswith("made "):
        pairs = (word.split("=") for word in lines.pop(0).split()[1:])
        made = {int(number): str(UUID(text)) for number, text in pairs}
    steps: list[str] = []
    heard: list[Heard] = []
    for line in lines:
        if line.startswith("  "):
            number, _, answer = line.strip().partition(" ")
            heard[-1][int(number)] = json.loads(answer)
        else:
            steps.append(line)
            heard.append({})
    return Transcript(Case(title.removeprefix("# "), tuple(steps), after), heard, made)
