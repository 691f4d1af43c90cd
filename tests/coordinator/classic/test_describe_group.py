"""Rule 25: what can be seen of a group from outside, in each state."""

from __future__ import annotations

from coterie.coordinator.classic import ClassicGroupState
from coterie.errors import ErrorCode
from coterie.protocol.messages import DescribedGroup, DescribeGroup, ListedGroup, ListGroups
from coterie.stories import Story


def describe(story: Story) -> DescribedGroup:
    token = story.world.token()
    story.world.send(DescribeGroup(token, story.group_id))
    answer = story.world.replies[token]
    assert isinstance(answer, DescribedGroup)
    return answer


def test_an_absent_group_is_dead(group: Story) -> None:
    """Rule 25: NONE or GROUP_ID_NOT_FOUND, by version; the api file decides."""
    assert describe(group) == DescribedGroup("g", "Dead", members=[], exists=False)


def test_protocol_and_metadata_show_only_while_stable_and_assignments_always(group: Story) -> None:
    """Rule 25: the previous assignments while Preparing from Stable."""
    a, b = group.stable("a", "b")
    stable = describe(group)
    assert (stable.state, stable.protocol_type, stable.protocol_name) == ("Stable", "consumer", "range")
    assert {m.client_host for m in stable.members} == {"/127.0.0.1"}
    assert all(m.metadata for m in stable.members)
    a.joins()
    preparing = describe(group)
    assert (preparing.state, preparing.protocol_type, preparing.protocol_name) == ("PreparingRebalance", "consumer", "")
    assert {m.member_id: m.assignment for m in preparing.members} == {a.member_id: b"a", b.member_id: b"b"}
    assert not any(m.metadata for m in preparing.members)
    b.joins()
    completing = describe(group)
    assert {m.assignment for m in completing.members} == {b"a", b"b"}
    group.member("c").joins(old=True)
    assert {m.assignment for m in describe(group).members} == {b""}  # after a rebalance from Completing


def test_members_are_described_in_map_order(group: Story) -> None:
    """Rules 7, 25."""
    group.stable("x", "y", "z")
    assert [m.member_id for m in describe(group).members] == [m.member_id for m in group.group.in_map_order()]


def test_lists_are_filtered_without_regard_to_case(group: Story) -> None:
    """Rule 25: unknown values match nothing."""
    group.stable("a")
    other = Story()
    other.world = group.world
    other.group_id = "simple"
    other.member("s").commits({"t:0": 1}, gen=-1)

    def rows(*states: str, types: tuple[str, ...] = ()) -> list[ListedGroup]:
        token = group.world.token()
        group.world.send(ListGroups(token, states, types))
        answer = group.world.replies[token]
        assert answer.error is ErrorCode.NONE
        return list(answer.groups)

    assert rows() == [
        ListedGroup("g", "consumer", "Stable", "classic"),
        ListedGroup("simple", "", "Empty", "classic"),
    ]
    assert [row.group_id for row in rows("stable")] == ["g"]
    assert [row.group_id for row in rows("EMPTY", "Stable")] == ["g", "simple"]
    assert rows("assignment_error") == []
    assert len(rows(types=("Classic",))) == 2
    assert rows(types=("consumer",)) == []
    group.expect(state=ClassicGroupState.STABLE)
