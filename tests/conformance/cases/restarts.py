"""The broker is restarted in every state, and asked in many ways afterwards (C4); and offsets that expire (rule 23)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from conformance.cases.family import Family, stories
from conformance.cases.states import STATES
from conformance.script import Case

__all__ = ["FAMILIES"]

_AFTERWARDS: Mapping[str, Sequence[str]] = {
    "all is looked at": ("z describe v5", "z list", "z fetch v9 topics=all", "a heartbeat", "b heartbeat"),
    "the leader joins": ("a join", "b heartbeat", "z describe v5", "b join", "a sync", "b sync", "z describe v5"),
    "the follower joins": ("b join", "a heartbeat", "z describe v5"),
    "they sync": ("b sync", "a sync", "z describe v5"),
    "who was waiting joins": ("c join", "z describe v5", "a heartbeat"),
    "a new one joins": ("d join", "d join", "a heartbeat", "a join", "b join", "z describe v5"),
    "one leaves": ("b leave", "a heartbeat", "z describe v5"),
    "one commits": ("a commit at=t:1:8", "z commit generation=-1 at=u:0:9", "z fetch v9 topics=all"),
    "it is deleted": ("z forget", "z delete", "z describe v5", "d join", "z describe v5"),
}
_IN_EVERY_STATE = [
    Case(f"restarted, and {name} | {state}", (*before, "restart", *after))
    for state, before in STATES.items()
    if before
    for name, after in _AFTERWARDS.items()
]

_KILLED = """
static members after a restart: a join instance=east; b join instance=west; a join instance=east; b sync instance=west;
    a sync instance=east; restart; a heartbeat instance=east; b heartbeat instance=north; b heartbeat instance=east;
    b join instance=west member=none; z describe v5; a join instance=east member=none; b heartbeat instance=west
a static member came back before the restart: a join instance=east; b join instance=west; a join instance=east;
    b sync instance=west; a sync instance=east; b join instance=west member=none; restart; z describe v5;
    b heartbeat instance=west; b heartbeat instance=west member=west1; a heartbeat instance=east
several protocols, unchanged, after a restart: a join protocols=range,sticky; a join protocols=range,sticky;
    b join protocols=range,sticky; b join protocols=range,sticky; a join protocols=range,sticky; b sync; a sync; restart;
    b join protocols=range,sticky; a heartbeat; z describe v5; a join protocols=range,sticky; z describe v5
one protocol, unchanged, after a restart: a join; a join; b join; b join; a join; b sync; a sync; restart; b join;
    a heartbeat; z describe v5
a session starts anew: a join session=6000; a join session=6000; a sync; restart; wait 3000; z describe v5; wait 5000;
    z describe v5; a heartbeat
a session is kept by heartbeats after a restart: a join session=6000; a join session=6000; a sync; restart; wait 3000;
    a heartbeat; wait 4500; a heartbeat; z describe v5
a generation goes on: a join; a join; a sync; a leave; d join; d join; d sync; restart; d join; d sync; z describe v5
an Empty group goes on: a join; a join; a sync; a commit; a leave; restart; z describe v5; d join; d join; d sync;
    z describe v5
a deleted group stays deleted: a join; a join; a sync; a commit; a leave; z delete; restart; z describe v6; z fetch v9 topics=all;
    z list
deleted offsets stay deleted: z commit generation=-1 at=t:0:1,t:1:2,u:0:3; z forget topics=t:0; restart;
    z fetch v9 topics=all; z forget topics=t:1,u:0; z fetch v9 topics=all; z describe v5
all deleted offsets stay deleted: z commit generation=-1 at=t:0:1; z forget topics=t:0; restart; z describe v6; z list
offsets of every kind: z commit v2 generation=-1 retention=3600000 at=t:0:1; z commit v5 generation=-1 at=t:1:2:null;
    z commit v10 generation=-1 at=u:0:3:fits:4; restart; z fetch v10 topics=all; z fetch v5 topics=all
a refused join left a group: a join type=none; restart; z describe v6; z list
the type of an Empty group: a join type=connect; a join type=connect; a sync type=connect; a leave; restart; z describe v5;
    z list; d join; d join
a sync that is owed is forgotten: a join rebalance=6000; a join rebalance=6000; b join rebalance=6000; b join rebalance=6000;
    a join rebalance=6000; a sync; restart; wait 7500; z describe v5; b heartbeat
a round that waits for its deadline: a join rebalance=2000; a join rebalance=2000; a sync; b join rebalance=2000;
    b join rebalance=2000; restart; wait 3000; z describe v5; a heartbeat; b heartbeat; b join
subscriptions are known: a join; a join; a sync; a commit at=t:0:1,u:0:2; restart; z forget topics=t:0,u:0;
    z fetch v9 topics=all
the order of members: a join v3; b join v3; c join v3; d join v3; a join v3; b join v3; c join v3; a join v3; b join v3; a sync;
    b sync; c sync; d sync; restart; z describe v5; c leave v2; a join v3; b join v3; d join v3; z describe v5
the leader after a restart: a join v3; b join v3; c join v3; a join v3; b join v3; a sync; b sync; c sync; restart; a leave v2;
    b join v3; c join v3; z describe v5
"""

# After this restart a group has room for two.
_STOPPED = """
too many members: a join; a join; b join; b join; a join; c join; c join; a join; b join; b sync; c sync; a sync; restart;
    z describe v5; a heartbeat; a join; b join; c join; z describe v5; c heartbeat; a sync; b sync; z describe v5
just enough members: a join; a join; b join; b join; a join; b sync; a sync; restart; z describe v5; a heartbeat;
    c join; b heartbeat
stopped in order while Preparing: a join; a join; a sync; b join; b join; restart; z describe v5; a heartbeat; b heartbeat
stopped in order while Completing: a join; a join; b join; b join; a join; b sync; restart; z describe v5; a heartbeat;
    b join
"""

_LONG = "session=600000 rebalance=600000"
_FORGETFUL = f"""
a simple group, from each commit: z commit generation=-1 at=t:0:1; wait 30000; z commit generation=-1 at=t:1:2;
    z fetch v9 topics=all; wait 36000; z fetch v9 topics=all; z describe v6; wait 30000; z fetch v9 topics=all; z describe v6; z list
an Empty group, from when it became Empty: a join {_LONG}; a join {_LONG}; a sync; a commit; wait 20000; a leave;
    wait 46000; z fetch v9 topics=all; z describe v6; wait 20000; z fetch v9 topics=all; z describe v6; z list
a commit to an Empty group does not count: a join {_LONG}; a join {_LONG}; a sync; a commit; a leave; wait 30000;
    z commit generation=-1 at=t:1:2; wait 36000; z fetch v9 topics=all; z describe v6
a Stable group keeps what it subscribes to: a join {_LONG}; a join {_LONG}; a sync; a commit at=t:0:1,u:0:2; wait 30000;
    a commit at=u:0:3; wait 36000; z fetch v9 topics=all; wait 30000; z fetch v9 topics=all; a heartbeat; z describe v5
a Stable group of another type keeps all: a join type=connect {_LONG}; a join type=connect {_LONG}; a sync type=connect;
    a commit at=t:0:1,u:0:2; wait 66000; z fetch v9 topics=all; a heartbeat
a Preparing group keeps all: a join {_LONG}; a join {_LONG}; a sync; a commit at=t:0:1,u:0:2; b join {_LONG};
    b join {_LONG}; wait 66000; z fetch v9 topics=all; a heartbeat
a Completing group keeps all: z commit generation=-1 at=t:0:1,u:0:2; a join {_LONG}; a join {_LONG}; wait 66000;
    z fetch v9 topics=all; a heartbeat
bytes that are no subscription keep all: a join protocols=range:empty {_LONG}; a join protocols=range:empty {_LONG}; a sync;
    a commit at=t:0:1,u:0:2; wait 66000; z fetch v9 topics=all; a heartbeat
a retention of its own: z commit v4 generation=-1 retention=4000 at=t:0:1; z commit v4 generation=-1 at=t:1:2; wait 1500;
    z fetch v9 topics=all; wait 5000; z fetch v9 topics=all; z describe v6
a retention of its own in an Empty group: a join; a join; a sync; a commit v4 retention=4000; a commit at=t:1:2; a leave;
    wait 1500; z fetch v9 topics=all; wait 5000; z fetch v9 topics=all; z describe v6
a retention of its own in a Stable group: a join; a join; a sync; a commit v4 retention=4000 at=t:0:1,u:0:2; wait 1500;
    z fetch v9 topics=all; wait 5000; z fetch v9 topics=all; a heartbeat
a longer retention of its own: z commit v2 generation=-1 retention=600000 at=t:0:1; z commit generation=-1 at=t:1:2; wait 66000;
    z fetch v9 topics=all; z describe v6
a new commit takes the retention away: z commit v4 generation=-1 retention=4000 at=t:0:1; z commit generation=-1 at=t:0:2;
    wait 6500; z fetch v9 topics=all
no retention at all: z commit v4 generation=-1 retention=0 at=t:0:1; wait 2500; z fetch v9 topics=all; z describe v6
an id was given out and nothing more: a join; wait 2500; z describe v6; z list; a join; d join; d join
a group without offsets: a join; a join; a sync; a leave; wait 2500; z describe v6; d join; d join; d sync; z describe v5
a group that lost its last offset: z commit generation=-1; z forget; wait 2500; z describe v6
a refused join left a group: a join type=none; z list; wait 2500; z describe v6; z list
an Empty group that is about to be joined: a join; a join; a sync; a leave; d join; wait 2500; z describe v6; d join
"""

FAMILIES = [
    Family(
        "killed in every state", "killed", tuple(_IN_EVERY_STATE)
    ),
    stories("killed", "killed", _KILLED),
    stories("stopped", "stopped", _STOPPED),
    stories("expiry", "forgetful", _FORGETFUL),
]
