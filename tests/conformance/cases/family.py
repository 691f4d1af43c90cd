"""Cases that belong together: one file of transcripts, one broker."""

from __future__ import annotations

from dataclasses import dataclass

from conformance.script import Case

__all__ = ["Family", "stories"]


@dataclass(frozen=True)
class Family:
    name: str
    profile: str
    cases: tuple[Case, ...]

    @property
    def file(self) -> str:
        return f"{self.name.replace(' ', '-')}.txt"


def stories(name: str, profile: str, text: str) -> Family:
    """From a text of `name: step; step; step` lines. A line that begins with spaces goes on; `#` is a remark."""
    lines: list[str] = []
    for line in text.strip().splitlines():
        if line.startswith(" "):
            lines[-1] += " " + line.strip()
        elif line and not line.startswith("#"):
            lines.append(line)
    cases = []
    for line in lines:
        title, _, steps = line.partition(": ")
        cases.append(Case(title, tuple(step.strip() for step in steps.split(";") if step.strip())))
    return Family(name, profile, tuple(cases))
