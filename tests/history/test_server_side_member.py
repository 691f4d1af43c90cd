"""What coordinator and members say to each other, as lines; and a member that is told things in quick succession."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.errors import MalformedError
from coterie.history.design_types import (
    Effects,
    MessageReceived,
    SendMessage,
    SessionBegan,
    StartReading,
    Stopped,
    StopReading,
)
from coterie.history.server_side_member import (
    CommitRefused,
    CommitRequest,
    MemberHello,
    Message,
    ReadingStopped,
    ServerSideMember,
    StartReadingRequest,
    StopReadingRequest,
    read_message,
    write_message,
)

NUMBERS = st.integers(0, 1 << 40)
OFFSETS = st.dictionaries(st.tuples(st.text(max_size=5), st.integers(0, 1000)), NUMBERS, max_size=4)
MESSAGES: st.SearchStrategy[Message] = st.one_of(
    st.builds(MemberHello, st.text(max_size=9), st.text(max_size=9), NUMBERS),
    st.builds(StopReadingRequest, NUMBERS),
    st.builds(CommitRefused, NUMBERS),
    st.builds(ReadingStopped, NUMBERS, OFFSETS),
    st.builds(StartReadingRequest, NUMBERS, OFFSETS),
    st.builds(CommitRequest, NUMBERS, OFFSETS),
)


@given(MESSAGES)
def test_what_is_written_is_read_back_and_is_one_line(message: Message) -> None:
    line = write_message(message)
    assert read_message(line) == message
    assert line.count(b"\n") == 1 and line.endswith(b"\n")


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"hello\n",
        b"[]\n",
        b"null\n",
        b"{}\n",
        b'{"kind": "Shout"}\n',
        b'{"kind": "StopReadingRequest"}\n',
        b'{"kind": "StopReadingRequest", "generation": 1, "more": 2}\n',
        b'{"kind": "StartReadingRequest", "generation": 1, "offsets": 7}\n',
        b'{"kind": "StartReadingRequest", "generation": 1, "offsets": [[1]]}\n',
        b"\xff\xfe\n",
    ],
)
def test_what_is_no_message_is_called_so(line: bytes) -> None:
    with pytest.raises(MalformedError, match="not a message"):
        read_message(line)


# --- the member -------------------------------------------------------------------------------------------------------

P0 = ("t", 0)


def told(member: ServerSideMember, message: Message) -> Effects:
    return member.handle(MessageReceived(message), 0)


@pytest.fixture
def member() -> ServerSideMember:
    one = ServerSideMember("g", "c0", ["t"])
    one.handle(SessionBegan(1), 0)
    return one


def test_an_assignment_that_comes_while_reading_is_being_stopped_is_taken_then(member: ServerSideMember) -> None:
    """The coordinator does not wait for a member that owns nothing: stop and start may come one behind the other."""
    assert told(member, StopReadingRequest(1)) == [StopReading()]
    assert told(member, StartReadingRequest(2, {P0: 5})) == []
    assert member.handle(Stopped({}), 0) == [StartReading({P0: 5})]
    assert (member.generation, member.reads) == (2, frozenset({P0}))


def test_of_that_assignment_nothing_is_left_if_another_stop_or_session_follows(member: ServerSideMember) -> None:
    for overtakes in (MessageReceived(StopReadingRequest(2)), SessionBegan(2)):
        told(member, StopReadingRequest(1))
        told(member, StartReadingRequest(2, {P0: 5}))
        member.handle(overtakes, 0)
        assert StartReading({P0: 5}) not in member.handle(Stopped({}), 0) and not member.reads


def test_an_assignment_of_an_earlier_rebalance_is_not_taken_after_the_stop(member: ServerSideMember) -> None:
    told(member, StopReadingRequest(2))
    assert told(member, StartReadingRequest(2, {P0: 5})) == []
    effects = member.handle(Stopped({}), 0)
    assert not member.reads and not [one for one in effects if not isinstance(one, SendMessage)]
