"""A process that is told to go says its shutdown first: once, and to the end."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

SCRIPT = """
import signal, threading
from coterie.spark.shutdown import Shutdown

def words():
    print("begun", flush=True)
    {meanwhile}
    print("over", flush=True)

shutdown = Shutdown(words)
{installed}
{then}
"""
HERE = "shutdown.before_the_end()"
TOLD = "signal.raise_signal(signal.SIGTERM)"  # its handler has run when this returns


def ended(then: str, meanwhile: str = "pass", installed: str = HERE) -> tuple[list[str], int]:
    """Of a process of its own: what it said, and what it ended with."""
    script = SCRIPT.format(meanwhile=meanwhile, installed=installed, then=then)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    return done.stdout.split(), done.returncode


SAID = ["begun", "over"]


@pytest.mark.parametrize("begins", [TOLD, "shutdown.say()", ""], ids=["SIGTERM", "stop()", "exit"])
@pytest.mark.parametrize("times", [1, 2])
def test_a_signal_meanwhile_cuts_nothing_off(begins: str, times: int) -> None:
    """Spark sends SIGTERM twice, a millisecond apart: the second used to end the process before it had left."""
    assert ended(begins, meanwhile=";".join([TOLD] * times)) == (SAID, -signal.SIGTERM)


def test_without_a_signal_it_is_said_at_exit() -> None:
    assert ended("") == (SAID, 0)


def test_it_is_said_once_whoever_asks() -> None:
    assert ended("shutdown.say(); shutdown.say()") == (SAID, 0)


def test_a_signal_after_it_ends_the_process() -> None:
    assert ended(f"shutdown.say(); {TOLD}; print('alive')") == (SAID, -signal.SIGTERM)


def test_a_shutdown_that_fails_keeps_nobody_alive() -> None:
    assert ended(f"{TOLD}; print('alive')", meanwhile="raise OSError") == (["begun"], -signal.SIGTERM)


def test_outside_the_main_thread_it_is_said_at_exit() -> None:
    """Python takes signal handlers from the main thread alone."""
    elsewhere = "threading.Thread(target=shutdown.before_the_end).start()"
    assert ended("", installed=elsewhere) == (SAID, 0)
