"""What coordinator and members say to each other, as lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.errors import MalformedError
from coterie.history.server_side_member import (
    CommitRefused,
    CommitRequest,
    MemberHello,
    Message,
    ReadingStopped,
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
