"""Medians over the runs, as a text table or JSON."""

from __future__ import annotations

import json
import os
import statistics
from dataclasses import dataclass
from typing import Any

from coordbench.types import Row


@dataclass
class Report:
    scenario: str
    parameters: Row
    versions: dict[str, int]
    cases: dict[str, list[Row]]
    failures: list[str]

    def median(self, case: str) -> Row:
        rows = self.cases[case]
        middle: Row = {}
        for name in rows[0]:
            values = [row[name] for row in rows if isinstance(row.get(name), (int, float))]
            middle[name] = statistics.median(values) if values else None
        return middle

    def as_json(self) -> str:
        return json.dumps(
            {
                "scenario": self.scenario,
                "parameters": self.parameters,
                "versions": self.versions,
                "cpus": os.cpu_count(),
                "cases": {case: {"median": self.median(case), "runs": rows} for case, rows in self.cases.items()},
                "failures": self.failures,
            },
            indent=1,
        )

    def as_text(self) -> str:
        lines = [f"{self.scenario}  " + " ".join(f"{name}=v{v}" for name, v in sorted(self.versions.items()))]
        for case, rows in self.cases.items():
            middle = self.median(case)
            lines.append(f"\n{case}  ({len(rows)} runs)")
            width = max(map(len, middle))
            for name, value in middle.items():
                each = "  ".join(_shown(row.get(name)) for row in rows) if len(rows) > 1 else ""
                lines.append(f"  {name:<{width}}  {_shown(value):>10}   {each}")
        lines += [f"\nFAILED: {failure}" for failure in self.failures]
        return "\n".join(lines)


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return str(value)
