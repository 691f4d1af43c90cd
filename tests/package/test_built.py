"""What is in the source distribution and in the wheel, and that both come about with and without a compiler."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import coterie
from package.building import ROOT, Built, Environment, Uv

NEVER_GIVEN_AWAY = (".ci/", ".github/", ".gitignore", ".pre-commit-config.yaml")
"""Of the clone: what is for git, and for whoever hosts it."""
MADE = {"PKG-INFO", "setup.cfg"}
MOST_BYTES = 5_000_000
PURE = "pure Python, slower: the extension was not compiled at installation"


def test_the_source_distribution_is_the_clone_and_nothing_else(sdist: Built) -> None:
    """Whoever makes a package of it can run the tests."""
    if shutil.which("git") is None:
        pytest.skip("what belongs to the clone is asked of git, which is not installed")
    if not (ROOT / ".git").exists():
        pytest.skip("what belongs to the clone is asked of git, and this is no clone")
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    with tarfile.open(sdist.file) as archive:
        inside = {file.name.partition("/")[2] for file in archive.getmembers() if file.isfile()}
    found = {name for name in inside if not name.startswith("src/coterie.egg-info/")} - MADE
    assert found == {name for name in listed.splitlines() if not name.startswith(NEVER_GIVEN_AWAY)}
    assert sdist.file.stat().st_size < MOST_BYTES


def test_the_wheel_has_every_module_and_no_file_of_a_stranger(wheel: Built, clone: Path) -> None:
    """`pyspark_coterie` too: by its name Spark finds the source."""
    with zipfile.ZipFile(wheel.file) as archive:
        inside = {name for name in archive.namelist() if ".dist-info/" not in name}
        about = {name.partition(".dist-info/")[2] for name in archive.namelist() if ".dist-info/" in name}
    compiled = {name for name in inside if name.endswith(".so")}
    ours = {str(path.relative_to(clone / "src")) for path in (clone / "src").rglob("*") if path.is_file()}
    assert inside - compiled == {name for name in ours if ".egg-info/" not in name}
    assert (
        len(compiled) == (2 if sys.platform == "linux" else 1)
        and "pyspark_coterie.py" in inside
        and "coterie/py.typed" in inside
    )
    assert {"licenses/LICENSE", "METADATA", "entry_points.txt"} <= about


def test_with_a_compiler_it_says_that_it_is_compiled(wheel: Built, bare: Environment) -> None:
    assert f"-cp{sys.version_info.major}{sys.version_info.minor}-" in wheel.file.name
    assert "coterie: record batches are read and written by compiled code" in wheel.said
    assert bare.coterie("--version") == (0, f"coterie {coterie.__version__} (record batches: compiled)\n")


def test_without_a_compiler_it_installs_and_says_what_that_means(uv: Uv, sdist: Built) -> None:
    """In the build, in the name of the wheel, and as long as it is installed."""
    built = uv.build("wheel", sdist.file, "no-compiler", CC="false")
    assert built.file.name.endswith("-py3-none-any.whl")
    assert "record batches are read and written in plain Python: the same, slower. With a C compiler" in built.said
    plain = uv.environment("plain", built.file)
    assert plain.coterie("--version") == (0, f"coterie {coterie.__version__} (record batches: {PURE})\n")
    code, said = plain.coterie("sim", "--seed", "1", "--hours", "0.01")
    assert code == 0 and "0 failed" in said, said


def test_a_clean_clone_gives_a_wheel_for_every_machine_if_asked(uv: Uv, clone: Path) -> None:
    """COTERIE_PURE=1: without a try to compile, and straight from the sources."""
    built = uv.build("wheel", clone, "pure", COTERIE_PURE="1")
    assert built.file.name.endswith("-py3-none-any.whl") and "_fast_records.c" not in built.said


def test_an_editable_install_puts_nothing_but_what_it_compiled_among_the_sources(uv: Uv, clone: Path) -> None:
    """As `make venv` does it."""
    here = uv.home / "worked-on"
    shutil.copytree(clone, here, ignore=shutil.ignore_patterns("*.egg-info"))
    before = set(here.rglob("*"))
    edited = uv.environment("edited", "--editable", here)
    assert edited.coterie("--version")[1].endswith("(record batches: compiled)\n")
    came = {path.name for path in here.rglob("*") if path not in before and ".egg-info" not in str(path)}
    assert came - {"__pycache__"} == {name for name in came if name.endswith((".so", ".pyc"))}


def test_it_runs_without_being_installed(uv: Uv, wheel: Built, bare: Environment) -> None:
    """As with pipx run --spec."""
    said = uv("tool", "run", "--python", sys.executable, "--from", wheel.file, "coterie", "--version")
    assert said.endswith(bare.coterie("--version")[1])
