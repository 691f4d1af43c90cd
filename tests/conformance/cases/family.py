"""Cases that belong together: one file of transcripts, one broker."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from conformance.script import Case

__all__ = ["STORIES", "Family"]


@dataclass(frozen=True)
class Family:
    name: str
    profile: str
    cases: tuple[Case, ...]

    @property
    def file(self) -> str:
        return f"{self.name.replace(' ', '-')}.txt"


def read_stories(path: Path) -> Family:
    """Cases written by hand: `# name`, then steps with `;` between them. The head of the file says on which broker."""
    head, *blocks = path.read_text().strip().split("\n\n")
    profile, _, _ = head.partition("\n")
    cases = []
    for block in blocks:
        title, _, steps = block.partition("\n")
        cases.append(Case(title.removeprefix("# "), tuple(step.strip() for step in steps.split(";"))))
    return Family(path.stem.replace("-", " "), profile.removeprefix("profile "), tuple(cases))


STORIES = [read_stories(path) for path in sorted((Path(__file__).parent / "stories").glob("*.txt"))]
