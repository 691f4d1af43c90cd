"""The other versions of Python that we say it runs on, where they are installed: the wheel, compiled, and a look at
every room that decides, then a broker with a producer and a consumer.
"""

from __future__ import annotations

import os
import shutil
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from package.building import ROOT, Built, Uv, ran

VERSIONS = ("3.11", "3.12", "3.13")
HERE = ".".join(map(str, sys.version_info[:2]))
"""All tests are run with this one."""
TOOLS = ("hypothesis", "pytest", "pytest-randomly", "pytest-timeout", "pytest-xdist")
EVERYWHERE = os.environ.get("COTERIE_ALL_PYTHONS")
"""`make soak` takes every version and every room here."""
COMPILED = (
    *(f"tests/protocol/test_{what}.py" for what in ("batch", "fetched", "frames", "records", "subscription", "twins")),
    "tests/broker/test_node.py",
)
ROOMS = (
    *COMPILED,
    *("tests/coordinator/classic", "tests/coordinator/offsets", "tests/ledger", "tests/stories", "tests/client/member"),
    *(f"tests/coordinator/test_{what}.py" for what in ("coordinator", "failing_writes", "timers")),
    *(f"tests/storage/test_{what}.py" for what in ("partition_on_disk", "validation")),
    *(f"tests/assignors/test_{what}.py" for what in ("cases", "worked_examples")),
)


def test_the_versions_tested_are_those_that_are_promised() -> None:
    about = (ROOT / "pyproject.toml").read_text()
    assert f'requires-python = ">={VERSIONS[0]}"' in about
    assert all(f'"Programming Language :: Python :: {version}"' in about for version in VERSIONS)


@pytest.mark.timeout(900)  # on a busy machine; half a minute on an idle one
@pytest.mark.parametrize("version", [version for version in VERSIONS if version != HERE])
def test_it_runs_on_another_python(version: str, uv: Uv, sdist: Built) -> None:
    if version not in {VERSIONS[0], VERSIONS[-1]} and not EVERYWHERE:
        pytest.skip("make test takes the oldest and the newest Python; make soak takes those between as well")
    python = _find(version)
    if python is None:
        pytest.skip(f"Python {version} is not installed: neither on the PATH nor by pyenv")
    wheel = uv.build("wheel", sdist.file, f"wheel-{version}", python)
    other = uv.environment(f"python-{version}", wheel.file, *TOOLS, python=python)
    assert other.coterie("--version")[1].endswith("(record batches: compiled)\n")

    code, said = ran([other.program("python"), ROOT / "examples" / "ten_lines.py"], other.empty)
    assert code == 0 and said.endswith("2 b'table 4' b'water'\n"), said

    tests = ["-m", "pytest", "-p", "no:cacheprovider", *(ROOMS if EVERYWHERE else COMPILED)]
    code, said = ran([other.program("python"), *tests], ROOT, COTERIE_HYPOTHESIS="quick")
    assert code == 0, said


@pytest.mark.skipif(VERSIONS[0] != HERE, reason=f"the oldest libraries are asked for with Python {VERSIONS[0]}")
def test_the_oldest_libraries_that_are_allowed_will_do(uv: Uv, wheel: Built) -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        needed = tomllib.load(file)["project"]["dependencies"]
    oldest = uv.home / "oldest.txt"
    oldest.write_text("".join(f"{one.partition(',')[0].replace('>=', '==')}\n" for one in needed))
    old = uv.environment("oldest", wheel.file, constraints=oldest)
    code, said = ran([old.program("python"), ROOT / "examples" / "ten_lines.py"], old.empty)
    assert code == 0, said
    for command in ("serve", "topics create", "consume"):  # of every kind of option one
        code, said = old.coterie(*command.split(), "--help")
        assert code == 0 and f"Try it: coterie {command}" in said, said


def _find(version: str) -> Path | None:
    """One that answers: a shim of pyenv is on the PATH also where it has nothing to run."""
    return next((path for path in _candidates(version) if ran([path, "--version"], ROOT)[0] == 0), None)


def _candidates(version: str) -> Iterator[Path]:
    on_path = shutil.which(f"python{version}")
    if on_path is not None:
        yield Path(on_path)
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    yield from sorted(versions.glob(f"{version}.*/bin/python{version}"))
