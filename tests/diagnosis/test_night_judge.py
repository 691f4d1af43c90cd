"""The judge of `make night`: it calls right only what was done, and by whom."""

from __future__ import annotations

from pathlib import Path
from random import Random  # noqa: TID251

import pytest

from coterie.diagnosis import Evidence, Grade, GroupHistory, said
from coterie.facts import Cause
from coterie.ledger.derived import DerivedCause
from diagnosis.script import GROUP, Life
from soak.night_judge import Judge, Score
from soak.night_scenes import EXPIRE, JOIN, Deed, Scene


def scene() -> Scene:
    """What was done: one and two join, one crashes."""
    deeds = [
        Deed("joins", JOIN, "one", True, 0, 10_000),
        Deed("joins", JOIN, "two", True, 10_001, 20_000),
        Deed("crashes", EXPIRE, "one", True, 20_001),
    ]
    return Scene("", Path(), GROUP, Random(0), {"t": 4}, deeds=deeds)


def life() -> GroupHistory:
    """What a source says: the same."""
    found = Life()
    found.join("one", at=1_000)
    found.join("two", at=11_000)
    found.crash("one", at=30_000)
    return found.history()


def judged(history: GroupHistory, kind: str = "crash") -> tuple[Judge, Score]:
    judge = Judge([(kind, scene())], {GROUP: life()})
    return judge, judge.score({GROUP: history})


def test_what_was_done_is_right_and_explains_it() -> None:
    judge, score = judged(life())
    assert score.verdicts == {"right": 3, "vague": 0, "unscripted": 0, "unknown": 0, "wrong": 0}
    assert (score.found, score.missed, score.false, score.unseen) == (1, 0, 0, 0)
    assert judge.not_explained(score) == [] and "precision 100%, recall 100%" in score.line("all")


@pytest.mark.parametrize(
    ("cause", "names_member", "verdict"),
    [
        (DerivedCause.MEMBER_GONE, True, "vague"),
        (Cause.SESSION_EXPIRED, False, "vague"),
        (None, False, "unknown"),
        (Cause.MEMBER_LEFT, True, "wrong"),
        (Cause.NEW_MEMBER, True, "wrong"),
        (Cause.LEADER_REJOINED, True, "unscripted"),
    ],
)
def test_what_says_less_is_not_right(cause: str | None, names_member: bool, verdict: str) -> None:
    history = life()
    last = history.rebalances[-1]
    at = Evidence(Grade.LOGGED, "a", 30_000)
    last.cause = said(None if cause is None else str(cause), at)
    last.member = said(last.member.value if names_member else None, at)
    assert judged(history)[1].verdicts[verdict] == 1


def test_another_member_is_wrong() -> None:
    history = life()
    history.rebalances[-1].member = history.rebalances[1].member
    assert judged(history)[1].verdicts["wrong"] == 1


def test_what_a_source_did_not_see_counts_against_its_recall() -> None:
    history = life()
    del history.rebalances[1]
    judge, score = judged(history)
    assert score.unseen == 1 and "recall 67%" in score.line("a")
    assert judge.not_explained(score) == [f"{GROUP}: two joins"]


def test_findings_that_are_missing_or_about_another_member_or_about_a_quiet_group_are_told() -> None:
    history = life()
    history.members = {name: one for name, one in history.members.items() if one.client_id != "one"}
    _, score = judged(history)
    assert (score.found, score.missed) == (0, 1)
    _, score = judged(life(), kind="quiet")
    assert score.false == 1 and any("false finding crash about one" in line for line in score.told)
