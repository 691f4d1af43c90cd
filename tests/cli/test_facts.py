"""Facts as lines on stderr: which, how they look, and that none is lost by being written together."""

from __future__ import annotations

import io
import json
from collections import UserList
from collections.abc import Callable

from coterie.broker.broker_facts import Trouble
from coterie.cli.serve_log import FactLog
from coterie.errors import ErrorCode
from coterie.facts import (
    AssignmentFailed,
    AssignmentStored,
    Cause,
    Fact,
    GroupCreated,
    JoinPhaseCompleted,
    MemberAssigned,
    MemberExpired,
    MemberJoined,
    MemberLeft,
    MemberRejoined,
    OffsetsStored,
    RebalanceStarted,
)
from coterie.protocol.subscription import Assignment, Subscription, write_assignment, write_subscription

AT_MS = 45_296_007  # 12:34:56.007 of the first day
TIME = "1970-01-01T12:34:56.007Z"

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
    FactLog(streams[1], as_json=True, shows_all=True).tell(stored)
    assert " offsets=orders-0@5" in streams[0].getvalue()
    assert json.loads(streams[1].getvalue())["offsets"] == [["orders", 0, 5]]


def test_a_line_has_its_time_its_level_its_event_its_group_and_what_the_fact_says() -> None:
    assert (
        told(JOINED) == f"time={TIME} level=info event=MemberJoined group=g member=a client=app client_host=/10.0.0.1"
    )
    assert told(RebalanceStarted(AT_MS, "g", Cause.NEW_MEMBER, "a", None, 3, ["a", "b", "c", "d"])) == (
        f'time={TIME} level=info event=RebalanceStarted group=g cause="new member" member=a generation=3 '
        'waits_for="a, b, c, and 1 more" group_type=classic'
    )
    assert told(JoinPhaseCompleted(AT_MS, "g", 4, "x", "a", {"a": 1, "b": 2})) == (
        f"time={TIME} level=info event=JoinPhaseCompleted group=g generation=4 protocol_name=x leader=a "
        'joined_after_ms="a:1, b:2"'
    )
    assert told(AssignmentFailed(AT_MS, "g", 4, ErrorCode.REQUEST_TIMED_OUT)) == (
        f"time={TIME} level=error event=AssignmentFailed group=g generation=4 error=REQUEST_TIMED_OUT"
    )


def test_what_is_wrong_has_a_level_that_says_so() -> None:
    assert " level=warn " in told(MemberExpired(AT_MS, "g", "a", 45_000, never_heard=False))
    assert " level=error " in told(Trouble(AT_MS, "", "the disk is full"))
    assert " level=debug " in told(FREQUENT[0], shows_all=True)


def test_a_flag_is_shown_if_it_is_true() -> None:
    assert "never_heard" not in told(MemberExpired(AT_MS, "g", "a", 45_000, never_heard=False))
    assert told(MemberExpired(AT_MS, "g", "a", 45_000, never_heard=True)).endswith(" never_heard=true")
    assert told(GroupCreated(AT_MS, "g", simple=False)).endswith(" event=GroupCreated group=g")


def test_an_assignment_is_shown_as_partitions() -> None:
    numbers = [0, 1, 2, 3, 7, *range(20, 60, 2)]
    assignments = {
        "a": write_assignment(Assignment({"orders": [3, 0, 2, 1], "tea": [5]})),
        "b": write_assignment(Assignment({})),
        "c": b"not a consumer",
    }
    stored = told(AssignmentStored(AT_MS, "g", 4, assignments))
    assert stored.endswith(' assignments="a:orders[0-3] tea[5], b:nothing, c:unknown"')
    assigned = told(MemberAssigned(AT_MS, "g", "a", 4, "Stable", {"orders": numbers}, {}), shows_all=True)
    assert assigned.endswith('assigned="orders[0-3,7,20,22,24,26,28,30,and 14 more]"')
    owner = write_subscription(Subscription(["orders"], owned={"orders": [1, 2]}))
    assert told(MemberRejoined(AT_MS, "g", "a", owner), shows_all=True).endswith(" owns=orders[1-2]")
    assert told(MemberRejoined(AT_MS, "g", "a", b"12"), shows_all=True).endswith(" owns=unknown")


def told(fact: Fact, *, shows_all: bool = False) -> str:
    stream = Stream()
    FactLog(stream, shows_all=shows_all).tell(fact)
    (line,) = stream.getvalue().splitlines()
    return line


def test_all_of_the_log_has_the_joins_of_a_phase() -> None:
    owner = write_subscription(Subscription(["orders"], owned={"orders": [1, 2]}))
    phase = JoinPhaseCompleted(AT_MS + 9, "g", 4, "x", "a", {"a": 5, "b": 6}, 9, [(owner, ["a"])])
    stream = Stream()
    FactLog(stream, shows_all=True).tell(phase)
    rejoined, completed = stream.getvalue().splitlines()
    assert rejoined.endswith("level=debug event=MemberRejoined group=g member=a owns=orders[1-2]")
    assert completed.endswith('leader=a joined_after_ms="a:5, b:6"')
    assert told(phase) == completed


def test_a_value_that_could_be_taken_for_fields_is_quoted() -> None:
    line = told(MemberLeft(AT_MS, "my group", 'a"b', None, "x level=error\ny"))
    assert 'group="my group" member="a\\"b" reason="x level=error\\ny"' in line


def test_a_note_has_its_time_its_level_and_fields() -> None:
    stream = Stream()
    FactLog(stream, now_ms=lambda: AT_MS).note("listening", {"address": "127.0.0.1:9092", "node": 1})
    assert stream.getvalue() == f"time={TIME} level=info msg=listening address=127.0.0.1:9092 node=1\n"


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
        "json": (FactLog(streams[2], as_json=True, shows_all=True), streams[2]),
    }


def test_json_lines_name_the_kind_of_the_fact() -> None:
    log, stream = _logs()["json"]
    log.tell(LEFT)
    log.note("stopping")
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert (first["fact"], first["time"], first["level"]) == ("MemberLeft", TIME, "info")
    assert (second["note"], second["level"]) == ("stopping", "info") and second["time"].endswith("Z")


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
    kinds = [line.split()[2] for line in stream.getvalue().splitlines()]
    assert kinds == ["event=MemberJoined", "msg=stopping", "event=MemberLeft"]


def test_a_stream_that_is_gone_stops_nobody() -> None:
    stream = Stream()
    log = FactLog(stream)
    stream.is_broken = True
    log.tell(JOINED)
    stream.is_broken = False
    log.tell(LEFT)
    assert [line.split()[2] for line in stream.getvalue().splitlines()] == ["event=MemberLeft"]
