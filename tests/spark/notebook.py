"""Runs a Jupyter notebook in this process, cell by cell, without Jupyter: it shares the session of Spark."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl

__all__ = ["cells", "run"]


def cells(notebook: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(notebook.read_text())["cells"]
    return [cell for cell in found if cell["cell_type"] == "code"]


def run(notebook: Path, pictures: Path) -> Iterator[Any]:
    """Run the cells; yield the value of the last expression of each. Figures are PNG files in `pictures`."""
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    names: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate(cells(notebook)):
        tree = ast.parse("".join(cell["source"]), f"cell {number}")
        last = tree.body.pop() if tree.body else None
        if last is not None and not isinstance(last, ast.Expr):
            tree.body.append(last)
            last = None
        exec(compile(tree, f"cell {number}", "exec"), names)
        for figure in plt.get_fignums():
            plt.figure(figure).savefig(pictures / f"{number}.png", dpi=80)
        plt.close("all")
        yield None if last is None else eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), names)
