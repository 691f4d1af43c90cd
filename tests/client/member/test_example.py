"""The driver of docs/member.md runs, against a broker on a socket."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[3] / "examples" / "own_driver.py"


@pytest.mark.real_time
def test_two_members_share_and_one_inherits(capsys: pytest.CaptureFixture[str]) -> None:
    """M6, M9: nobody but the membership decides anything."""
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    everything = "orders-0 orders-1 orders-2 orders-3"
    assert "ada: revoked orders-0 orders-1" in lines and "bob: assigned orders-2 orders-3" in lines
    assert lines[-3] == f"bob: assigned {everything}" and lines[-1] == f"bob: revoked {everything}"
    assert 'of group "readers" is Stable for' in lines[-2]
