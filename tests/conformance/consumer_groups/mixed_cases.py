"""The cases of groups with members of both protocols: upgrade, classic members, downgrade, restarts (K24 to K26).

Classic members are m0 and m1, and have ids that begin with these names, or the names themselves as ids (`id=own`). So
the order of members, by which `range` assigns, is known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations

_BEAT = "beat epoch=0 timeout=60000 owned=- assignor=range"
_JOIN = "join id=own owned=-"

# --- classic groups that a consumer member joins ----------------------------------------------------------------------

_STABLE = ["m0 join", "m0 sync give=m0:t:0,1,2,3"]
_TWO_JOINED = ["m0 join", "m1 join wait=no", "m0 join", "m1 hears"]
_TWO = [*_TWO_JOINED, "m1 sync wait=no", "m0 sync give=m0:t:0,1|m1:t:2,3", "m1 hears"]

CLASSIC_SETUPS: Mapping[str, tuple[list[str], list[str]]] = {
    "stable": (_STABLE, []),
    "two stable": (_TWO, []),
    "static": (["m0 join instance=i", "m0 sync instance=i give=m0:t:0,1,2,3"], []),
    "completing": (["m0 join"], []),
    "completing with a sync": ([*_TWO_JOINED, "m1 sync wait=no"], ["m1 hears"]),
    "preparing": ([*_TWO, "m0 join names=t,t2 wait=no"], ["m0 hears"]),
    "preparing since a leave": ([*_TWO, "m1 leave"], []),
    "preparing for the first time": (["m1 join once=1", "m0 join wait=no"], ["m0 hears"]),
    "empty": ([*_STABLE, "m0 leave"], []),
    "an id is given": (["m0 join once=1"], []),
}
"""What has happened before, and who hears something when the group is upgraded."""

_SEEN = ["- describe", "- describe_classic", "- list"]
UPGRADES: Mapping[str, list[str]] = {
    "upgraded": [f"z {_BEAT} names=t"],
    "upgraded with other topics": [f"z {_BEAT} names=t2"],
    "upgraded by a regular expression": [f"z {_BEAT} regex=t", "- wait ms=500", "z beat"],
    "epoch 1": ["z beat epoch=1"],
    "leaves": ["z beat epoch=-1"],
    "bad regex": [f"z {_BEAT} regex=(?=a)"],
    "unknown assignor": ["z beat epoch=0 timeout=60000 owned=- names=t assignor=best"],
    "under the id of a member": [f"m0 {_BEAT} names=t"],
    "with its instance": [f"z {_BEAT} names=t instance=i"],
    "with its instance and other topics": [f"z {_BEAT} names=t2 instance=i"],
}
_REFUSED = {"epoch 1", "leaves", "bad regex", "unknown assignor"}
_AFTER_REFUSAL = ["m0 classic_beat", "m0 commit"]
_AFTER_UPGRADE = [
    *("m0 classic_beat", "m0 sync", "m0 join owned=mine", "- describe", "m0 sync", "m0 join owned=mine", "m0 sync"),
    *("z beat", "m0 classic_beat", "- describe", "m0 commit", "m0 commit epoch=told-1", "m0 fetch epoch=told-1"),
    *("z beat epoch=-1", "- describe_classic", "m0 classic_beat", "- list"),
]

NOT_UPGRADED: Mapping[str, list[str]] = {
    "another protocol type": ["m0 join type=connect", "m0 sync type=connect give=m0:t:0"],
    "user data in an assignment": ["m0 join", "m0 sync data=x give=m0:t:0,1,2,3"],
    "a subscription that is too short": ["m0 join sub=short", "m0 sync give=m0:t:0"],
    "an empty subscription": ["m0 join sub=empty", "m0 sync give=m0:t:0"],
    "an assignment that is too short": ["m0 join", "m0 sync give=m0:short"],
    "an assignment that is odd": ["m0 join", "m0 sync give=m0:odd"],
    "two owners": [*_TWO_JOINED, "m1 sync wait=no", "m0 sync give=m0:t:0,1,2|m1:t:2,3", "m1 hears"],
}
UPGRADED: Mapping[str, list[str]] = {
    "user data in a subscription": ["m0 join data=x", "m0 sync give=m0:t:0,1,2,3"],
    "an unknown assignor": ["m0 join protocols=best", "m0 sync protocol=best give=m0:t:0,1,2,3"],
    "an unknown topic": ["m0 join names=t,gone", "m0 sync give=m0:t:0,1/gone:0"],
    "a subscription of version 0": ["m0 join sub=0", "m0 sync give=m0:t:0,1,2,3"],
    "a subscription of version 3": ["m0 join sub=3 rack=r", "m0 sync give=m0:t:0,1,2,3"],
}

# --- groups of both protocols -----------------------------------------------------------------------------------------

_BOTH = [
    f"z {_BEAT} names=t",
    f"m0 {_JOIN}",
    *("z beat", "z beat owned=mine", "m0 classic_beat", "m0 join id=own owned=mine", "m0 sync"),
]
_BEHIND = [*_STABLE, f"z {_BEAT} names=t"]
SETUPS: Mapping[str, list[str]] = {
    "both": _BOTH,
    "behind": _BEHIND,
    "unrevoked": [*_BEHIND, "m0 join owned=mine"],
    "unreleased": [f"z {_BEAT} names=t", f"m0 {_JOIN}"],
    "can take all": [f"z {_BEAT} names=t", f"m0 {_JOIN}", "z beat", "z beat owned=mine"],
    "assigning": [*_BOTH, f"z2 {_BEAT} names=t", "z2 beat epoch=-1"],
    "static classic": [
        *(f"z {_BEAT} names=t", "m0 join v=5 instance=i", "z beat", "z beat owned=mine"),
        *("m0 join instance=i owned=mine", "m0 sync instance=i"),
    ],
    "static consumer": [
        f"z {_BEAT} names=t instance=i",
        *(f"m0 {_JOIN}", "z beat", "z beat owned=mine", "m0 join id=own owned=mine", "m0 sync"),
    ],
    "static consumer away": [
        f"z {_BEAT} names=t instance=i",
        *(f"m0 {_JOIN}", "z beat", "z beat owned=mine", "m0 join id=own owned=mine", "m0 sync"),
        "z beat epoch=-2 instance=i",
    ],
    "all turned classic": [*_BOTH, "z join id=own owned=mine", "z sync"],
    "consumer alone": [f"z {_BEAT} names=t"],
    "static consumer alone": [f"z {_BEAT} names=t instance=i"],
}

Axes = tuple[Mapping[str, str], ...]
_IDS = {"unknown id": "id=stranger", "no id": "id=nobody", "id of the other": "id=z"}
_INSTANCES = {"instance": "instance=i", "other instance": "instance=j"}
_EPOCHS = {"newer": "epoch=told+1", "older": "epoch=told-1", "epoch 0": "epoch=0", "epoch -1": "epoch=-1"}
JOINS: Axes = (
    _IDS,
    _INSTANCES,
    {"other type": "type=connect", "no protocols": "protocols=", "other protocols": "protocols=best,other"},
    {
        "too short": "sub=short",
        "odd": "sub=odd",
        "version 0": "sub=0",
        "version 3": "sub=3 rack=r",
        "other topics": "names=t2",
        "more topics": "names=t,t2",
        "no topics": "names=",
        "owns all": "owned=t:0,1,2,3",
        "owns others": "owned=other:0/gone:1",
        "user data": "data=x",
        "two protocols": "protocols=best,range",
    },
    {"short session": "session=50", "JoinGroup 3": "v=3", "given an id": "once=1"},
)
SYNCS: Axes = (
    _IDS,
    _INSTANCES,
    _EPOCHS,
    {"other type": "type=connect", "other protocol": "protocol=best"},
    {"gives": "give=m0:t:3"},
)
BEATS: Axes = (_IDS, _INSTANCES, _EPOCHS)
LEAVES: Axes = (_IDS, _INSTANCES, {"with the other": "also=z", "twice": "also=m0", "with a stranger": "also=stranger"})


def _ways(axes: Axes) -> Iterator[tuple[str, str]]:
    yield "ordinary", ""
    for axis in axes:
        yield from axis.items()


def _two_ways(axes: Axes) -> Iterator[tuple[str, str]]:
    for first, second in combinations(axes, 2):
        for one, said in first.items():
            for other, also in second.items():
                yield f"{one}, {other}", f"{said} {also}"


_REQUESTS: Mapping[str, tuple[str, Axes]] = {
    "joins": ("m0 join", JOINS),
    "syncs": ("m0 sync", SYNCS),
    "beats": ("m0 classic_beat", BEATS),
    "leaves": ("m0 leave", LEAVES),
}
_AFTER = ["m0 classic_beat", "- describe", "- list"]
OTHER_REQUESTS: Mapping[str, list[str]] = {
    "commits": [
        f"m0 commit{epoch}{member}{version}"
        for epoch in ("", " epoch=told+1", " epoch=told-1", " epoch=-1")
        for member in ("", " id=nobody", " id=stranger", " instance=j")
        for version in ("", " v=8")
    ],
    "fetches": [
        f"m0 fetch{epoch}{member}"
        for epoch in ("", " epoch=told+1", " epoch=told-1", " epoch=-1")
        for member in ("", " id=nobody", " id=stranger", " id=null")
        if member != " id=null" or epoch == " epoch=-1"
    ],
    "turns consumer": ["m0 beat", "m0 classic_beat", "- describe", "m0 beat owned=mine", "- describe"],
    "turns consumer with other topics": ["m0 beat names=t2 owned=-", "- describe", "m0 beat owned=-", "- describe"],
    "turns consumer by a join": [f"m0 {_BEAT} names=t", "- describe", "m0 classic_beat"],
    "turns consumer with a wrong epoch": ["m0 beat epoch=told+1", "m0 beat epoch=told-1 owned=-", "m0 classic_beat"],
    "the other turns classic": ["z join id=own", "- describe", "z sync", "z beat", "z classic_beat", "- list"],
    "the other turns classic with other topics": ["z join id=own names=t2", "- describe", "z sync", "- list"],
    "the other turns classic with its instance": ["z join id=own instance=i", "- describe", "- list", "z sync"],
    "the instance joins": ["y join instance=i", "- describe", "- list", "y sync instance=i", "m0 classic_beat"],
    "the instance joins with other topics": ["y join instance=i names=t2", "- describe", "- list", "y classic_beat"],
    "the instance joins as a consumer": [f"y {_BEAT} names=t instance=i", "- describe", "z beat", "m0 classic_beat"],
    "the instance joins as a consumer of other topics": [f"y {_BEAT} names=t2 instance=i", "- describe", "y beat"],
    "the other leaves": ["z beat epoch=-1", "- describe", "- describe_classic", "m0 classic_beat", "m0 sync", "- list"],
    "the other leaves by LeaveGroup": ["z leave", "- describe", "- describe_classic", "m0 classic_beat", "- list"],
    "both leave": ["z leave also=m0", "- describe", "- list", "n join"],
    "leaves as a consumer": ["m0 beat epoch=-1", "- describe", "- list"],
    "leaves for a while as a consumer": ["m0 beat epoch=-2 instance=i", "- describe", "- list"],
    "deleted": ["- delete", "- list"],
    "forgets": ["m0 commit to=other:0", "m0 commit", "- forget names=t,other", "m0 fetch id=null epoch=-1"],
    "another classic member comes": ["m1 join id=own", "m1 sync", "m1 classic_beat", "m0 classic_beat", "- describe"],
    "another classic member comes without an id": ["m1 join names=other v=3", "- list", "m0 classic_beat"],
    "another consumer member comes": [f"y {_BEAT} names=t", "m0 classic_beat", "m0 sync", "- describe"],
}

_AND_BACK = [
    *("z beat epoch=-1", "- describe", "- describe_classic", "m0 classic_beat", "m1 classic_beat", "m0 commit"),
    *("m0 join wait=no", "m1 join wait=no", "m0 hears", "m1 hears"),
    *("m0 sync wait=no give=m0:t:0,1|m1:t:2,3", "m1 sync wait=no give=m0:t:0,1|m1:t:2,3", "m0 hears", "m1 hears"),
    *("m0 classic_beat", "m1 classic_beat", "- describe_classic", "- list"),
]
_UP = [
    *_TWO,
    f"z {_BEAT} names=t",
    *("m0 classic_beat", "m1 classic_beat", "m0 join owned=mine", "m0 sync", "m0 join owned=mine", "m0 sync"),
    *("m1 join owned=mine", "m1 sync", "m1 join owned=mine", "m1 sync", "z beat", "- describe"),
]
STORIES: Mapping[str, list[str]] = {
    "two classic members, a consumer comes and goes": [*_UP, *_AND_BACK],
    "all become consumers and all become classic": [
        *_UP,
        *("m0 beat", "m1 beat", "- describe", "m0 join owned=mine", "m0 sync", "m1 join owned=mine", "- describe"),
        *("m1 sync", "z beat", *_AND_BACK),
    ],
    "one by one, static": [
        *("m0 join instance=i wait=no", "m0 hears", "m1 join instance=j wait=no", "m0 join instance=i", "m1 hears"),
        *("m1 sync instance=j wait=no", "m0 sync instance=i give=m0:t:0,1|m1:t:2,3", "m1 hears"),
        *(f"y {_BEAT} names=t instance=i", "- describe", "m0 classic_beat instance=i", "m1 classic_beat instance=j"),
        *(f"z {_BEAT} names=t instance=j", "- describe", "y beat", "z beat", "y commit", "z commit epoch=1"),
        *("m2 join instance=i", "m2 sync instance=i", "- describe", "y beat instance=i", "y beat"),
        *("m3 join instance=j", "- describe", "- describe_classic", "m3 sync instance=j", "m2 classic_beat instance=i"),
        *("m2 sync instance=i", "- list"),
    ],
    "the last consumer is replaced while others reconcile": [
        f"z {_BEAT} names=t instance=i",
        *(
            f"m0 {_JOIN}",
            "y join instance=i names=t,t2",
            "- describe",
            "- describe_classic",
            "m0 classic_beat",
            "- list",
        ),
        *("y join instance=i names=t,t2 wait=no", "m0 join wait=no", "- describe_classic"),
    ],
    "given up one by one": [
        *_BEHIND,
        *("m0 classic_beat", "m0 join owned=mine", "m0 sync", "m0 classic_beat", "m0 join owned=t:0,1,2", "- describe"),
        *("m0 join owned=t:0,1", "m0 sync", "z beat", "m0 classic_beat", "- describe"),
    ],
    "a part of what it waits for is free": [
        f"y {_BEAT} names=t,t2",
        f"z {_BEAT} names=t,t2",
        *("y beat", "y beat owned=mine", "z beat", "m0 join id=own names=t,t2", "m0 sync", "m0 classic_beat"),
        *("y beat", "y beat owned=mine", "m0 classic_beat", "z beat", "z beat owned=mine", "m0 classic_beat"),
        *("m0 join id=own names=t,t2", "m0 sync", "- describe"),
    ],
    "votes": [
        "z beat epoch=0 timeout=60000 owned=- names=t assignor=range",
        *("m0 join id=own", "- describe", "z join id=own", "- describe", "z beat assignor=uniform", "- describe"),
    ],
    "a regular expression and a classic join": [
        "z beat epoch=0 timeout=60000 owned=- regex=t assignor=range",
        *("- wait ms=500", "z beat", f"y {_BEAT} names=t", "- describe", "z join id=own", "- describe"),
        *("- forget names=t,other", "z beat", "- describe"),
    ],
    "protocols that all know": [
        f"z {_BEAT} names=t",
        *("m0 join id=own protocols=a,b", "m1 join id=own protocols=c", "m1 join id=own protocols=c,b", "m1 sync"),
        *("m1 sync protocol=c", "m0 join id=own protocols=a", "m0 join id=own protocols=b", "m0 sync protocol=b"),
    ],
    "an empty consumer group becomes classic": [
        f"z {_BEAT} names=t",
        *("z commit", "z beat epoch=-1", "m0 join id=own", "- list", "m0 join", "m0 sync give=m0:t:0", "- list"),
        *("m0 fetch id=null epoch=-1", "- describe_classic"),
    ],
    "offsets stay": [
        *_STABLE,
        *("m0 commit", f"z {_BEAT} names=t", "z fetch", "z commit to=t:1", "z beat epoch=-1", "m0 fetch v=8", "- list"),
    ],
    "told to join, and silent": [
        *("m0 join timeout=1500", "m0 sync give=m0:t:0,1,2,3", f"z {_BEAT} names=t", "- wait ms=1000"),
        *("m0 classic_beat", "- wait ms=1000", "m0 classic_beat", "- wait ms=1000", "m0 classic_beat", "- describe"),
    ],
    "joined, and not synced": [
        *(f"z {_BEAT} names=t", "m0 join id=own timeout=1500", "- wait ms=1000", "m0 classic_beat", "- wait ms=1000"),
        *("m0 classic_beat", "- describe", "- list"),
    ],
    "joined and synced in time": [
        *(f"z {_BEAT} names=t", "m0 join id=own timeout=1500", "- wait ms=1000", "m0 sync", "- wait ms=1000"),
        *("m0 classic_beat", "- describe"),
    ],
    "a protocol name is given twice": [
        *(f"z {_BEAT} names=t", "m0 join id=own protocols=range,range", "m0 sync", "z beat epoch=-1", "- list"),
    ],
    "joined, turned consumer, and not synced": [
        *(f"z {_BEAT} names=t", "m0 join id=own timeout=1500", "m0 beat", "- wait ms=2500", "m0 beat", "- describe"),
    ],
    "a session of its own": [
        *(f"z {_BEAT} names=t", "m0 join id=own session=1500", "m0 sync", "- wait ms=1000", "m0 classic_beat"),
        *("- wait ms=1000", "m0 classic_beat", "- wait ms=2000", "m0 classic_beat", "- describe"),
    ],
    "the last consumer expires": [
        "- configure session=3000 interval=500",
        "- wait ms=500",
        *(f"z {_BEAT} names=t", "m0 join id=own", "m0 sync", "- wait ms=2000", "- list", "- wait ms=2000", "- list"),
        *("z beat", "m0 classic_beat", "m0 join", "m0 sync give=m0:t:0", "- describe_classic"),
    ],
    "the last consumer does not give up in time": [
        "z beat epoch=0 timeout=1500 owned=- names=t assignor=range",
        *("m0 join id=own", "m0 sync", "z beat", "- list", "- wait ms=2500", "- list", "m0 classic_beat", "z beat"),
    ],
    "restarted after an upgrade": [
        *_BEHIND,
        *("m0 commit", "- restart", "- describe", "m0 classic_beat", "m0 fetch", "m0 join owned=mine", "m0 sync"),
        *("z beat", "m0 join owned=mine", "m0 sync", "z beat", "- describe", "z beat epoch=-1", "- list"),
    ],
    "restarted while it gives up": [
        *_BEHIND,
        *(
            "m0 join owned=mine",
            "- restart",
            "- describe",
            "m0 classic_beat",
            "m0 sync",
            "m0 join owned=t:0,1",
            "z beat",
        ),
        *("- describe", "- list"),
    ],
    "restarted after a downgrade": [
        *_UP,
        *("z beat epoch=-1", "- restart", "- describe", "- describe_classic", "m0 classic_beat", "m1 classic_beat"),
        *("m0 sync", "m0 join names=t,t2 wait=no", "m1 classic_beat", "- list"),
    ],
    "restarted after a static replacement": [
        f"z {_BEAT} names=t instance=i",
        *("m0 join instance=i", "- list", "- restart", "- list", "m0 classic_beat", "m0 sync instance=i"),
        *("- describe_classic", f"z2 {_BEAT} names=t instance=i", "- describe"),
    ],
    "restarted with members of both protocols": [
        *_BOTH,
        *(
            "- restart",
            "- describe",
            "m0 classic_beat",
            "z beat",
            "m0 commit",
            "m0 beat",
            "z join id=own",
            "- describe",
        ),
    ],
}

_POLICY = "group.consumer.migration.policy"
PROFILES: Mapping[str, Mapping[str, str]] = {
    "policy disabled": {_POLICY: "disabled"},
    "policy upgrade": {_POLICY: "upgrade"},
    "policy downgrade": {_POLICY: "DOWNGRADE"},
    "at most two in a consumer group": {"group.consumer.max.size": "2"},
    "at most one in a classic group": {"group.max.size": "1"},
}
"""Settings of the broker for some cases."""
OF_POLICIES: Mapping[str, list[str]] = {
    "a consumer member joins": [*_BEHIND, "- list", "m0 classic_beat", "z beat epoch=-1", "- list", "- describe"],
    "a consumer member joins an empty group": [*_STABLE, "m0 leave", f"z {_BEAT} names=t", "z beat epoch=-1", "n join"],
    "classic members join": [
        *(f"z {_BEAT} names=t", "m0 join", f"m0 {_JOIN}", "m1 join id=own instance=i", "- describe", "- list"),
        *("z leave", "- list", "- describe", "m0 classic_beat", "m0 leave", "- list"),
    ],
    "a static member is replaced": [f"z {_BEAT} names=t instance=i", "m0 join instance=i", "- list", "- describe"],
}
OF_SIZES: Mapping[str, list[str]] = {
    "two consumers": [
        *(f"z {_BEAT} names=t", f"y {_BEAT} names=t", "m0 join", f"m0 {_JOIN}", "m0 join type=connect"),
        *("m0 join instance=i", "- list", "z beat epoch=-1", f"m0 {_JOIN}", "- list", f"m1 {_JOIN}"),
    ],
    "two classic members stay": [
        *(f"z {_BEAT} names=t", f"m0 {_JOIN}", f"m1 {_JOIN}", "z beat epoch=-1", "- list", "- describe"),
    ],
}


def settings_of(case: str) -> Mapping[str, str]:
    """Return the settings of the broker that a case needs, besides those of all cases."""
    return PROFILES.get(case.removeprefix("mixed, ").partition(":")[0], {})


def mixed_cases() -> dict[str, list[str]]:
    """Return the steps of each case, by name."""
    found: dict[str, list[str]] = {}
    for state, (before, hears) in CLASSIC_SETUPS.items():
        for name, steps in UPGRADES.items():
            after = [*_SEEN, *_AFTER_REFUSAL] if name in _REFUSED else [*hears, *_SEEN, *_AFTER_UPGRADE]
            found[f"classic {state}: {name}"] = [*before, *steps, *after]
    for name, before in NOT_UPGRADED.items():
        found[f"classic with {name}"] = [*before, f"z {_BEAT} names=t", *_SEEN, *_AFTER_REFUSAL]
    for name, before in UPGRADED.items():
        found[f"classic with {name}"] = [*before, f"z {_BEAT} names=t", *_SEEN, *_AFTER_UPGRADE]
    for state, before in SETUPS.items():
        for request, (said, axes) in _REQUESTS.items():
            for name, text in (*_ways(axes), *_two_ways(axes)):
                found[f"{state}: {request}, {name}"] = [*before, f"{said} {text}".rstrip(), *_AFTER]
        for name, steps in OTHER_REQUESTS.items():
            found[f"{state}: {name}"] = [*before, *steps]
    found = {f"mixed, {name}": steps for name, steps in found.items()}
    found |= {f"mixed story: {name}": steps for name, steps in STORIES.items()}
    for profile in PROFILES:
        for name, steps in (OF_POLICIES if profile.startswith("policy") else OF_SIZES).items():
            found[f"mixed, {profile}: {name}"] = steps
    return found
