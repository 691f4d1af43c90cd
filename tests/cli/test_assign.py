"""`coterie assign`, as it is called."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from coterie.cli.app import app

VECTORS = Path(__file__).parent.parent / "assignors" / "vectors"
CASE = json.dumps(
    {
        "id": "orders",
        "topics": {"t0": 4, "t1": 4},
        "members": [
            {"id": "m1", "topics": ["t0", "t1"], "owned": [["t0", [0, 1]], ["t1", [0, 1]]]},
            {"id": "m2", "topics": ["t0", "t1"], "owned": [["t0", [2, 3]], ["t1", [2, 3]]]},
        ],
    }
)


def call(*words: str, given: str = CASE) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["assign", *words], input=given)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.stdout, result.stderr


def test_a_case_a_line_gives_an_assignment_a_line() -> None:
    code, out, _ = call("range", given=CASE + "\n\n" + CASE)
    lines = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert lines[0] == lines[1]
    assert lines[0]["id"] == "orders"
    assert lines[0]["assignment"]["m1"] == [["t0", [0, 1]], ["t1", [0, 1]]]


@pytest.mark.parametrize("name", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_the_vectors_are_cases(name: str) -> None:
    given = (VECTORS / f"assignors-{name}.jsonl").read_text(encoding="utf-8")
    code, out, _ = call(name, given=given)
    answers = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [answer["id"] for answer in answers] == [json.loads(line)["id"] for line in given.splitlines()]
    assert all("assignment" in answer for answer in answers)


def test_a_bad_line_is_answered_and_the_next_one_too() -> None:
    code, out, _ = call("sticky", given='nonsense\n{"id": "q", "topics": 1}\n' + CASE)
    first, second, third = [json.loads(line) for line in out.splitlines()]
    assert first == {"id": None, "error": "line 1: not JSON: Expecting value at column 1"}
    assert second["id"] == "q"
    assert second["error"].startswith("line 2: topics must be an object")
    assert "assignment" in third
    assert code == 1


def test_bytes_that_are_no_text_are_a_bad_line_too() -> None:
    result = CliRunner().invoke(app, ["assign", "range"], input=b"\xff\xfe{\n")
    assert json.loads(result.stdout)["error"].startswith("line 1: not JSON")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["stiky"], 'unknown assignor "stiky"'),
        ([], "name one assignor"),
        (["range", "sticky"], "name one assignor"),
        (["range", "--leave", "m1"], "need --compare"),
        (["--compare", "--leave", "m7"], 'no member "m7" to leave; members are m1, m2'),
        (["--compare", "--join", "m1"], 'member "m1" is there already'),
        (["--compare", "--grow", "t0"], "--grow takes TOPIC=PARTITIONS"),
        (["--compare", "--grow", "t0=2"], "cannot shrink"),
        (["--compare", "--case", "nothing"], 'no group on standard input has the id "nothing"'),
    ],
)
def test_a_mistake_is_told_in_one_line(words: list[str], says: str) -> None:
    code, out, err = call(*words)
    assert code == 2
    assert not out
    assert says in err
    assert err.startswith("coterie assign: ")


def rows(out: str) -> dict[tuple[str, str], list[str]]:
    table: dict[tuple[str, str], list[str]] = {}
    name = ""
    for line in out.splitlines():
        cells = [cell.strip() for cell in line.strip("│").split("│")]
        if line.startswith("│"):
            name = cells[0] or name
            table[name, cells[1]] = cells[2:]
    return table


def test_assignors_are_compared_side_by_side() -> None:
    code, out, _ = call("--compare", "--leave", "m2", "--join", "m3", "--join", "m4=t0", "--grow", "t1=6")
    table = rows(out)
    assert code == 0
    assert list(dict.fromkeys(name for name, _ in table)) == ["range", "roundrobin", "sticky", "cooperative-sticky"]
    assert table["range", "now"] == ["4", "32", "0", "-", "1"]
    assert table["roundrobin", "now"][2] == "4"  # it deals in turn, and so takes half of what everyone has
    assert table["sticky", "then"] == ["3 to 4", "34", "1", "-", "1"]


def test_racks_are_counted_where_there_are_some() -> None:
    case = json.loads(CASE)
    case["racks"] = {"t0": [["a"], ["a"], ["b"], ["b"]]}
    for member, rack in zip(case["members"], "ab", strict=True):
        member["rack"] = rack
    _, out, _ = call("--compare", given=json.dumps(case))
    assert rows(out)["range", "now"][3] == "4 of 8"


def test_a_group_that_owns_nothing_starts_from_each_assignors_own_answer() -> None:
    scratch = json.dumps(
        {
            "topics": {"t": 6},
            "members": [{"id": "m1", "topics": ["t"]}, {"id": "m2", "topics": ["t"]}, {"id": "m3", "topics": ["t"]}],
        }
    )
    table = rows(call("sticky", "range", "cooperative-sticky", "--compare", "--leave", "m1", given=scratch)[1])
    assert table["sticky", "then"][2] == "0"
    assert table["range", "then"][2] == "1"
    assert table["cooperative-sticky", "then"][4] == "1"


def test_a_case_is_picked_by_its_id() -> None:
    other = CASE.replace("orders", "other")
    assert "other: 2 members" in call("--compare", "--case", "other", given=f"junk\n{CASE}\n{other}")[1]


def test_help_shows_what_to_type() -> None:
    out = CliRunner().invoke(app, ["assign", "--help"]).stdout
    assert "coterie assign sticky < groups.jsonl" in out
    assert "--grow" in out


def test_the_command_line_loads_a_command_only_when_it_is_called() -> None:
    code = "import sys, coterie.cli.app; sys.exit('coterie.assignors' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
