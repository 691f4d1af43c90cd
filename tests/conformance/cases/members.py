"""Stories of members: static ones, votes for a protocol, leaders, requests said twice, offsets, and groups that are full."""

from __future__ import annotations

from conformance.cases.family import stories

__all__ = ["FAMILIES"]

# Static members (rules 17 to 19). `a` is east, `b` is west.
_STATIC = """
a static follower comes back to a Stable group: a join instance=east; b join instance=west; a join instance=east;
    b sync instance=west; a sync instance=east; b join instance=west member=none; z describe v5; b sync instance=west;
    a heartbeat instance=east; b heartbeat instance=west; b heartbeat instance=west member=west1
a static leader comes back to a Stable group: a join instance=east; b join instance=west; a join instance=east;
    b sync instance=west; a sync instance=east; a join instance=east member=none; z describe v5; a sync instance=east;
    b heartbeat instance=west; a join instance=east; b heartbeat instance=west
a static leader comes back in version 8: a join instance=east; b join instance=west; a join instance=east;
    b sync instance=west; a sync instance=east; a join v8 instance=east member=none; z describe v5; a sync instance=east;
    b heartbeat instance=west; a join v8 instance=east; b heartbeat instance=west
a static leader comes back in version 5: a join v5 instance=east; a sync instance=east;
    a join v5 instance=east member=none; a sync v3 instance=east; a heartbeat instance=east; z describe v5
a static leader comes back twice: a join instance=east; a sync instance=east; a join instance=east member=none;
    a join instance=east member=none; a sync instance=east; a join instance=east; a heartbeat instance=east
a static member comes back with other bytes: a join instance=east; b join instance=west; a join instance=east;
    b sync instance=west; a sync instance=east; b join instance=west member=none protocols=range:tu; z describe v5;
    a heartbeat instance=east; b sync instance=west
a static member comes back with another protocol that changes nothing: a join instance=east protocols=range,sticky;
    b join instance=west protocols=range,sticky; a join instance=east protocols=range,sticky; b sync instance=west;
    a sync instance=east; b join instance=west member=none protocols=range,roundrobin; z describe v5;
    a heartbeat instance=east
a static member comes back and the vote changes: a join instance=east protocols=range,sticky;
    b join instance=west protocols=range,sticky; a join instance=east protocols=range,sticky; b sync instance=west;
    a sync instance=east; b join instance=west member=none protocols=sticky; z describe v5; a heartbeat instance=east;
    a join instance=east protocols=range,sticky; b sync instance=west protocol=sticky;
    a sync instance=east protocol=sticky; z describe v5
a static member comes back with what nobody else has: a join instance=east; b join instance=west; a join instance=east;
    b sync instance=west; a sync instance=east; b join instance=west member=none protocols=sticky; z describe v5;
    b join instance=west member=none type=connect; b heartbeat instance=west
the only static member comes back with another list: a join instance=east; a sync instance=east;
    a join instance=east member=none protocols=sticky; z describe v5
a static member comes back while the group is Completing: a join instance=east; b join instance=west;
    a join instance=east; b sync instance=west; b join instance=west member=none; z describe v5;
    a heartbeat instance=east; a sync instance=east; a join instance=east; z describe v5
a static leader comes back while the group is Completing: a join instance=east; b join instance=west;
    a join instance=east; b sync instance=west; a join instance=east member=none; z describe v5;
    b join instance=west; z describe v5; a sync instance=east; b sync instance=west
a static member comes back while the group is Preparing: a join instance=east; b join instance=west;
    a join instance=east; b sync instance=west; a sync instance=east; c join; c join; b join instance=west member=none;
    z describe v5; b heartbeat instance=west member=west1; a join instance=east; b sync instance=west; z describe v5
a static member comes back while its own join is parked: a join instance=east; b join instance=west;
    b join instance=west member=none; z describe v5; a join instance=east
a static leader comes back while its own join is parked: a join instance=east; b join instance=west; a sync instance=east;
    a join instance=east; b sync instance=west; a sync instance=east; c join; c join; a join instance=east;
    a join instance=east member=none; b join instance=west; z describe v5
a static member comes back to an Empty group: a join instance=east; a sync instance=east; z leave members=none@east;
    z describe v5; a join instance=east; a join instance=east member=none; a sync instance=east; z describe v5
the id of a static member without its instance: a join instance=east; a sync instance=east; a heartbeat; a commit;
    a sync; a join; a leave; z describe v5
the id of a dynamic member with an instance: a join; a join; a sync; a heartbeat instance=east; a commit instance=east;
    a sync instance=east; a join instance=east; a leave members=a@east; z describe v5
an id that was given out comes back with an instance: a join; a join instance=east; z describe v5; a join
two members want one instance: a join instance=east; b join instance=east; z describe v5; a heartbeat instance=east;
    a sync instance=east; b sync instance=east; a join instance=east; a leave members=own@east; a commit instance=east;
    b heartbeat instance=east
static members leave in every way: a join instance=east; b join instance=west; a join instance=east;
    b sync instance=west; a sync instance=east; z leave members=none@north,none@west,ghost@east,none@west; z describe v5;
    z leave members=east1; z describe v5
a static member leaves with a parked join: a join instance=east; b join instance=west; z leave members=none@west;
    z describe v5; a heartbeat instance=east
a static member leaves with a parked sync: a join instance=east; b join instance=west; a join instance=east;
    b sync instance=west; z leave members=none@west; z describe v5; a sync instance=east; a join instance=east
an empty instance id: a join instance=none; a join instance=none; z describe v5
static members in old versions: a join v4; a join v4; a sync v2; b join v5 instance=west; a join v4; b sync v3 instance=west;
    a sync v2; b heartbeat v3 instance=west; b heartbeat v2; b join v4 member=none; z describe v4
a static member and its vote: a join instance=east protocols=range,sticky; b join protocols=sticky,range;
    b join protocols=sticky,range; a join instance=east protocols=range,sticky; z describe v5
a static member of an unfinished round comes back twice: a join instance=east; a join instance=east member=none;
    a join instance=east member=none; z describe v5; a sync instance=east
"""

_VOTES = """
one vote each, a tie: a join protocols=range,sticky; a join protocols=range,sticky; b join protocols=sticky,range;
    b join protocols=sticky,range; a join protocols=range,sticky; z describe v5
a tie of the others: a join protocols=roundrobin,cooperative-sticky; a join protocols=roundrobin,cooperative-sticky;
    b join protocols=cooperative-sticky,roundrobin; b join protocols=cooperative-sticky,roundrobin;
    a join protocols=roundrobin,cooperative-sticky
a tie of four: a join v3 protocols=roundrobin,range,sticky,cooperative-sticky;
    b join v3 protocols=cooperative-sticky,range,sticky,roundrobin; a join v3 protocols=roundrobin,range,sticky,cooperative-sticky;
    c join v3 protocols=sticky,range,roundrobin,cooperative-sticky; a join v3 protocols=roundrobin,range,sticky,cooperative-sticky;
    b join v3 protocols=cooperative-sticky,range,sticky,roundrobin; d join v3 protocols=range,roundrobin,sticky,cooperative-sticky;
    a join v3 protocols=roundrobin,range,sticky,cooperative-sticky; b join v3 protocols=cooperative-sticky,range,sticky,roundrobin;
    c join v3 protocols=sticky,range,roundrobin,cooperative-sticky
two against one: a join v3 protocols=range,sticky; b join v3 protocols=sticky,range; a join v3 protocols=range,sticky;
    c join v3 protocols=sticky,range; a join v3 protocols=range,sticky; b join v3 protocols=sticky,range
a vote for what not all have counts for the next: a join v3 protocols=range,sticky,roundrobin;
    b join v3 protocols=roundrobin,range; a join v3 protocols=range,sticky,roundrobin; c join v3 protocols=sticky,range;
    a join v3 protocols=range,sticky,roundrobin; b join v3 protocols=roundrobin,range
nothing in common: a join v3 protocols=range,sticky; b join v3 protocols=roundrobin; b join v3 protocols=range;
    a join v3 protocols=range,sticky
a lone member cannot change to something else: a join; a join; a join protocols=sticky; a join protocols=sticky,range;
    a join protocols=sticky
a lone member changes in two steps: a join; a join; a sync; a join protocols=range,sticky; a sync;
    a join protocols=sticky; a sync protocol=sticky; z describe v5
the order of protocols is part of them: a join protocols=range,sticky; a join protocols=range,sticky; b join protocols=range,sticky;
    b join protocols=range,sticky; a join protocols=range,sticky; b sync; a sync; b join protocols=sticky,range;
    a heartbeat; z describe v5
the same list is no change: a join protocols=range,sticky; a join protocols=range,sticky; b join protocols=range,sticky;
    b join protocols=range,sticky; a join protocols=range,sticky; b sync; a sync; b join protocols=range,sticky;
    a heartbeat; z describe v5
a protocol twice in one list: a join protocols=range,range; a join protocols=range,range; wait 400; z describe v5
bytes that are no subscription: a join protocols=range:junk; a join protocols=range:junk; a sync; a commit; z forget;
    z describe v5
no bytes at all: a join protocols=range:empty; a join protocols=range:empty; a sync; a commit; z forget; z describe v5
an old subscription: a join protocols=range:v0; a join protocols=range:v0; a sync; a commit at=t:0:1,u:0:2;
    z forget topics=t:0,u:0; z describe v5
another type cannot come in: a join; a join; b join type=connect; b join v3 type=connect; b join type=connect; a sync;
    b join type=connect; b join; z describe v5
another type comes to an Empty group: a join; a join; a sync; a leave; b join type=connect; b join type=connect;
    b sync type=connect; z describe v5; z list
"""

_PLACES = """
a join takes the place of an earlier one: a join; a join; a sync; b join; b join; b join; b join; a join; z describe v5
a join with other protocols takes the place of an earlier one: a join; a join; a sync; b join; b join;
    b join protocols=range:tu,sticky; a join; z describe v5; b sync; a sync; z describe v5
a sync takes the place of an earlier one: a join; a join; b join; b join; a join; b sync; b sync; b sync; a sync
a join while the own sync is parked: a join; a join; b join; b join; a join; b sync; b join; z describe v5; a sync
a changed join while the own sync is parked: a join; a join; b join; b join; a join; b sync;
    b join protocols=range:tu; z describe v5; a sync; a join
a sync while the own join is parked: a join; a join; a sync; b join; b join; b sync; b heartbeat; a join
a leader asks again while Completing: a join; a join; b join; b join; a join; a join; b heartbeat; z describe v5; b join;
    a sync; b sync
a leader asks again while Stable: a join; a join; a sync; a join; z describe v5; a sync; a join; a sync; z describe v5
a follower asks again while Stable: a join; a join; b join; b join; a join; b sync; a sync; b join; b sync; a heartbeat
the leader leaves a Stable group: a join; a join; b join; b join; a join; b sync; a sync; c join; c join; a join; b join;
    c sync; b sync; a sync; a leave; b heartbeat; b join; c join; b sync; c sync; z describe v5
the leader leaves a group of five: a join v3; b join v3; c join v3; d join v3; e join v3; a join v3; b join v3;
    c join v3; d join v3; a join v3; b join v3; c join v3; a leave v2; b join v3; c join v3; d join v3; e join v3;
    z describe v5
the leader does not come to the next round of five: a join v3; b join v3; c join v3; d join v3; e join v3; a join v3;
    b join v3; c join v3; d join v3; a join v3; z leave members=a; b join v3; c join v3; e join v3; d join v3;
    z describe v5
all leave and come again: a join; a join; a sync; a leave; z describe v5; a join; d join; d join; d sync; z describe v5
everybody leaves in one request: a join; a join; b join; b join; a join; b sync; a sync; c join; c join;
    z leave members=a,b,c; z describe v5; z list; c join
a member leaves with a parked join: a join; a join; a sync; b join; b join; z leave members=b; a heartbeat; a join
a member leaves with a parked sync: a join; a join; b join; b join; a join; b sync; z leave members=b; a heartbeat;
    z describe v5; a join
one leaves and the others were waiting for it: a join; a join; b join; b join; a join; b sync; a sync; c join; c join;
    b join; z leave members=a; z describe v5
the leader assigns to itself alone: a join; a join; b join; b join; a join; b sync; a sync assign=a; z describe v5;
    b sync
the leader assigns to a stranger: a join; a join; b join; b join; a join; b sync; a sync assign=ghost,b; z describe v5
the leader assigns twice to the same: a join; a join; a sync assign=a,a1; z describe v5; a sync assign=ghost
the leader assigns nothing: a join; a join; b join; b join; a join; b sync; a sync assign=; z describe v5; b sync; a sync
a follower assigns: a join; a join; b join; b join; a join; b sync assign=all; z describe v5; a sync assign=
a second assignment changes nothing: a join; a join; b join; b join; a join; b sync; a sync; a sync assign=a;
    b sync; z describe v5
a round from Completing forgets assignments: a join; a join; a sync; b join; b join; a join; b sync; c join; c join;
    z describe v5; a sync; a join; b join; z describe v5
a group that is asked for in vain: z describe v5; z heartbeat; z sync; z leave; z fetch; z forget; z delete; z list;
    z describe v6
a join that is refused leaves a group behind: a join type=none; z describe v6; z list; z delete; z describe v6
a join that is refused in old versions leaves a group behind: a join v3 protocols=; z describe v6; z list; z forget
a join with an id leaves no group behind: a join member=ghost; z describe v6; z list
a join with a bad session leaves no group behind: a join session=1; z describe v6; z list
a deleted group: a join; a join; a sync; a commit; a leave; z delete; z fetch; a heartbeat; a join; z describe v6; d join;
    d join; z describe v5
a group with an id given out is deleted: a join; z delete; a join; z describe v6; z list
two groups: a join; a join group=h; a join; z describe groups=g,h; z list; z delete groups=h,g,h; z list
many at once: a join v3; b join v3; c join v3; d join v3; e join v3; f join v3; g join v3; a join v3; b join v3; c join v3;
    d join v3; e join v3; f join v3; z describe v5; a join v3; b join v3; c join v3; d join v3; e join v3; f join v3;
    z describe v5
"""

_OFFSETS = """
any offset is taken: z commit generation=-1 at=t:0:9; z commit generation=-1 at=t:0:3; z fetch;
    z commit generation=-1 at=t:0:-1; z fetch; z commit generation=-1 at=t:0:-5; z fetch v9 topics=all;
    z commit generation=-1 at=t:0:9223372036854775807; z fetch
the last entry for a partition wins: z commit generation=-1 at=t:0:1,t:0:2,t:1:3,t:0:4; z fetch
null metadata is empty metadata: z commit generation=-1 at=t:0:1:null; z fetch; z commit v2 generation=-1 at=t:0:1:null;
    z fetch v1; z commit generation=-1 at=t:0:1:; z fetch
metadata is counted in UTF-16 units: z commit generation=-1 at=t:0:1:fits,t:1:2:long; z commit generation=-1 at=t:0:1:wide;
    z commit generation=-1 at=t:0:2:pairs; z commit generation=-1 at=t:1:1:odd; z fetch
leader epochs come back: z commit v5 generation=-1 at=t:0:1; z fetch v5; z commit v6 generation=-1 at=t:0:1:m:7; z fetch v5;
    z fetch v4; z commit v9 generation=-1 at=t:0:1:m:-7,t:1:1:m:0; z fetch
a commit that takes nothing leaves no group behind: z commit generation=-1 at=ghost:0:1; z describe v6; z list;
    z commit generation=-1 at=; z describe v6; z list; z fetch v9 topics=all
a commit of which nothing is taken: z commit generation=-1 at=t:0:1:long; z describe v6; z list; z fetch v9 topics=all;
    z delete; z describe v6
a commit of which nothing is taken, and then a join: z commit generation=-1 at=t:0:1:long; a join; z describe v6; z list;
    a join; z describe v6; a sync; z describe v6
a commit of which nothing is taken, and then a static join: z commit generation=-1 at=t:0:1:long; a join instance=east;
    z describe v6; a sync instance=east; z describe v6
a simple group is joined: z commit generation=-1; z list; a join; z list; a join; a sync; z describe v5; z list; a leave;
    z list; z commit generation=-1 at=t:1:1; z fetch v9 topics=all; z describe v5
a simple group with ids: a commit generation=-1 member=ghost at=t:0:1; a commit generation=0; a commit generation=5;
    a commit v8 generation=0; z describe v5; z fetch
offsets are deleted: z commit generation=-1 at=t:0:1,t:1:2,u:0:3; z forget topics=t:0,u:0; z fetch v9 topics=all;
    z forget topics=t:0:1,u:0; z describe v5; z fetch v9 topics=all; z delete; z forget
offsets of a subscribed topic: a join; a join; a sync; a commit at=t:0:1,u:0:2; z forget topics=t:0,u:0,ghost:0;
    z fetch v9 topics=all; a leave; z forget topics=t:0; z fetch v9 topics=all
offsets of a topic that one is about to subscribe to: a join; a join; a sync; a commit at=t:0:1,u:0:2;
    a join protocols=range:tu; z forget topics=u:0; a sync; z forget topics=u:0; b join protocols=range:tu;
    b join protocols=range:tu; z forget topics=u:0,t:0
offsets while Preparing: a join; a join; a sync; a commit at=t:0:1,u:0:2; b join protocols=range:u; b join protocols=range:u;
    z forget topics=u:0; a commit at=u:0:3; z fetch; a join; z forget topics=u:0
offsets in a group of another type: a join type=connect; a join type=connect; a sync type=connect; a commit;
    z forget; a leave; z forget; z fetch v9 topics=all
a commit in every state: a join; a commit generation=-1 member=none; a commit; a join; a commit; a sync; a commit; b join;
    b join; a commit; b commit; a heartbeat; a commit; a join; a commit; b commit; b sync; a sync; b commit; a leave;
    b leave; a commit; a commit generation=-1; z fetch v9 topics=all
the group without a name: z describe groups=none; z commit group=none generation=-1; z fetch groups=none; z fetch v5 groups=none;
    z commit group=none generation=0; z describe groups=none; z forget group=none; z delete groups=none; z fetch groups=none;
    z delete groups=none; a join group=none; a heartbeat group=none; a sync group=none; a leave group=none
"""

_FULL = """
a third is refused: a join; a join; b join; b join; a join; b sync; a sync; c join; c join v3; c join instance=north;
    z describe v5; a heartbeat
a third is refused while Completing: a join; a join; b join; b join; a join; c join; c join v3; z describe v5; a sync
a third is refused while Preparing: a join; a join; a sync; b join; b join; a join; a join protocols=range:tu; b heartbeat;
    b join; c join; c join v3; z describe v5
more ids than places: a join; b join; c join; d join; a join; b join; c join; d join; z describe v5
more ids than places, in a Stable group: a join; b join; c join; a join; a sync; b join; a heartbeat; c join; z describe v5;
    a join; z describe v5; b sync; c sync
the last to join again is dropped: a join; b join; c join; a join; a sync; b join; c join; z describe v5; a join;
    a heartbeat; z describe v5; b heartbeat; z leave members=c; z describe v5
a place becomes free: a join; a join; b join; b join; a join; b sync; a sync; c join; b leave; c join; c join; a join;
    z describe v5
a member of a full group asks again: a join; a join; b join; b join; a join; b sync; a sync; b join; b join protocols=range:tu;
    b join protocols=range; a join; z describe v5
a static member cannot come back to a full group: a join instance=east; b join instance=west; a join instance=east;
    b sync instance=west; a sync instance=east; b join instance=west member=none; z describe v5; b heartbeat instance=west
a static member comes back to a full group that is Preparing: a join instance=east; b join instance=west;
    a join instance=east; b sync instance=west; a sync instance=east; a join instance=east; b join instance=west member=none;
    z describe v5; b sync instance=west
a full group with wrong requests: a join; a join; b join; b join; a join; b sync; a sync; c join type=connect;
    c join protocols=; c join member=ghost; c join session=1; c join group=none; z describe v5
"""

FAMILIES = [
    stories("static members", "plain", _STATIC),
    stories("votes", "plain", _VOTES),
    stories("places", "plain", _PLACES),
    stories("offsets", "plain", _OFFSETS),
    stories("full groups", "small", _FULL),
]
