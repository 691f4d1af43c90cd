"""What is given away, built once, from a clean copy of the clone."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from package.building import ROOT, Built, Environment, Uv

_OF_THE_CLONE = ("bench", "docs", "examples", "monitoring", "src", "tests", "tools")
_NOT_OF_THE_CLONE = ("__pycache__", "*.egg-info", "*.so")


@pytest.fixture(scope="session")
def uv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Uv]:
    uv = Uv(tmp_path_factory.mktemp("package"))
    yield uv
    uv("cache", "clean", "coterie")


@pytest.fixture(scope="session")
def clone(uv: Uv) -> Path:
    """As it is in version control: nothing that was built."""
    clone = uv.home / "clone"
    clone.mkdir()
    for name in _OF_THE_CLONE:
        shutil.copytree(ROOT / name, clone / name, ignore=shutil.ignore_patterns(*_NOT_OF_THE_CLONE))
    for path in ROOT.iterdir():
        if path.is_file() and path.name != ".git":
            shutil.copy(path, clone)
    return clone


@pytest.fixture(scope="session")
def sdist(uv: Uv, clone: Path) -> Built:
    return uv.build("sdist", clone, "sdist")


@pytest.fixture(scope="session")
def wheel(uv: Uv, sdist: Built) -> Built:
    return uv.build("wheel", sdist.file, "wheel")


@pytest.fixture(scope="session")
def bare(uv: Uv, wheel: Built) -> Environment:
    """The wheel and what it depends on, no extra."""
    return uv.environment("bare", wheel.file)
