"""A process that gets SIGTERM runs its shutdown first: once, and to the end."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

SCRIPT = """
import signal, threading
from coterie.spark.source import Shutdown

def leave():
    print("begun", flush=True)
    {meanwhile}
    print("over", flush=True)

shutdown = Shutdown(leave)
{installed}
{then}
"""
HERE = "shutdown.install()"
SIGTERM = "signal.raise_signal(signal.SIGTERM)"  # its handler has run when this returns


def ended(then: str, meanwhile: str = "pass", installed: str = HERE) -> tuple[list[str], int]:
    """Return what a process of its own printed, and its exit status."""
    script = SCRIPT.format(meanwhile=meanwhile, installed=installed, then=then)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    return done.stdout.split(), done.returncode


DONE = ["begun", "over"]


@pytest.mark.parametrize("begins", [SIGTERM, "shutdown.run()", ""], ids=["SIGTERM", "stop()", "exit"])
@pytest.mark.parametrize("times", [1, 2])
def test_a_signal_meanwhile_cuts_nothing_off(begins: str, times: int) -> None:
    """Spark sends SIGTERM twice, a millisecond apart: the second used to end the process before it had left."""
    assert ended(begins, meanwhile=";".join([SIGTERM] * times)) == (DONE, -signal.SIGTERM)


def test_without_a_signal_it_runs_at_exit() -> None:
    assert ended("") == (DONE, 0)


def test_it_runs_once() -> None:
    assert ended("shutdown.run(); shutdown.run()") == (DONE, 0)


def test_a_signal_after_it_ends_the_process() -> None:
    assert ended(f"shutdown.run(); {SIGTERM}; print('alive')") == (DONE, -signal.SIGTERM)


def test_a_shutdown_that_fails_ends_the_process() -> None:
    assert ended(f"{SIGTERM}; print('alive')", meanwhile="raise OSError") == (["begun"], -signal.SIGTERM)


def test_outside_the_main_thread_it_runs_at_exit() -> None:
    """Python takes signal handlers from the main thread alone."""
    elsewhere = "threading.Thread(target=shutdown.install).start()"
    assert ended("", installed=elsewhere) == (DONE, 0)
