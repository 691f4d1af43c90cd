"""Our broker answers as Apache Kafka 4.3.1 was recorded to answer, but for the rows of differences.toml.

Not one rule but all of them: what the cases are about is in conformance/cases, and each file there says which.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from conformance.cases import FAMILIES
from conformance.cases.family import Family
from conformance.compare import ELSEWHERE, ROWS, Difference, Found, compare
from conformance.ours import OurBroker
from conformance.profiles import PROFILES
from conformance.script import REQUESTS, Case, parse
from conformance.transcript import RECORDED, Transcript, read, write
from coterie.protocol.api import APIS

ROOT = Path(__file__).parent.parent.parent
BY_NAME = {family.name: family for family in FAMILIES}


@cache
def recorded(family: str) -> list[Transcript]:
    return read(RECORDED / BY_NAME[family].file)[1]


@cache
def differences(family: str) -> list[tuple[Found, Difference | None]]:
    broker = OurBroker(PROFILES[BY_NAME[family].profile])
    setups = {one.case.name: one for one in recorded("setups")}
    return [each for one in recorded(family) for each in compare(broker, one, setups)]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_we_answer_as_kafka_did(family: Family) -> None:
    unexplained = [str(found) for found, row in differences(family.name) if row is None]
    assert not unexplained, f"{len(unexplained)} of them:\n" + "\n".join(unexplained[:5])


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_what_was_recorded_is_what_the_tables_ask(family: Family) -> None:
    profile, transcripts = read(RECORDED / family.file)
    assert profile == family.profile
    assert [one.case for one in transcripts] == list(family.cases), "record again: make conformance KEEP=1"


def test_nothing_is_recorded_that_no_table_asks() -> None:
    assert {path.name for path in RECORDED.iterdir()} == {family.file for family in FAMILIES}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.what)
def test_a_difference_that_is_meant_is_met(row: Difference) -> None:
    """A row that explains nothing would hide the next mistake."""
    met = {used for family in FAMILIES for _, used in differences(family.name) if used is not None}
    assert row in met


@pytest.mark.parametrize("row", ELSEWHERE, ids=lambda row: row["what"])
def test_a_difference_that_no_case_shows_is_held_by_a_test(row: dict[str, str]) -> None:
    path, _, name = row["held_by"].partition("::")
    assert f"def {name}(" in (ROOT / path).read_text()


def test_thousands_of_steps_in_every_version_were_recorded() -> None:
    asked = {
        (step.what, step.version)
        for family in FAMILIES
        for case in family.cases
        for step in map(parse, case.steps)
        if step.kind is not None
    }
    assert asked == {(what, version) for what, kind in REQUESTS.items() for version in kind.versions}
    assert sum(len(case.steps) for family in FAMILIES for case in family.cases) > 20_000


def test_the_versions_that_were_asked_are_all_that_we_serve() -> None:
    ours = {row.module_name: row.versions for row in APIS}
    for kind in REQUESTS.values():
        assert kind.versions == ours[kind.api], kind.api


def test_the_replay_notices_another_answer() -> None:
    """A recording that says something else than Kafka did is refused, whatever the place."""
    (one,) = [one for one in recorded("setups") if one.case.name == "Stable"]
    broker = OurBroker(PROFILES["plain"])
    assert not list(compare(broker, one, {}))
    for at, heard in enumerate(one.heard):
        if heard:
            wrong = [{**heard, min(heard): {"error_code": "NONE"}} if at == index else each
                     for index, each in enumerate(one.heard)]  # fmt: skip
            (found,) = list(compare(broker, Transcript(one.case, wrong, one.made), {}))
            assert found[0].number == min(heard) and found[1] is None


def test_a_transcript_is_read_as_it_was_written(tmp_path_factory: pytest.TempPathFactory) -> None:
    heard = [{}, {1: {"error_code": "X", "members": [{"member_id": "a1"}]}, 2: {}}]
    made = {1: "0d6f2cf4-6a3b-4b57-8ec4-33a5e8ae3b1d"}
    written = [Transcript(Case("one", ("a join", "b join v3"), "Stable"), heard, made), Transcript(Case("two", ()), [])]
    path = tmp_path_factory.mktemp("recorded") / "some.txt"
    write(path, "plain", written)
    assert read(path) == ("plain", written)


@pytest.mark.parametrize("text", ["a join v77", "a jump", "a join colour=red", "wait", "restart now"])
def test_a_step_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=text):
        parse(text)
