"""`coterie compare-designs`, as it is called."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from typer.testing import CliRunner

from coterie.cli.app import app
from coterie.history import zookeeper_server
from coterie.history.design_costs import Design

PAGE = Path(__file__).parents[2] / "docs" / "designs"
SMALL = ("--members", "2,3", "--partitions", "6", "--seeds", "6")


def call(*words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["compare-designs", *words])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def test_it_prints_a_table_by_change_and_size_and_the_seed_with_two_owners() -> None:
    code, out, _ = call(*SMALL)
    assert code == 0
    rows = [line for line in out.splitlines() if line.startswith("one joins")]
    assert len(rows) == 2 * len(Design) and rows[0].split()[:6] == ["one", "joins", "2", "1", "watchers", "2"]
    assert "split brain: under design 1 watchers, seed 6, c" in out
    assert "again: coterie compare-designs --members 2 --partitions 6 --seeds 6" in out


def test_it_draws_the_pictures_of_the_page(tmp_path: Path) -> None:
    """If this fails and should: coterie compare-designs --out docs/designs."""
    code, _, err = call("--members", "3", "--seeds", "0", "--out", str(tmp_path / "new"))
    assert code == 0 and str(tmp_path / "new" / "growth.svg") in err
    drawn = {path.name: path.read_text() for path in (tmp_path / "new").iterdir()}
    assert drawn.keys() == {path.name for path in PAGE.iterdir()} == {"growth.svg", "owners.svg", "split-brain.svg"}
    for picture in drawn.values():
        assert ET.fromstring(picture).tag.endswith("svg")
    assert ['class="two"' in drawn[name] for name in ("owners.svg", "split-brain.svg")] == [False, True]
    for name in ("owners.svg", "split-brain.svg"):  # growth.svg takes a minute to draw
        assert drawn[name] == (PAGE / name).read_text(), f"docs/designs/{name} is not what is drawn now"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--members", "1"), "numbers from 2 to 200"),
        (("--members", "3,1000"), "--members 3,1000: "),
        (("--members", "3,few"), "for example 3,10,30"),
        (("--members", ""), "for example 3,10,30"),
        (("--seeds", "x"), "is not a list of numbers"),
    ],
)
def test_what_cannot_be_done_is_said(words: tuple[str, ...], said: str) -> None:
    code, _, err = call(*words)
    assert code == 1 and said in err


def test_without_java_real_is_refused_before_anything_is_done(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    code, out, err = call(*SMALL, "--real")
    assert code == 1 and not out
    assert err.startswith("coterie: --real is not available: ZooKeeper needs Java")


@pytest.mark.parametrize(("missing", "said"), [("kazoo", "kazoo is not installed"), ("pyspark", "pyspark's jars")])
def test_without_what_it_needs_real_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, missing: str, said: str
) -> None:
    monkeypatch.setattr(zookeeper_server, "why_no_java", lambda _: None)
    monkeypatch.setattr(zookeeper_server, "find_spec", lambda name: None if name == missing else find_spec(name))
    code, _, err = call(*SMALL, "--real")
    assert code == 1 and said in err and "pip install " in err and "[history]'" in err
