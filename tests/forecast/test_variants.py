"""Variants, requirements, the choice between them, and the search."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import pytest

from coterie.errors import CoterieError
from coterie.forecast import Crashes, Deploy, Forecast, InTurn, Question, WorldCost, parse_group, variants_of
from coterie.forecast.costs import Spread
from coterie.forecast.variants import World, advice, candidates, choose, parse_requirement, tune

MODEL = parse_group({"members": 8, "topics": {"t": {"partitions": 8, "records_per_s": 1}}}, "test")
QUESTION = Question(MODEL, Deploy())


def a_cost(seed: int, unread_s: float, *, detection_s: float | None = None, lag_s: float = 1.0) -> WorldCost:
    return WorldCost(seed, 2, unread_s, unread_s, 1, lag_s, 1, 0.0, 0, 10.0, detection_s, 1.0, 0, True)


def forecast(question: Question, *unread_s: float, detection_s: float | None = None) -> Forecast:
    costs = [a_cost(seed, value, detection_s=detection_s) for seed, value in enumerate(unread_s)]
    return Forecast(question, costs)


def test_percentiles_are_values_that_occurred() -> None:
    spread = Spread(tuple(float(value) for value in range(1, 11)))
    assert (spread.at(10), spread.median, spread.at(90), spread.at(99), spread.at(100)) == (1, 5, 9, 10, 10)
    assert spread.text == "5 (1-9)" and Spread(()).text == "-" and Spread((1.0, inf)).text == "1 (1-never)"


def test_the_usual_variants_leave_out_what_the_group_has_already() -> None:
    names = [one.name for one in variants_of(QUESTION, ["usual"])]
    assert names[0] == "as it is" and "cooperative" in names and "KIP-848" in names
    static = Question(MODEL.with_settings({"group.instance.id": "each"}), Deploy())
    assert "static members" not in [one.name for one in variants_of(static, ["usual"])]


def test_a_variant_has_settings_and_ways_to_deploy() -> None:
    _, one = variants_of(QUESTION, ["partition.assignment.strategy=cooperative-sticky,range,deploy.batch=4"])
    assert one.model.settings["partition.assignment.strategy"] == "cooperative-sticky,range"
    assert isinstance(one.change, Deploy) and one.change.batch == 4
    with pytest.raises(CoterieError, match="only a deploy"):
        variants_of(Question(MODEL, Crashes()), ["deploy.batch=4"])
    with pytest.raises(CoterieError, match="not a number"):
        variants_of(QUESTION, ["deploy.batch=many"])
    with pytest.raises(CoterieError, match=r"group\.protocol"):
        variants_of(QUESTION, ["group.protocol=new"])


def test_the_best_variant_costs_least_and_is_worth_the_change() -> None:
    static = variants_of(QUESTION, ["group.instance.id=each"])[1]
    better = choose([forecast(QUESTION, 100), forecast(static, 50)], [], "unread_s")
    assert better.best.question is static and "50 instead of 100" in better.reason
    assert "group.instance.id=NAME OF THE MEMBER" in advice(better)
    little = choose([forecast(QUESTION, 100), forecast(static, 95)], [], "unread_s")
    assert not little.is_change and advice(little) == [] and "keep the settings" in little.reason


def test_of_variants_that_are_as_good_the_one_with_fewer_changes_is_recommended() -> None:
    one, two = variants_of(QUESTION, ["group.instance.id=each", "group.instance.id=each,group.protocol=consumer"])[1:]
    found = [forecast(QUESTION, 100), forecast(two, 49), forecast(one, 50)]
    assert choose(found, [], "unread_s").best.question is one


def test_requirements_come_before_the_cost() -> None:
    quick = variants_of(QUESTION, ["session.timeout.ms=6000"])[1]
    found = [forecast(QUESTION, 10, detection_s=45.0), forecast(quick, 30, detection_s=6.0)]
    detection = parse_requirement("detection_s@max=15")
    assert choose(found, [detection], "unread_s").best.question is quick
    impossible = choose(found, [parse_requirement("detection_s=1")], "unread_s")
    assert not impossible.meets_all and impossible.best.question is quick and "not met: 6" in impossible.reason


def test_a_shorter_session_is_advised_with_what_it_rests_on() -> None:
    quick = variants_of(QUESTION, ["session.timeout.ms=6000"])[1]
    told = advice(choose([forecast(QUESTION, 100), forecast(quick, 50)], [], "unread_s"))
    assert told[1] == "session.timeout.ms=6000" and "never pause, which is assumed" in told[-1]


def test_a_requirement_that_no_world_can_judge_is_an_error_and_not_met_in_silence() -> None:
    with pytest.raises(CoterieError, match="needs a crash"):
        choose([forecast(QUESTION, 1)], [parse_requirement("detection_s=15")], "unread_s")


@pytest.mark.parametrize("text", ["lag=1", "worst_lag_s", "worst_lag_s=many", "worst_lag_s@p0=1", "worst_lag_s@99=1"])
def test_what_is_no_requirement_says_how_one_looks(text: str) -> None:
    with pytest.raises(CoterieError, match="worst_lag_s@p99=10"):
        parse_requirement(text)


def test_the_search_leaves_out_sessions_that_cannot_meet_the_detection() -> None:
    tried = list(candidates(QUESTION, [parse_requirement("detection_s=12")]))
    sessions = {one.model.detection_bound_ms for one in tried[1:]}
    assert sessions == {6_000, 10_000}
    assert any(isinstance(one.change, Deploy) and one.change.batch == 2 for one in tried)
    assert any(one.model.is_static for one in tried) and any("group.protocol" in one.model.settings for one in tried)


def test_the_search_leaves_out_what_only_spells_out_a_default() -> None:
    """A session of 10 s is what the group has, and a heartbeat of 3 s is Kafka's default."""
    model = MODEL.with_settings({"session.timeout.ms": "10000"})
    names = [one.name for one in candidates(Question(model, Deploy()), [])]
    assert "session.timeout.ms=10000, heartbeat.interval.ms=3000" not in names
    assert "session.timeout.ms=15000, heartbeat.interval.ms=3000" in names
    assert "group.instance.id=each, session.timeout.ms=10000, heartbeat.interval.ms=3000" in names


def test_the_search_tries_all_with_few_seeds_and_the_best_with_all() -> None:
    """Here a session costs as many partition-seconds as it has seconds: the shortest is the best."""
    ran: list[World] = []

    def run(worlds: Sequence[World]) -> list[WorldCost]:
        ran.extend(worlds)
        return [
            a_cost(seed, one.model.detection_bound_ms / 1_000, detection_s=one.model.detection_bound_ms / 1_000)
            for one, seed in worlds
        ]

    question = Question(MODEL, InTurn((Deploy(), Crashes())))
    bound = parse_requirement("detection_s@p99=30")
    found = tune(question, [bound], range(10), run, "unread_s", lambda _text: None)
    assert found[0].question is question and len(found) == 7
    assert all(len(one.costs) == 10 for one in found)
    best = choose(found, [bound], "unread_s")
    assert best.best.question.model.detection_bound_ms == 6_000 and best.meets_all
    assert len(ran) < 5 * len(list(candidates(question, [bound]))), "most candidates have few seeds"
