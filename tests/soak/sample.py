"""The sample project of examples/testing_sample, outside this clone, with the wheel that is built from it.

    python tests/soak/sample.py run                 its 50 tests, in one process and in two
    python tests/soak/sample.py soak --runs 200     the same again and again, beside a busy process; counts flakes
    python tests/soak/sample.py compare --runs 20   ten tests, on Coterie and on Apache Kafka 4.3.1; needs Java

All of it happens in a temporary directory, which is removed.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tokenize
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "examples" / "testing_sample"
ALLOWED_S = 10.0
HANGS_AFTER_S = 600.0
CLIENTS = ("aiokafka", "confluent-kafka", "kafka-python", "pytest", "pytest-xdist")
OWN = ("PYTHONPATH", "PYTEST_ADDOPTS", "COTERIE_PURE", "VIRTUAL_ENV")
"""Variables of the environment that would lead into this clone."""


@contextmanager
def installed() -> Iterator[tuple[Path, Path]]:
    """Build the wheel, and install it with the clients; give the interpreter and a copy of the sample."""
    with tempfile.TemporaryDirectory(prefix="coterie-sample-") as scratch:
        home = Path(scratch)
        uv = str(Path(sys.executable).with_name("uv"))
        constraints = str(ROOT / "constraints.txt")
        python = home / "venv" / "bin" / "python"
        _run(
            [uv, "build", "--quiet", "--wheel", "--build-constraint", constraints, "--out-dir", home / "dist", ROOT],
            home,
        )
        (wheel,) = (home / "dist").glob("coterie-*.whl")
        _run([uv, "venv", "--quiet", "--python", sys.executable, home / "venv"], home)
        _run([uv, "pip", "install", "--quiet", "--python", python, "-c", constraints, wheel, *CLIENTS], home)
        copy = home / "sample"
        shutil.copytree(SAMPLE, copy, ignore=shutil.ignore_patterns("__pycache__", ".pytest_cache"))
        yield python, copy


def _environ() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in OWN}


def _run(command: Sequence[str | Path], cwd: Path) -> None:
    done = subprocess.run([str(word) for word in command], cwd=cwd, env=_environ(), check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))} ended with {done.returncode}")


def tested(python: Path, copy: Path, *arguments: str, **environ: str) -> tuple[bool, str, float]:
    """Run tests of the sample; return whether all passed, what pytest said, and the seconds by pytest's own clock."""
    command = [str(python), "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    started = time.monotonic()
    with subprocess.Popen(
        command,
        cwd=copy,
        env={**_environ(), "PYTHONDONTWRITEBYTECODE": "1", **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as running:
        try:
            output, _ = running.communicate(timeout=HANGS_AFTER_S)
        except subprocess.TimeoutExpired:
            running.kill()
            output, _ = running.communicate()
            return False, f"{output}\nit hangs: killed after {HANGS_AFTER_S:g} s", HANGS_AFTER_S
    took = time.monotonic() - started
    said = re.search(r" in ([\d.]+)s", output.rstrip().rpartition("\n")[2])
    return running.returncode == 0, output, float(said[1]) if said else took


def sleeping(directory: Path) -> list[str]:
    """Return the lines of tests that sleep."""
    return [
        f"{path.name}:{number}: {line.strip()}"
        for path in sorted(directory.glob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if "sleep" in line
    ]


def lines(*paths: Path) -> int:
    """Return how many lines of code files have: without empty lines, comments and docstrings."""
    count = 0
    for path in paths:
        content = path.read_text()
        found: set[int] = set()
        previous = tokenize.NEWLINE
        skipped = {
            tokenize.COMMENT,
            tokenize.NL,
            tokenize.NEWLINE,
            tokenize.INDENT,
            tokenize.DEDENT,
            tokenize.ENDMARKER,
        }
        for token in tokenize.generate_tokens(io.StringIO(content).readline):
            is_docstring = token.type == tokenize.STRING and previous in {
                tokenize.NEWLINE,
                tokenize.INDENT,
                tokenize.DEDENT,
            }
            if token.type not in skipped and not is_docstring:
                found.update(range(token.start[0], token.end[0] + 1))
            if token.type not in {tokenize.COMMENT, tokenize.NL}:
                previous = token.type
        count += len(found)
    return count


def last_line(said: str) -> str:
    return said.rstrip().rpartition("\n")[2]


def run() -> int:
    slept = sleeping(SAMPLE / "tests")
    if slept:
        print("tests sleep:", *slept, sep="\n  ")
        return 1
    with installed() as (python, copy):
        for arguments in ((), ("-n", "2")):
            passed, said, took = tested(python, copy, *arguments)
            if not passed:
                print(said)
                return 1
            how = "two processes" if arguments else "one process"
            late = f": more than the {ALLOWED_S:g} s of an idle machine with two cores" if took > ALLOWED_S else ""
            print(f"{how}: {last_line(said)}{late}")
    print("no test sleeps")
    return 0


def soak(runs: int, *, is_busy: bool) -> int:
    flakes = 0
    seconds: list[float] = []
    with installed() as (python, copy):
        busy = subprocess.Popen([str(python), "-c", "while True: pass" if not is_busy else ""])
        try:
            for number in range(1, runs + 1):
                passed, said, took = tested(python, copy, *(("-n", "2") if number % 2 else ()))
                seconds.append(took)
                if not passed:
                    flakes += 1
                    print(said)
                    print(f"run {number} failed", flush=True)
                else:
                    print(f"run {number}: {last_line(said)}; {flakes} of {number} failed", flush=True)
        finally:
            busy.kill()
            busy.wait()
    middle = sorted(seconds)[len(seconds) // 2]
    print(f"{runs} runs, {flakes} failed; {min(seconds):.1f} to {max(seconds):.1f} s, median {middle:.1f} s")
    return 1 if flakes else 0


def compare(runs: int) -> int:
    from apache_kafka import ApacheKafka, why_not

    problem = why_not()
    if problem is not None:
        print(problem)
        return 1
    here = SAMPLE / "compare"
    table: list[tuple[str, int, list[float], int, float]] = []
    with installed() as (python, copy):
        for name, file in (("coterie.testing", "test_with_coterie.py"), ("Apache Kafka", "test_with_apache_kafka.py")):
            seconds: list[float] = []
            flakes = 0
            started_in = 0.0
            for number in range(runs):
                environ: dict[str, str] = {}
                before = time.monotonic()
                with _broker_of(ApacheKafka if "apache" in file else None) as bootstrap:
                    started_in = time.monotonic() - before
                    if bootstrap is not None:
                        environ["KAFKA_BOOTSTRAP_SERVERS"] = bootstrap
                    passed, said, took = tested(python, copy, f"compare/{file}", **environ)
                seconds.append(took)
                if not passed:
                    flakes += 1
                    print(said)
                print(f"{name}, run {number + 1}: {last_line(said)}", flush=True)
            table.append((name, lines(here / file), seconds, flakes, started_in))
    print(
        f"\n{'ten tests with':18}{'lines':>7}{'seconds, median':>18}{'start of the broker':>22}{'runs':>6}{'failed':>8}"
    )
    for name, count, seconds, flakes, started_in in table:
        middle = sorted(seconds)[len(seconds) // 2]
        start = f"{started_in:.1f} s" if started_in > 0.01 else "in the tests"
        print(f"{name:18}{count:7}{middle:18.1f}{start:>22}{len(seconds):6}{flakes:8}")
    return 0


@contextmanager
def _broker_of(kind: type | None) -> Iterator[str | None]:
    if kind is None:
        yield None
        return
    with kind({"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "6000"}) as kafka:
        yield kafka.bootstrap


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "soak", "compare"])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--is-busy", action="store_true", help="soak: something else keeps the machine busy already")
    given = parser.parse_args()
    return (
        run()
        if given.what == "run"
        else soak(given.runs, is_busy=given.is_busy)
        if given.what == "soak"
        else compare(given.runs)
    )


if __name__ == "__main__":
    sys.exit(main())
