"""Section 2: every cell of the tables is played, and only `states.py` moves a group.

The cells come from the tables themselves, so a table or a state that nobody plays fails here.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

import coterie.coordinator.classic
from coterie.coordinator.classic import ClassicGroupState, Group
from coterie.coordinator.classic.states import NEXT, TABLES, Answer, GroupAction, enter, resume
from coterie.errors import ErrorCode, IllegalTransitionError
from coterie.facts import GroupCreated, MemberReplaced, RebalanceStarted
from coterie.protocol.messages import OffsetDelete
from coterie.settings.group_coordinator_settings import GroupCoordinatorSettings
from coterie.stories import PARKED, Story


def story_in(state: ClassicGroupState, kind: str = "consumer") -> Story:
    """Members lead, other and idle; the last two have not been heard of since the rebalance began."""
    story = Story(group_max_size=10)
    if state is ClassicGroupState.DEAD:
        for name in ("lead", "other", "idle"):
            story.member(name)
        return story
    lead, other, idle = story.stable("lead", "other", "idle", type=kind)
    story.member("static").joins(instance="i", type=kind)
    story.settle()
    lead.commits({"t:0": 1, "old:0": 2})
    if state is ClassicGroupState.EMPTY:
        for actor in (lead, other, idle, story.member("static")):
            actor.leaves()
            story.advance(ms=60_000)
    elif state in (ClassicGroupState.PREPARING_REBALANCE, ClassicGroupState.COMPLETING_REBALANCE):
        lead.joins()
    if state is ClassicGroupState.COMPLETING_REBALANCE:
        for actor in (other, idle, story.member("static")):
            actor.joins()
    story.expect(state=state)
    return story


def _offset_delete(story: Story) -> str:
    token = story.world.token()
    story.world.send(OffsetDelete(token, story.group_id, [("old", [0])]))
    error = story.world.replies[token].error
    return error.name if error else "ok"


def _said(story: Story) -> str:
    return story.steps[-1].hears


ASK: Mapping[str, Callable[[Story], object]] = {
    "JoinGroup, new member": lambda story: story.member("new").joins(old=True),
    "JoinGroup, known id, same protocols": lambda story: story.actors["other"].joins(id=_id(story, "other")),
    "JoinGroup, the leader, same protocols": lambda story: story.actors["lead"].joins(id=_id(story, "lead")),
    "JoinGroup, known id, changed protocols": lambda story: story.actors["other"].joins(
        id=_id(story, "other"), topics=("t", "u")
    ),
    "JoinGroup, known instance, no id": lambda story: story.member("static").joins(id="", instance="i"),
    "SyncGroup": lambda story: story.actors["other"].syncs(),
    "Heartbeat": lambda story: story.actors["other"].beats(),
    "a member is gone": lambda story: story.actors["other"].leaves(),
    "OffsetCommit, right ids": lambda story: story.actors["other"].commits(
        {"t:0": 9}, gen=story.group.generation_id, v8=True
    ),
    "OffsetCommit, no ids": lambda story: story.actors["other"].commits({"t:0": 9}, gen=-1, id=""),
    "TxnOffsetCommit, right ids": lambda story: story.actors["other"].commits(
        {"t:0": 9}, gen=story.group.generation_id, producer=7
    ),
    "TxnOffsetCommit, no ids": lambda story: story.actors["other"].commits({"t:0": 9}, gen=-1, id="", producer=7),
    "DeleteGroups": lambda story: story.actors["other"].deletes_group(),
    "OffsetDelete": _offset_delete,
}


def _id(story: Story, name: str) -> str:
    return story.actors[name].member_id or "an-id-of-old"


def rebalances(story: Story) -> int:
    return sum(isinstance(fact, RebalanceStarted) for fact in story.world.facts)


@pytest.mark.parametrize(
    ("request_name", "state"), [(name, state) for name, table in TABLES.items() for state in table]
)
def test_every_cell_does_what_the_table_says(request_name: str, state: ClassicGroupState) -> None:
    """Section 2, cell by cell."""
    what: Answer = TABLES[request_name][state]
    story = story_in(state)
    before, generation = rebalances(story), story.group.generation_id
    heard = ASK[request_name](story)
    said = heard if isinstance(heard, str) else _said(story)
    started = rebalances(story) - before
    if isinstance(what, ErrorCode):
        assert said == (what.name if what else "ok")
        assert (story.state, started, story.group.generation_id) == (state, 0, generation)
    elif what is GroupAction.START_REBALANCE:
        assert started == 1
    elif what is GroupAction.PARK:
        assert (started, story.state) == (0, ClassicGroupState.PREPARING_REBALANCE)
        assert said == PARKED
    elif what is GroupAction.REPEAT:
        assert (started, story.state) == (0, state)
        assert said.startswith(("follows gen", "leads gen")) or said == b"other".hex()
    elif what is GroupAction.COLLECT:
        assert (said, story.state) == (PARKED, state)
    elif what is GroupAction.RECHECK:
        assert (started, story.state) == (0, ClassicGroupState.PREPARING_REBALANCE)  # idle has not come yet
        for name in ("idle", "static"):
            story.actors[name].joins()
        assert story.state is ClassicGroupState.COMPLETING_REBALANCE
    elif what is GroupAction.REPLACE:
        assert (started, story.state) == (0, state)
        story.emitted(MemberReplaced, member_id="static")
    elif what in (GroupAction.TAKE, GroupAction.TAKE_IF_CONSUMER):
        assert said == "ok"
        assert started == 0
    elif what is GroupAction.CREATE:
        story.emitted(GroupCreated)
    else:
        assert what is GroupAction.NOTHING
        assert started == 0


@pytest.mark.parametrize(
    "state", [state for state, what in TABLES["OffsetDelete"].items() if what is GroupAction.TAKE_IF_CONSUMER]
)
def test_offset_delete_refuses_groups_of_another_type_that_have_members(state: ClassicGroupState) -> None:
    """Rule 24."""
    assert _offset_delete(story_in(state, kind="connect")) == "NON_EMPTY_GROUP"


@pytest.mark.parametrize("name", list(TABLES))
def test_every_table_answers_in_every_state(name: str) -> None:
    """Section 2: no empty cells, and a way to play each."""
    assert set(TABLES[name]) == set(ClassicGroupState)
    assert name in ASK


@pytest.mark.parametrize("state", list(ClassicGroupState))
@pytest.mark.parametrize("target", list(ClassicGroupState))
def test_a_group_moves_only_along_the_arrows(state: ClassicGroupState, target: ClassicGroupState) -> None:
    """NEXT: anything else is a defect of ours, and says so."""
    group = Group("g", GroupCoordinatorSettings())
    resume(group, state, 0)
    if target in NEXT[state]:
        enter(group, target, 1)
        assert (group.state, group.state_timestamp_ms) == (target, 1)
    else:
        with pytest.raises(IllegalTransitionError, match=f"from {state} to {target}"):
            enter(group, target, 1)
        assert group.state is state


def test_only_states_py_assigns_the_state_of_a_group() -> None:
    """The header of `states.py`."""
    package = Path(coterie.coordinator.classic.__file__).parent
    for path in [*package.glob("*.py"), *(package.parent / "offsets").glob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
                names = [target.attr for target in targets if isinstance(target, ast.Attribute)]
                allowed = path.name == "states.py" or (path.name == "group.py" and isinstance(node, ast.AnnAssign))
                assert allowed or "state" not in names, f"{path.name}:{node.lineno}"
