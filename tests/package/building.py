"""Building what is given away, and environments that have it and nothing else of ours."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ROOT", "Built", "Environment", "Uv", "ran"]

ROOT = Path(__file__).parents[2]
CONSTRAINTS = ROOT / "constraints.txt"


def ran(command: Sequence[str | Path], cwd: Path, **environ: str) -> tuple[int, str]:
    """Its exit status, and all it said."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env={**_environ(), **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        check=False,
        timeout=240,
    )
    return done.returncode, done.stdout


def _environ() -> Mapping[str, str]:
    """Ours, but for what would show the way into this clone."""
    return {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "COTERIE_PURE"}}


@dataclass(frozen=True)
class Uv:
    """Builds, and makes environments, with the versions we test with. What it has downloaded it keeps in .venv."""

    home: Path

    def __call__(self, *words: str | Path, **environ: str) -> str:
        uv = Path(sys.executable).with_name("uv")
        kept = {"UV_CACHE_DIR": str(Path(sys.prefix) / "uv-cache"), "UV_NO_PROGRESS": "1"}
        quick = {"CFLAGS": "-O0"}  # it is looked whether it works, not how fast it is
        code, said = ran([uv, *words], self.home, **kept, **quick, **environ)
        assert code == 0, f"uv {' '.join(map(str, words))}\n{said}"
        return said

    def build(self, kind: str, source: Path, name: str, python: Path | str = sys.executable, **environ: str) -> Built:
        out = self.home / name
        how = ("--build-constraint", CONSTRAINTS, "--python", python, "--out-dir", out)
        said = self("build", f"--{kind}", *how, source, **environ)
        (file,) = (path for path in out.iterdir() if path.name.startswith("coterie-"))
        return Built(file, said)

    def environment(
        self, name: str, *what: str | Path, python: Path | str = sys.executable, constraints: Path = CONSTRAINTS
    ) -> Environment:
        home = self.home / name
        self("venv", "--python", python, home)
        self("pip", "install", "--python", home, "--constraint", constraints, *what)
        (self.home / f"{name}-empty").mkdir()
        return Environment(home, self.home / f"{name}-empty")


@dataclass(frozen=True)
class Built:
    file: Path
    said: str


@dataclass(frozen=True)
class Environment:
    home: Path
    empty: Path
    """A directory in which there is nothing of ours."""

    def program(self, name: str) -> Path:
        return self.home / "bin" / name

    def coterie(self, *words: str | Path, **environ: str) -> tuple[int, str]:
        return ran([self.program("coterie"), *words], self.empty, **environ)

    def shell(self, line: str, **environ: str) -> tuple[int, str]:
        path = os.pathsep.join([str(self.home / "bin"), os.environ["PATH"]])
        return ran(["sh", "-c", line], self.empty, PATH=path, **environ)
