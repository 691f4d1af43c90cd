"""The demonstration, played for real and in a hurry: real processes, a real kill -9, every promise checked."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cli.background import AS_A_BACKGROUND_JOB

COTERIE = str(Path(sys.executable).with_name("coterie"))


@pytest.mark.real_time
def test_the_whole_plot_is_played_and_every_promise_kept(tmp_path: Path) -> None:
    command = [COTERIE, "demo", "--no-spark", "--seconds", "0", "--out", str(tmp_path / "home")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("\n  held ") == 5, done.stdout
    for cause in ("new member", "member left", "session expired", "protocols changed"):
        assert f"rebalance: {cause}" in done.stdout
    page = (tmp_path / "home" / "report.html").read_text()
    assert "session expired" in page and 'class="bar"' in page


@pytest.mark.real_time
@pytest.mark.parametrize("started", [(), AS_A_BACKGROUND_JOB])
def test_an_interrupt_ends_everything_that_was_started(tmp_path: Path, started: tuple[str, ...]) -> None:
    with _begun(tmp_path, started) as process:
        assert process.stdout is not None
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
        assert process.wait(30) == 130
    assert "all processes were stopped" in rest
    assert _left(tmp_path) == []


@pytest.mark.real_time
@pytest.mark.timeout(60)
def test_members_do_not_outlive_a_demonstration_that_was_killed(tmp_path: Path) -> None:
    with _begun(tmp_path) as process:
        assert _left(tmp_path)
        process.kill()
    while _left(tmp_path):
        time.sleep(0.05)


def _begun(home: Path, started: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    """A demonstration whose first members have joined."""
    command = [*started, COTERIE, "demo", "--no-spark", "--out", str(home / "home")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    while "generation 1" not in process.stdout.readline():
        assert process.poll() is None, "it has ended"
    return process


def _left(home: Path) -> list[Path]:
    return [entry for entry in Path("/proc").glob("[0-9]*/cmdline") if _mentions(entry, str(home))]


def _mentions(entry: Path, text: str) -> bool:
    try:
        return text.encode() in entry.read_bytes() and entry.parent.name != str(os.getpid())
    except OSError:
        return False


def test_a_directory_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("")
    command = [COTERIE, "demo", "--no-spark", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1 and "is not empty" in done.stderr
