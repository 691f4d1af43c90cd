"""Facts as lines on stderr: which, how they look, and that none is lost by being written together."""

from __future__ import annotations

import io
import json
from collections import UserList
from collections.abc import Callable

from coterie.cli.serve import FactLog
from coterie.errors import ErrorCode
from coterie.facts import (
    AssignmentFailed,
    Cause,
    Fact,
    JoinPhaseCompleted,
    MemberJoined,
    MemberLeft,
    MemberRejoined,
    OffsetsStored,
    RebalanceStarted,
)

AT_MS = 45_296_007  # 12:34:56.007 of some day

JOINED = MemberJoined(AT_MS, "g", "a", None, "app", "/10.0.0.1")
LEFT = MemberLeft(AT_MS, "g", "a", None, "bye")
FREQUENT: list[Fact] = [
    MemberRejoined(AT_MS, "g", "a", b"12"),
    OffsetsStored(AT_MS, "g", "a", [("orders", 0, 5)], transactional=False),
]


class Stream(io.StringIO):
    """Counts its writes; one that is broken takes none."""

    writes = 0
    is_broken = False

    def write(self, text: str) -> int:
        if self.is_broken:
            raise BrokenPipeError
        self.writes += 1
        return super().write(text)


def test_what_is_listed_may_be_any_sequence() -> None:
    """A commit is told as it came, in columns."""
    streams = [Stream(), Stream()]
    stored = OffsetsStored(AT_MS, "g", "a", UserList([("orders", 0, 5)]), transactional=False)
    FactLog(streams[0], shows_all=True).tell(stored)
    FactLog(streams[1], as_json=True).tell(stored)
    assert "offsets=[[orders, 0, 5]]" in streams[0].getvalue()
    assert json.loads(streams[1].getvalue())["offsets"] == [["orders", 0, 5]]


def test_a_line_has_its_time_its_kind_its_group_and_what_the_fact_says() -> None:
    stream = Stream()
    log = FactLog(stream)
    log.tell(JOINED)
    log.tell(RebalanceStarted(AT_MS, "g", Cause.NEW_MEMBER, "a", None, 3, ["a", "b", "c", "d"]))
    log.tell(JoinPhaseCompleted(AT_MS, "g", 4, "x", "a", {"a": 1, "b": 2}))
    log.tell(AssignmentFailed(AT_MS, "g", 4, ErrorCode.REQUEST_TIMED_OUT))
    assert stream.getvalue().splitlines() == [
        "12:34:56.007 MemberJoined group=g member=a client=app client_host=/10.0.0.1",
        (
            "12:34:56.007 RebalanceStarted group=g cause=new member member=a generation=3 "
            "waits_for=[a, b, c, and 1 more] group_type=classic"
        ),
        "12:34:56.007 JoinPhaseCompleted group=g generation=4 protocol_name=x leader=a joined_after_ms=[a:1, b:2]",
        "12:34:56.007 AssignmentFailed group=g generation=4 error=REQUEST_TIMED_OUT",
    ]


def test_what_a_client_calls_itself_does_not_look_like_a_line_of_ours() -> None:
    stream = Stream()
    FactLog(stream).tell(MemberLeft(AT_MS, "g\n12:00:00.000 GroupDied", "a", None, None))
    assert stream.getvalue().count("\n") == 1


def test_commits_and_rejoins_are_for_those_who_ask_for_all() -> None:
    shown = {}
    for name, log in _logs().items():
        for fact in FREQUENT:
            log[0].tell(fact)
        shown[name] = len(log[1].getvalue().splitlines())
    assert shown == {"text": 0, "all": 2, "json": 2}


def _logs() -> dict[str, tuple[FactLog, Stream]]:
    streams = [Stream(), Stream(), Stream()]
    return {
        "text": (FactLog(streams[0]), streams[0]),
        "all": (FactLog(streams[1], shows_all=True), streams[1]),
        "json": (FactLog(streams[2], as_json=True), streams[2]),
    }


def test_json_lines_name_the_kind_of_the_fact() -> None:
    log, stream = _logs()["json"]
    log.tell(LEFT)
    log.note("stopping")
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert first["fact"] == "MemberLeft"
    assert second == {"note": "stopping"}


def test_facts_of_one_turn_of_the_loop_are_one_write() -> None:
    stream, later = Stream(), list[Callable[[], None]]()
    log = FactLog(stream)
    log.soon = later.append
    for _ in range(3):
        log.tell(LEFT)
    assert stream.getvalue() == ""
    (flush,) = later
    flush()
    assert (stream.writes, stream.getvalue().count("\n")) == (1, 3)
    log.tell(LEFT)
    assert len(later) == 2  # the next turn is asked for again


def test_nothing_is_lost_and_nothing_overtaken_at_a_note_or_at_the_end() -> None:
    stream = Stream()
    log = FactLog(stream)
    log.soon = lambda _: None  # the loop is over before it comes to it
    log.tell(JOINED)
    log.note("stopping")
    log.tell(LEFT)
    log.flush()
    log.flush()
    kinds = [line.split()[1] for line in stream.getvalue().splitlines()]
    assert kinds == ["MemberJoined", "stopping", "MemberLeft"]


def test_a_stream_that_is_gone_stops_nobody() -> None:
    stream = Stream()
    log = FactLog(stream)
    stream.is_broken = True
    log.tell(JOINED)
    stream.is_broken = False
    log.tell(LEFT)
    assert [line.split()[1] for line in stream.getvalue().splitlines()] == ["MemberLeft"]
