"""Where Java is looked for, and that the reason why there is none is the true one."""

from __future__ import annotations

from pathlib import Path

import pytest

from coterie.java import find_java, why_no_java


def java(home: Path, version: str) -> str:
    (home / "bin").mkdir(parents=True)
    program = home / "bin" / "java"
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)
    return str(program)


def test_java_home_counts_alone_and_else_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As in Spark's launcher: a JAVA_HOME that is wrong is not made good by the PATH."""
    on_path, at_home = java(tmp_path / "path", "21.0.2"), java(tmp_path / "home", "17.0.10")
    monkeypatch.setenv("PATH", f"{tmp_path}/path/bin")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert find_java() == on_path and why_no_java("Spark", 17) is None
    monkeypatch.setenv("JAVA_HOME", f"{tmp_path}/home")
    assert find_java() == at_home and why_no_java("Spark", 17) is None
    monkeypatch.setenv("JAVA_HOME", f"{tmp_path}/nowhere")
    assert why_no_java("Spark", 17) == f"Spark needs Java 17 or newer, and JAVA_HOME, {tmp_path}/nowhere, has none"


@pytest.mark.parametrize(("version", "found"), [("1.8.0_392", "1"), ("11.0.21", "11"), ("", "of an unknown version")])
def test_one_that_is_too_old_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str, found: str
) -> None:
    program = java(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert why_no_java("Spark", 17) == f"Spark needs Java 17 or newer, and {program} is {found}"
    assert why_no_java("ZooKeeper") is None


def test_without_any_it_says_where_it_looked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert why_no_java("ZooKeeper") == "ZooKeeper needs Java, and there is none on the PATH, and JAVA_HOME is not set"
