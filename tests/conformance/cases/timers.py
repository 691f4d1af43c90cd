"""What happens by itself: sessions, rebalance timeouts, sync timeouts, ids that nobody used, the initial delay.

Every wait ends well before or well after the moment it is about, so that a busy machine changes nothing.
"""

from __future__ import annotations

from conformance.cases.family import Family, stories
from conformance.script import Case

__all__ = ["FAMILIES"]

_FAINT = "a join; a join; b join session=2000; b join session=2000; a join; b sync; a sync"
"""Stable; `b` may be silent for two seconds."""

# Rule 14: which of these says that one is alive?
SIGNS_OF_LIFE = {
    "nothing": "z describe v5",
    "a heartbeat": "b heartbeat",
    "a heartbeat with an older generation": "b heartbeat generation=older",
    "a heartbeat with an unknown instance": "b heartbeat instance=north",
    "a commit": "b commit",
    "a commit of nothing": "b commit at=",
    "a commit of an unknown topic": "b commit at=ghost:0:1",
    "a commit with long metadata": "b commit at=t:0:1:long",
    "a commit of a newer generation": "b commit generation=newer",
    "a commit without ids": "z commit generation=-1",
    "a sync": "b sync",
    "a sync of an older generation": "b sync generation=older",
    "an unchanged join": "b join session=2000",
    "an unchanged join with a longer session": "b join session=30000",
    "a refused join": "b join session=1",
    "a fetch": "b fetch",
    "a description": "b describe",
}
_WHILE_STABLE = [
    Case(
        f"does {sign} keep a member?",
        tuple(f"{_FAINT}; wait 1200; {step}; wait 1300; z describe v5; a heartbeat; b heartbeat".split("; ")),
    )
    for sign, step in SIGNS_OF_LIFE.items()
]
_WHILE_PREPARING = [
    Case(
        f"does {sign} keep a member while a round waits for it?",
        tuple(f"{_FAINT}; c join v3; wait 1200; {step}; wait 1300; z describe v5; b heartbeat; a join".split("; ")),
    )
    for sign, step in SIGNS_OF_LIFE.items()
    if " join" not in step
]
_WHILE_COMPLETING = [
    Case(
        f"does {sign} keep a member that has not synced?",
        tuple(
            "a join; a join; b join session=2000; b join session=2000; a join; a heartbeat; wait 1200; "
            f"{step}; wait 1300; z describe v5; b heartbeat; a sync".split("; ")
        ),
    )
    for sign, step in SIGNS_OF_LIFE.items()
    if " sync" not in step and " join" not in step
]

_SESSIONS = """
the only member is silent: a join session=1000; a join session=1000; a sync; wait 500; z describe v5; wait 1000;
    z describe v5; z list; a heartbeat; a join; d join; d join
the only member is silent before it synced: a join session=1000; a join session=1000; wait 1500; z describe v5; a sync
a member with a parked sync is not silent: a join; a join; b join session=800; b join session=800; a join; b sync;
    wait 1500; z describe v5; b heartbeat; a sync; wait 400; z describe v5; wait 900; z describe v5; a heartbeat
a member with a parked join is not silent: a join; a join; a sync; b join session=800; b join session=800; wait 1500;
    z describe v5; a join; wait 400; z describe v5; wait 900; z describe v5; a heartbeat
the leader is silent and a sync is parked: a join session=1000; a join session=1000; b join; b join;
    a join session=1000; b sync; wait 1600; z describe v5; b join; b sync; z describe v5
the leader is silent and a join is parked: a join session=1000; a join session=1000; a sync; b join; b join; c join v3;
    wait 1600; z describe v5; b sync; c sync; b heartbeat; c heartbeat
a silent member holds up a round until it is gone: a join; a join; b join session=1000; b join session=1000; a join;
    b sync; a sync; a join; wait 500; z describe v5; wait 1000; z describe v5; a heartbeat
two silent members, one after the other: a join; a join; b join session=1000; b join session=1000; a join; b sync;
    a sync; c join session=2500; c join session=2500; a join; b join session=1000; a sync; b sync; c sync; wait 1600;
    a heartbeat; z describe v5; wait 1600; z describe v5; a join; z describe v5
everybody is silent: a join session=900; a join session=900; b join session=900; b join session=900;
    a join session=900; b sync; a sync; a commit; wait 1700; z describe v5; z fetch v9 topics=all; d join; d join
a static member is silent: a join; a join; b join session=1000 instance=west; a join; b sync instance=west; a sync;
    wait 1600; a heartbeat; z describe v5; b heartbeat instance=west; b join instance=west member=none; a join
the timeout of a static member that comes back: a join; a join; b join session=1500 instance=west; a join;
    b sync instance=west; a sync; wait 700; b join session=4000 instance=west member=none; wait 1400; z describe v5;
    a heartbeat
the timeout of a static member that comes back and heartbeats: a join; a join; b join session=1500 instance=west;
    a join; b sync instance=west; a sync; wait 500; b join session=4000 instance=west member=none;
    b heartbeat instance=west; wait 2500; z describe v5; a heartbeat
a static member comes back with a shorter timeout: a join; a join; b join session=4000 instance=west; a join;
    b sync instance=west; a sync; b join session=1000 instance=west member=none; wait 1600; z describe v5;
    b heartbeat instance=west; wait 1600; z describe v5
a changed join takes its new timeouts: a join; a join; b join session=1000; b join session=1000; a join; b sync; a sync;
    b join session=4000 protocols=range:tu; a join; b sync; a sync; wait 1700; z describe v5; b heartbeat
an unchanged join does not take its timeouts: a join; a join; b join session=1000; b join session=1000; a join; b sync;
    a sync; b join session=20000; wait 1700; z describe v5; a heartbeat
a session starts when the assignment is there: a join; a join; b join session=1200; b join session=1200; a join; b sync;
    wait 900; a sync; wait 700; z describe v5; b heartbeat; wait 700; b heartbeat; wait 1900; z describe v5
a session starts when the round begins: a join session=1200; a join session=1200; a sync; b join; b join; wait 600;
    a join; b sync; wait 700; z describe v5; a heartbeat; a sync; z describe v5
"""
_ROUNDS = """
who does not join in time is out: a join rebalance=1200; a join rebalance=1200; b join rebalance=1200;
    b join rebalance=1200; a join rebalance=1200; b sync; a sync; c join rebalance=1200; c join rebalance=1200; wait 600;
    z describe v5; wait 1100; z describe v5; a heartbeat; b commit; c sync; b join
a heartbeat does not help: a join rebalance=1200; a join rebalance=1200; a sync; b join rebalance=1200;
    b join rebalance=1200; wait 500; a heartbeat; wait 400; a heartbeat; wait 800; a heartbeat; z describe v5
the longest timeout counts: a join rebalance=500; a join rebalance=500; b join rebalance=2000; b join rebalance=2000;
    a join rebalance=500; b sync; a sync; c join rebalance=500; c join rebalance=500; wait 1300; z describe v5;
    wait 1300; z describe v5; c heartbeat
the timeout of the one who starts counts too: a join rebalance=500; a join rebalance=500; a sync;
    b join rebalance=2000; b join rebalance=2000; wait 1300; z describe v5; wait 1300; z describe v5
a later join does not move the deadline: a join rebalance=1500; a join rebalance=1500; a sync; b join rebalance=1500;
    b join rebalance=1500; wait 800; c join rebalance=60000; c join rebalance=60000; wait 1200; z describe v5;
    c heartbeat; b heartbeat
a member in time and one that is not: a join rebalance=1200; a join rebalance=1200; b join rebalance=1200;
    b join rebalance=1200; a join rebalance=1200; b sync; a sync; c join rebalance=1200; c join rebalance=1200;
    b join rebalance=1200; wait 1800; z describe v5; a heartbeat; b heartbeat; b sync; c sync
nobody is left at the deadline: a join rebalance=1200; a join rebalance=1200; b join rebalance=1200;
    b join rebalance=1200; a join rebalance=1200; b sync; a sync; a commit; b leave; z describe v5; wait 1800;
    z describe v5; a heartbeat; z fetch v9 topics=all; a join; d join; d join
a static member is kept at the deadline: a join instance=east rebalance=1200; b join rebalance=1200;
    b join rebalance=1200; a join instance=east rebalance=1200; b sync; a sync instance=east; c join rebalance=1200;
    c join rebalance=1200; wait 1800; z describe v5; a heartbeat instance=east; b heartbeat; c sync; z describe v5;
    a sync instance=east; a join instance=east
only static members and none has come: a join instance=east rebalance=1200; b join instance=west rebalance=1200;
    a join instance=east rebalance=1200; b sync instance=west; a sync instance=east; c join v3 rebalance=1200; c leave;
    c leave members=c1; wait 1800; z describe v5; a heartbeat instance=east; b join instance=west rebalance=1200;
    z describe v5; wait 1500; z describe v5; a heartbeat instance=east
the session is the timeout in version 0: a join v0 session=1500; a sync v0; b join v0 session=1500; wait 700;
    a heartbeat; wait 500; a heartbeat; wait 900; z describe v5; a heartbeat; b sync v0
a rebalance timeout of none: a join rebalance=0; a join rebalance=0; wait 300; a sync; z describe v5;
    b join rebalance=0; b join rebalance=0; wait 300; z describe v5; a heartbeat; b heartbeat; b sync; z describe v5
"""
_SYNCS = """
a follower that does not sync is out, though it heartbeats: a join rebalance=1500; a join rebalance=1500;
    b join rebalance=1500; b join rebalance=1500; a join rebalance=1500; a sync; b heartbeat; b commit; wait 800;
    z describe v5; b heartbeat; wait 1200; z describe v5; b heartbeat; a heartbeat; a join
a follower that syncs late but in time stays: a join rebalance=1500; a join rebalance=1500; b join rebalance=1500;
    b join rebalance=1500; a join rebalance=1500; a sync; wait 800; b sync; wait 1200; z describe v5; b heartbeat
a leader that does not sync is out: a join rebalance=1200; a join rebalance=1200; b join rebalance=1200;
    b join rebalance=1200; a join rebalance=1200; b sync; wait 600; a heartbeat; z describe v5; wait 1100;
    z describe v5; a heartbeat; b join rebalance=1200; b sync
nobody syncs: a join rebalance=1200; a join rebalance=1200; b join rebalance=1200; b join rebalance=1200;
    a join rebalance=1200; wait 1800; z describe v5; a heartbeat; a sync; d join; d join
a static follower that does not sync is out: a join rebalance=1200; a join rebalance=1200;
    b join rebalance=1200 instance=west; a join rebalance=1200; a sync; b heartbeat instance=west; wait 1800;
    z describe v5; b heartbeat instance=west; a heartbeat; b join instance=west
a kept static member has to sync as well: a join instance=east rebalance=1200; b join rebalance=1200;
    b join rebalance=1200; a join instance=east rebalance=1200; b sync; a sync instance=east; c join rebalance=1200;
    c join rebalance=1200; wait 1800; c sync; z describe v5; wait 700; z describe v5; wait 1100; z describe v5;
    c heartbeat; a heartbeat instance=east
a new round forgets who has not synced: a join rebalance=1500; a join rebalance=1500; b join rebalance=1500;
    b join rebalance=1500; a join rebalance=1500; a sync; wait 800; a join rebalance=1500; b join rebalance=1500;
    a sync; wait 1000; b heartbeat; b sync; wait 1000; z describe v5
a static member that owes its sync is replaced: a join rebalance=2000; a join rebalance=2000;
    b join rebalance=2000 instance=west; a join rebalance=2000; a sync;
    b join rebalance=2000 instance=west member=none; b sync instance=west; z describe v5; wait 3000; z describe v5;
    a heartbeat; b heartbeat instance=west
"""
_IDS = """
an id that nobody uses ends: a join session=1000; wait 500; z describe v5; wait 1000; a join; z describe v5
an id that is used in time: a join session=1200; wait 600; a join session=1200; wait 900; a sync; z describe v5
an id is not kept by heartbeats: a join session=1000; wait 600; a heartbeat; wait 800; a join
an id holds up a round until it ends: a join; a join; a sync; c join session=1200; b join v3; a join; wait 600;
    z describe v5; wait 1100; z describe v5; c join
an id holds up a round until it leaves: a join; a join; a sync; c join session=30000; b join v3; a join; z describe v5;
    c leave; z describe v5; c join
an id holds up a round until it joins: a join; a join; a sync; c join; b join v3; a join; z describe v5; c join;
    z describe v5
an id does not hold up a round past its deadline: a join rebalance=1200; a join rebalance=1200; a sync; c join;
    b join v3 rebalance=1200; a join rebalance=1200; wait 700; z describe v5; wait 1000; z describe v5; c join
an id that ends in a Stable group changes nothing: a join; a join; a sync; c join session=1000; wait 1600; a heartbeat;
    z describe v5; c join
an id that leaves a Stable group starts a round: a join; a join; a sync; c join; c leave; a heartbeat; z describe v5;
    a join; c join
an id that leaves a Completing group starts a round: a join; a join; c join; c leave; a heartbeat; z describe v5; a sync
an id that leaves an Empty group: a join; a leave; z describe v5; a join; d join; d join
ids do not hold up the first round: a join; b join; c join; a join; z describe v5; b join; z describe v5; c join
"""
_TOPICS = """
a topic is deleted and its offsets with it: create x; z commit generation=-1 at=x:0:5,t:0:6; z fetch v9 topics=all;
    drop x; wait 2500; z fetch v9 topics=all; z fetch v9 topics=x:0,t:0; z describe v5; z commit generation=-1 at=x:0:7
the only topic of a group is deleted: create x; z commit generation=-1 at=x:0:5; drop x; wait 2500;
    z fetch v9 topics=all; z describe v5; z list; z delete
a topic is deleted under a Stable group: create x; a join; a join; a sync; a commit at=x:0:5,t:0:6; drop x; wait 2500;
    z fetch v9 topics=all; a heartbeat; z fetch v10 topics=all; z fetch v10 topics=x:0; a commit v10 at=x:0:9,t:0:7
a topic is made again: create x; z commit v10 generation=-1 at=x:0:5; drop x; wait 2500; create x; wait 500;
    z fetch v10 topics=x:0; z commit v10 generation=-1 at=x:0:6; z fetch v10 topics=x:0,t:0; z fetch v9 topics=all
"""
_DELAYED = """
the first round waits: a join; a join; wait 900; z describe v5; wait 1200; z describe v5; a sync
who comes during the wait prolongs it: a join; a join; wait 900; b join; b join; wait 1000; z describe v5; wait 1500;
    z describe v5
three come one after the other: a join; a join; wait 900; b join; b join; wait 1500; c join; c join; wait 1200;
    z describe v5; wait 1300; z describe v5
the rebalance timeout bounds the wait: a join rebalance=2500; a join rebalance=2500; wait 900; b join; b join; wait 1000;
    z describe v5; wait 1000; z describe v5
the wait is the delay even if the timeout is shorter: a join rebalance=500; a join rebalance=500; wait 1000;
    z describe v5; wait 1000; z describe v5
a member that asks again is not new: a join; a join; wait 900; a join; wait 1000; z describe v5
a member that asks again with other protocols is not new: a join; a join; wait 900; a join protocols=range:tu,sticky;
    wait 1000; z describe v5
a leave does not end the wait: a join; a join; b join; b join; wait 500; b leave; wait 500; z describe v5; wait 1100;
    z describe v5
the last one leaves during the wait: a join; a join; wait 700; a leave; z describe v5; wait 1300; z describe v5; d join;
    d join; wait 700; z describe v5; wait 1300; z describe v5
all leave during the wait and another comes: a join; a join; wait 700; a leave; d join; d join; wait 1100; z describe v5;
    wait 1500; z describe v5
an id does not prolong the wait: a join; a join; wait 900; b join; wait 1000; z describe v5; b join; z describe v5
a member without an id joins at once: a join v3; b join v3; wait 900; z describe v5; wait 1100; z describe v5; wait 1500;
    z describe v5
a static member is replaced during the wait: a join instance=east; wait 700; a join instance=east member=none;
    z describe v5; wait 1100; z describe v5; wait 1500; z describe v5
the next round does not wait: a join; a join; wait 2000; a sync; b join; b join; a join; z describe v5
an empty group waits again: a join; a join; wait 2000; a sync; a leave; d join; d join; wait 900; z describe v5;
    wait 1200; z describe v5
a member expires during the wait: a join session=600; a join session=600; b join v3; wait 1200; z describe v5; wait 1200;
    z describe v5; wait 1200; z describe v5
heartbeats and others during the wait: a join; a join; wait 500; a heartbeat generation=0; a sync generation=0;
    a commit generation=0; z commit generation=-1; z delete; z forget; z describe v6; wait 1500; a heartbeat
one comes in the last possible wait: a join rebalance=2500; a join rebalance=2500; wait 900; b join; b join; wait 1000;
    c join; c join; wait 1300; z describe v5; z leave members=a,b,c; d join; d join; wait 900; z describe v5; wait 1100;
    z describe v5; wait 1500; z describe v5
"""

FAMILIES = [
    Family("signs of life", "timers", (*_WHILE_STABLE, *_WHILE_PREPARING, *_WHILE_COMPLETING)),
    stories("sessions", "timers", _SESSIONS),
    stories("rebalance timeouts", "timers", _ROUNDS),
    stories("sync timeouts", "timers", _SYNCS),
    stories("ids that wait", "timers", _IDS),
    stories("topics that go", "timers", _TOPICS),
    stories("initial delay", "delayed", _DELAYED),
]
