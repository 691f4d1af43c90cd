"""What goes wrong with a command is one message on stderr and an exit status, for every command; never a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from coterie.cli import sim
from coterie.cli.app import app
from coterie.cli.demo.demo_steps import DemoGroup, DemoRun, static_deploy
from coterie.errors import CoterieError
from coterie.extras import how_to_install
from coterie.facts import Fact, MemberExpired, MemberJoined, MemberReplaced


def call(*words: str) -> Result:
    result = CliRunner().invoke(app, words)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The directory of a broker whose groups have done nothing yet."""
    (tmp_path / "data" / "__consumer_offsets-0").mkdir(parents=True)
    return tmp_path / "data"


def test_a_workload_that_does_not_exist_is_one_line() -> None:
    done = call("sim", "--workload", "nosuch")
    assert done.exit_code == 1 and done.stdout == ""
    assert (
        done.stderr.startswith("coterie: unknown workload 'nosuch'; the workloads are ")
        and done.stderr.count("\n") == 1
    )


def test_a_report_that_cannot_be_written_is_one_line(data: Path, tmp_path: Path) -> None:
    page = tmp_path / "nosuch" / "page.html"
    done = call("report", str(data), "-o", str(page))
    assert (done.exit_code, done.stderr) == (1, f"coterie: {page}: no such file or directory\n")


def test_a_demonstration_that_has_no_place_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "afile").write_text("")
    for place in (tmp_path / "afile", tmp_path / "afile" / "home"):
        done = call("demo", "--no-spark", "--out", str(place))
        assert done.exit_code == 1
        assert done.stderr.splitlines()[-1] == f"coterie: {place}: not a directory"


def test_a_data_directory_that_is_a_file_is_called_so(tmp_path: Path) -> None:
    (tmp_path / "afile").write_text("")
    said = f"{tmp_path / 'afile'}: is a file, not a directory\n"
    assert call("serve", "--data", str(tmp_path / "afile")).stderr == f"coterie: --data {said}"
    assert call("serve", "--set", f"log.dirs={tmp_path / 'afile'}").stderr == f"coterie: log.dirs {said}"


def test_a_dash_is_stdout(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = call("report", str(data), "-o", "-")
    assert done.exit_code == 0 and done.stdout.startswith("<!doctype html>")
    assert not Path("-").exists()


def test_an_interrupt_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sim, "sim", interrupted)
    assert call("sim").exit_code == 130


def test_a_hint_names_what_can_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no `coterie` on an index."""

    class Installed:
        def __init__(self, noted: str | None) -> None:
            self.noted = noted

        def read_text(self, name: str) -> str | None:
            assert name == "direct_url.json"
            return self.noted

    hints = {
        '{"url": "file:///home/me/a%20clone", "dir_info": {"editable": true}}': "pip install -e '/home/me/a clone[x]'",
        '{"url": "file:///tmp/coterie-1-py3-none-any.whl"}': "pip install '/tmp/coterie-1-py3-none-any.whl[x]'",
        '{"url": "https://example.org/c.whl"}': "pip install 'PATH[x]', where PATH is a clone of Coterie or its wheel",
        "": "pip install 'PATH[x]', where PATH is a clone of Coterie or its wheel",
    }
    for noted, hint in hints.items():
        monkeypatch.setattr("importlib.metadata.distribution", lambda _, noted=noted: Installed(noted or None))
        assert how_to_install("x") == hint


# --- a static member whose session expired in the demonstration -------------------------------------------------------


class BusyGroup(DemoGroup):
    """The machine is so busy that the session of a static member expires before its process is up again."""

    def __init__(self) -> None:
        self.facts: list[Fact] = [MemberJoined(0, "shop", "a-1", "shop-1", "static-1", "h")]
        self.next_facts: list[Fact] = []

    @property
    def rebalances(self) -> list[object]:  # type: ignore[override]
        return [fact for fact in self.facts if isinstance(fact, MemberExpired)]

    def end(self, *_: object, **__: object) -> None:
        pass

    def start_member(self, name: str, **_: object) -> None:
        assert name == "static-1"
        self.facts += self.next_facts

    def wait(self, condition: object, what: str) -> None:
        assert callable(condition)
        if not condition():
            raise CoterieError(f"waited 240 s in vain for {what}")

    def wait_for(self, *_: object) -> None:
        pass


@pytest.mark.parametrize("is_late", [True, False])
def test_the_demonstration_goes_on_after_the_session_of_a_static_member_expired(is_late: bool) -> None:
    stage = BusyGroup()
    back: list[Fact] = [MemberReplaced(9, "shop", "a-2", "a-1", "shop-1")]
    late: list[Fact] = [
        MemberExpired(8, "shop", "a-1", 6_000, never_heard=False),
        MemberJoined(9, "shop", "a-2", "shop-1", "static-1", "h"),
    ]
    stage.next_facts = late if is_late else back
    plot = DemoRun(stage, 1, 2, has_spark=False, present=["static-1"])
    static_deploy(plot)
    assert (plot.static_rebalances, plot.static_expired) == ((1, 1) if is_late else (0, 0))
