"""A batch can be read again from its plan alone."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.client.types import TopicPartition
from coterie.errors import MalformedError
from coterie.spark.plan import Plan, Span

partitions = st.builds(TopicPartition, st.text(min_size=1, max_size=5), st.integers(0, 99))
spans = st.tuples(st.integers(0, 2**62), st.integers(0, 2**40)).map(lambda each: Span(each[0], each[0] + each[1]))
plans = st.builds(
    Plan, st.text("0123456789abcdef", min_size=1), st.integers(0, 2**40), st.dictionaries(partitions, spans)
)


@given(plans)
def test_a_plan_survives_the_checkpoint_as_the_same_text(plan: Plan) -> None:
    """Spark compares offsets as text: what it gives back must be what was given, to the letter."""
    text = json.dumps(plan.to_json())
    again = Plan.from_json(json.loads(text))
    assert again == plan
    assert json.dumps(again.to_json()) == text


@pytest.mark.parametrize(
    "data",
    [
        {"orders": {"0": 5}},
        {"query": "a", "plan": 1, "topics": {"t": {"0": {"from": 5, "until": 4}}}},
        {"query": "a", "plan": 1, "topics": {"t": {"0": {"from": -1, "until": 4}}}},
        {"query": "a", "plan": 1, "topics": {"t": {"x": {"from": 1, "until": 4}}}},
        {"query": "a", "plan": 1, "topics": [1]},
        None,
    ],
)
def test_an_offset_of_another_source_is_refused_with_what_to_do(data: Any) -> None:
    with pytest.raises(MalformedError, match="a checkpoint of its own"):
        Plan.from_json(data)
