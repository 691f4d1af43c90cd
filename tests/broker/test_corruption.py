"""A part of the corruption matrix (tests/soak/corruption.py): no damage to any kind of file is silent."""

from __future__ import annotations

from random import Random  # noqa: TID251  from a seed

from soak.corruption import SILENT, cases, judge, prepared

SEED = 7


def test_no_damage_is_silent() -> None:
    """Of each kind of file, after a clean stop and after kill -9, two of the ways in which it can be damaged."""
    directories = prepared()
    rng = Random(SEED)
    kinds: dict[tuple[str, str], list[object]] = {}
    every = list(cases(directories, 1, all_files=False, rng=rng))
    for case in every:
        kinds.setdefault((case.kind, case.how), []).append(case)
    chosen = [one for several in kinds.values() for one in rng.sample(several, min(2, len(several)))]
    outcomes = [(case, judge(case, directories[case.how], SEED)) for case in every if case in chosen]
    silent = [(str(case), outcome.why) for case, outcome in outcomes if outcome is not None and outcome.what == SILENT]
    assert not silent
    assert len([outcome for _, outcome in outcomes if outcome is not None]) > 50
