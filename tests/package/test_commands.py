"""Every command, where there is nothing but the wheel, in a directory in which there is nothing at all."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cli_page import commands
from coterie.cli.front_page import TRY_IT
from package.building import ROOT, Environment, ran

WITH_A_BROKER = (
    "topics create orders --partitions 2",
    "produce orders lines.txt",
    "topics list",
    "topics describe orders",
    "topics alter orders --partitions 3",
    "consume orders --group bar --count 3",
    "groups list",
    "groups describe bar",
    "groups members bar",
    "groups state bar",
    "groups why bar",
    "groups findings",
    "groups timeline bar",
    "groups watch bar --for 1 --every 0.5",
    "watch --for 1 --every 0.5",
    "groups reset bar --topic orders --to-earliest",
    "groups remove-members bar --all",
    "groups delete-offsets bar --topic orders",
    "groups delete bar",
    "transactions list",
    "transactions describe",
    "transactions find-hanging",
    "topics reassign orders --to 1",
    "acls add --allow-principal User:bob --consumer --topic orders --group bar",
    "acls list --topic orders",
    "acls remove --allow-principal User:bob --consumer --topic orders --group bar",
    "topics delete orders",
    "report data -o report.html",
)
REFUSED_BY_A_BROKER = {
    "plan group bar --for 1": 'nothing is known about group "bar"',
    "transactions abort --topic orders:0 --start-offset 0": "no transaction in orders-0 begins at offset 0",
}
AFTER_A_BROKER = "repair data"
PLANNED = f"{ROOT}/tests/package/group.toml --seeds 0 --jobs 1"
ALONE = (
    f"plan deploy {PLANNED} --pause 1",
    f"plan scale {PLANNED} --to 3",
    f"plan autoscale {PLANNED} --threshold 50 --minutes 1 --surge-minutes 0.5",
    f"plan crash {PLANNED}",
    f"plan slow {PLANNED} --stall 2",
    f"plan partitions {PLANNED} --topic orders --to 3 --set metadata.max.age.ms=2000",
    f"plan steady {PLANNED} --minutes 1",
    f"plan tune {PLANNED} --pause 1 --at-most detection_s=7",
    f"assign --compare --leave m1 < {ROOT}/examples/group.jsonl",
    f"explain {ROOT}/tests/diagnosis/recorded/kafka-4.3.1.log",
    "sim --seed 1 --hours 0.01",
    "compare-designs --members 2 --partitions 2 --seeds 0 --out pictures",
)
NEEDS = {
    "pipeline groups --out tables": (
        "No module named 'pyspark'",
        "this command needs Spark, and Java 17 or later: pip install '",
    ),
    "pipeline topics orders --group lake --schema orders.ddl --out lake": (
        "No module named 'pyspark'",
        "this command needs Spark, and Java 17 or later: pip install '",
    ),
    "pipeline show rebalances --out tables": (
        "No module named 'pyarrow'",
        "pyarrow is needed to read the Parquet tables: pip install '",
    ),
    "web": ("the page needs starlette: pip install '", "[web]'"),
    "migrate --from 127.0.0.1:1 --to 127.0.0.1:1": ("cannot connect to 127.0.0.1:1: connection refused", ""),
    "compare-designs --members 2 --seeds 0 --real": ("--real is not available: ZooKeeper", ""),
}
"""What is missing, and how to come by it; ZooKeeper lacks Java or pyspark, and a migration its clusters."""
OF_EXTRAS = (
    *("coterie.adapters.", "coterie.spark.", "coterie.history."),
    *("coterie.migration.range_copy", "coterie.migration.spark_jobs"),
    *("coterie.cli.demo.", "coterie.testing.plugin", "coterie.web.app", "pyspark_coterie"),
)
MAY_BE_MISSING = {"aiokafka", "kafka", "kazoo", "numpy", "pandas", "pyarrow", "pyspark", "pytest", "starlette"}
IMPORT_ALL = """
import importlib, json, pkgutil, coterie
missing = {}
found = [one.name for one in pkgutil.walk_packages(coterie.__path__, "coterie.")] + ["pyspark_coterie"]
for name in found:
    if not name.endswith("__main__"):
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            missing[name] = error.name.partition(".")[0]
print(json.dumps([len(found), missing]))
"""


@contextmanager
def serving(bare: Environment, *words: str) -> Iterator[str]:
    """Where it listens."""
    command = [str(bare.program("coterie")), "serve", "--port", "0", *words]
    with subprocess.Popen(command, cwd=bare.empty, stdout=subprocess.PIPE, text=True) as broker:
        assert broker.stdout is not None
        try:
            yield broker.stdout.readline().removeprefix("ready ").strip()
        finally:
            broker.send_signal(signal.SIGTERM)
            assert broker.wait(60) == 0


@pytest.mark.real_time
def test_what_the_front_page_says_to_try_works(bare: Environment) -> None:
    coterie, _, options = TRY_IT[0].partition(" serve ")
    assert coterie == "coterie"
    with serving(bare, *options.split()) as bootstrap:
        code, said = bare.shell(TRY_IT[1], COTERIE_BOOTSTRAP=bootstrap)
    assert code == 0
    assert [line for line in said.splitlines() if line.isdigit()] == ["1", "2", "3"], said


@pytest.mark.real_time
def test_commands_that_need_a_cluster_work_with_a_broker(bare: Environment) -> None:
    (bare.empty / "lines.txt").write_text("coffee\ntea\nwater\n")
    settings = ("group.initial.rebalance.delay.ms=0", "authorizer.class.name=StandardAuthorizer")
    options = [f"--set={setting}" for setting in (*settings, "super.users=User:ANONYMOUS")]
    with serving(bare, "--data", "data", *options) as bootstrap:
        for line in WITH_A_BROKER:
            code, said = bare.coterie(*line.split(), COTERIE_BOOTSTRAP=bootstrap)
            assert code == 0 and "Traceback" not in said, f"{line}\n{said}"
            for refused, why in REFUSED_BY_A_BROKER.items() if line == "topics list" else ():
                code, said = bare.coterie(*refused.split(), COTERIE_BOOTSTRAP=bootstrap)
                assert code == 1 and why in said, f"{refused}\n{said}"
    page = (bare.empty / "report.html").read_text()
    assert "new member" in page and "<svg" in page
    code, said = bare.coterie(*AFTER_A_BROKER.split())
    assert code == 0 and "no damage found" in said, said


@pytest.mark.parametrize("line", ALONE, ids=lambda line: line.split()[0])
def test_commands_that_need_nobody_work(line: str, bare: Environment) -> None:
    code, said = bare.shell(f"coterie {line}")
    assert code == 0 and said and "Traceback" not in said, said


@pytest.mark.parametrize("line", NEEDS)
def test_what_is_missing_is_named_with_the_command_that_brings_it(line: str, bare: Environment) -> None:
    code, said = bare.coterie(*line.split())
    what, how = NEEDS[line]
    assert code == 1 and said.startswith("coterie: ") and said.count("\n") == 1, said
    assert what in said and how in said, said


@pytest.mark.real_time
def test_the_demonstration_goes_on_without_spark_and_says_so(bare: Environment) -> None:
    command = [str(bare.program("coterie")), "demo", "--out", "demo"]
    with subprocess.Popen(command, cwd=bare.empty, stdout=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        first = demo.stdout.readline()
        while "the first members process them" not in demo.stdout.readline():
            assert demo.poll() is None, "it has ended"
        demo.send_signal(signal.SIGINT)
        demo.stdout.read()
        assert demo.wait(60) == 130
    assert first.startswith("Running without Spark: pyspark is not installed (pip install '") and "[spark]'" in first


def test_every_command_is_tried_here() -> None:
    elsewhere = {"coterie serve", "coterie demo"}
    tried = {f"coterie {line}" for line in (*WITH_A_BROKER, *REFUSED_BY_A_BROKER, AFTER_A_BROKER, *ALONE, *NEEDS)}
    left = [name for name, _ in commands() if not any(line.startswith(name) for line in tried)]
    assert set(left) == elsewhere


def test_of_the_modules_only_those_of_an_extra_lack_something(bare: Environment) -> None:
    code, said = ran([bare.program("python"), "-c", IMPORT_ALL], bare.empty)
    assert code == 0, said
    count, missing = json.loads(said.splitlines()[-1])
    assert count > 300
    assert set(missing.values()) <= MAY_BE_MISSING, missing
    strange = [name for name in missing if not name.startswith(OF_EXTRAS)]
    assert strange == [], {name: missing[name] for name in strange}


def test_it_is_also_a_module(bare: Environment, tmp_path: Path) -> None:
    code, said = ran([bare.program("python"), "-m", "coterie", "--version"], tmp_path)
    assert (code, said) == bare.coterie("--version")
