"""The questions that the rules of offsets ask a group: each type of groups answers all of them."""

from __future__ import annotations

import inspect

import pytest

from coterie.coordinator.classic import Group
from coterie.coordinator.consumer import ConsumerGroup
from coterie.coordinator.offsets.offsets_group import OffsetsGroup

QUESTIONS = [
    name
    for name, member in vars(OffsetsGroup).items()
    if inspect.isfunction(asks := getattr(member, "fget", member))
    and "raise NotImplementedError" in inspect.getsource(asks)
]


@pytest.mark.parametrize("kind", [Group, ConsumerGroup])
def test_a_type_of_groups_answers_every_question(kind: type[OffsetsGroup]) -> None:
    assert "validate_offset_commit" in QUESTIONS and "is_dead" in QUESTIONS
    assert [name for name in QUESTIONS if name not in vars(kind)] == []
