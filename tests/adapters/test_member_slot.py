"""What a member says before it joins, and what it remembers; no broker is needed for that."""

from __future__ import annotations

import subprocess
import sys

import pytest

from coterie.adapters import aiokafka as for_aiokafka
from coterie.adapters import kafka_python as for_kafka_python
from coterie.adapters.member_slot import MemberSlot
from coterie.assignors import CooperativeSticky, Range, Sticky, UnknownAssignorError
from coterie.assignors.sticky import read_generation, read_owned

OWNED = [("t", 0), ("t", 2), ("u", 1)]


def test_a_newcomer_has_nothing_to_tell() -> None:
    told = MemberSlot(Sticky(), rack="a").subscription({"u", "t"})
    assert (told.topics, told.user_data, told.owned, told.generation_id, told.rack) == (["t", "u"], None, {}, -1, "a")


def test_an_eager_member_tells_its_history_in_user_data_only() -> None:
    """It has given everything up by the time it joins, so it owns nothing."""
    slot = MemberSlot(Sticky())
    slot.assigned(OWNED, 3)
    told = slot.subscription({"t", "u"})
    assert told.owned == {}
    assert told.user_data is not None
    owned, generation = read_owned(told.user_data)
    assert ({topic: list(ids) for topic, ids in owned.items()}, generation) == ({"t": [0, 2], "u": [1]}, 3)


def test_a_cooperative_member_tells_what_it_still_owns() -> None:
    """KIP-429: what it no longer subscribes to it has given up before it joins."""
    slot = MemberSlot(CooperativeSticky())
    slot.assigned(OWNED, 3)
    told = slot.subscription({"t"})
    assert (told.owned, told.generation_id) == ({"t": [0, 2]}, 3)
    assert read_generation(told.user_data) == 3


def test_slots_do_not_share_what_they_remember() -> None:
    one, two = MemberSlot(Sticky()), MemberSlot(Sticky())
    one.assigned(OWNED, 3)
    assert two.subscription({"t"}).user_data is None


def test_an_assignor_without_user_data_sends_none() -> None:
    slot = MemberSlot(Range())
    slot.assigned(OWNED, 3)
    assert slot.subscription({"t"}).user_data is None


def test_aiokafka_cannot_be_cooperative() -> None:
    with pytest.raises(for_aiokafka.CooperativeNotSupportedError, match='Use "sticky"'):
        for_aiokafka.adapt("cooperative-sticky")


def test_an_unknown_name_is_told_at_once() -> None:
    with pytest.raises(UnknownAssignorError, match="did you mean"):
        for_kafka_python.adapt("stickyy")


def test_one_adapter_does_not_need_the_other_ones_library() -> None:
    code = "import sys, coterie.adapters.aiokafka; sys.exit('kafka' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
