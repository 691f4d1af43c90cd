"""The cases: every request in every state of a group, wrong in one and in two ways, and stories of several members.

Rules K1 to K23 of docs/semantics-kip848.md. Members of groups of several name `range`, which assigns in the order of
their ids; which member `uniform` gives more depends on the order of a hash map in Kafka.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations

from conformance.consumer_groups.mixed_cases import SETUPS as MIXED_SETUPS
from conformance.consumer_groups.mixed_cases import mixed_cases

_JOIN = "beat epoch=0 timeout=60000 owned=- assignor=range"

SETUPS: Mapping[str, list[str]] = {
    "absent": [],
    "empty": [f"m0 {_JOIN} names=t", "m0 beat epoch=-1"],
    "one member": [f"m0 {_JOIN} names=t"],
    "no topics": [f"m0 {_JOIN} names="],
    "assigning": [f"m0 {_JOIN} names=t", f"m1 {_JOIN} names=t", "m1 beat epoch=-1"],
    "unrevoked": [f"m0 {_JOIN} names=t", f"m1 {_JOIN} names=t", "m0 beat"],
    "unreleased": [f"m1 {_JOIN} names=t,t2", f"m0 {_JOIN} names=t,t2"],
    "two members": [f"m0 {_JOIN} names=t", f"m1 {_JOIN} names=t", "m0 beat", "m0 beat owned=mine", "m1 beat"],
    "static": [f"m0 {_JOIN} names=t instance=i"],
    "static away": [f"m0 {_JOIN} names=t instance=i", "m0 beat epoch=-2 instance=i"],
    "simple": ["nobody commit epoch=-1"],
}
"""What has happened before."""

MEMBERS: Mapping[str, str] = {"": "", "unknown id": "id=stranger", "no id": "id=nobody"}
EPOCHS: Mapping[str, str] = {
    "": "",
    "newer epoch": "epoch=told+1",
    "older epoch": "epoch=told-1",
    "joins": "epoch=0 timeout=60000 owned=- names=t",
    "joins without timeout": "epoch=0 owned=- names=t",
    "joins and owns": "epoch=0 timeout=60000 owned=t:0 names=t",
    "joins and owns null": "epoch=0 timeout=60000 names=t",
    "joins without topics": "epoch=0 timeout=60000 owned=-",
    "leaves": "epoch=-1",
    "leaves for a while": "epoch=-2",
    "epoch -3": "epoch=-3",
}
INSTANCES: Mapping[str, str] = {"": "", "empty instance": "instance=", "instance": "instance=i", "other": "instance=j"}
OTHERS: Mapping[str, str] = {
    "": "",
    "version 0": "v=0",
    "no group": "group=none",
    "empty rack": "rack=",
    "rack": "rack=r",
    "unknown assignor": "assignor=best",
    "empty assignor": "assignor=",
    "other assignor": "assignor=uniform",
    "bad regex": "regex=(?=a)",
    "empty regex": "regex=",
    "owns nothing": "owned=-",
    "owns its own": "owned=mine",
    "owns others": "owned=other:0",
    "owns unknown": "owned=gone:3",
    "full": "timeout=60000 names=t owned=mine",
    "other topics": "names=t2",
    "more topics": "names=t,t2",
    "no topics": "names=",
    "unknown topics": "names=nowhere",
    "timeout": "timeout=30000",
}
_AXES = (MEMBERS, EPOCHS, INSTANCES, OTHERS)


def ways() -> Iterator[tuple[str, str]]:
    """Return all heartbeats that differ from an ordinary one in up to two ways, with their names."""
    yield "ordinary", ""
    for axis in _AXES:
        yield from ((name, text) for name, text in axis.items() if name)
    for first, second in combinations(_AXES, 2):
        for one, said in first.items():
            for other, also in second.items():
                if one and other:
                    yield f"{one}, {other}", _merged(said, also)


def _merged(said: str, also: str) -> str:
    """Both texts; if they disagree about a value, the second counts."""
    values = dict(part.split("=", 1) for part in f"{said} {also}".split())
    return " ".join(f"{name}={value}" for name, value in values.items())


_AFTER = ["m0 beat", "- describe"]
OTHER_REQUESTS: Mapping[str, list[str]] = {
    "described": ["- describe", "- describe_classic", "- describe_classic v=5"],
    "listed": ["- list", "- list types=CONSUMER", "- list types=classic", "- list states=stable,EMPTY"],
    "commits": [
        f"m0 commit{epoch}{member}{version}{to}"
        for epoch in ("", " epoch=told+1", " epoch=told-1", " epoch=-1", " epoch=0", " epoch=-2")
        for member in ("", " id=nobody", " id=stranger", " instance=j")
        for version, to in (("", ""), (" v=8", ""), ("", " to=t:3"), ("", " to=other:0"))
    ],
    "fetches": [
        f"m0 fetch{epoch}{member}"
        for epoch in ("", " epoch=told+1", " epoch=told-1", " epoch=-1", " epoch=-2")
        for member in ("", " id=nobody", " id=stranger", " id=null")
        if member != " id=null" or epoch == " epoch=-1"
    ]
    + ["m0 fetch v=8"],
    "forgets": ["m0 commit to=other:0", "m0 commit", "- forget names=t,other", "m0 fetch id=null epoch=-1"],
    "deleted": ["- delete", "- describe", f"m0 {_JOIN} names=t"],
    "left by LeaveGroup": ["m0 leave", "- describe", "m0 leave id=stranger", "x leave id=nobody instance=i"],
    "asked by classic members": ["m0 classic_beat", "m0 classic_beat epoch=told+1", "z classic_beat"],
}

_TWO = [f"m0 {_JOIN} names=t,t2", f"m1 {_JOIN} names=t,t2"]
STORIES: Mapping[str, list[str]] = {
    "a third joins and the first leaves": [
        *_TWO,
        *("m0 beat", "m0 beat owned=mine", "m1 beat", "- describe", f"m2 {_JOIN} names=t,t2", "- describe"),
        *("m1 beat", "m1 beat owned=mine", "m2 beat", "m0 beat", "m0 beat owned=-", "m2 beat", "- describe"),
        *("m0 beat epoch=-1", "- describe", "m1 beat", "m2 beat", "m1 beat owned=mine", "m2 beat owned=mine"),
        *("m1 beat", "m2 beat", "- describe", "m0 beat"),
    ],
    "a member gives up one by one": [
        *_TWO,
        *("m0 beat", "m0 beat owned=t:0,1,2", "m0 beat owned=t:0,1,2,3/t2:0,1", "m0 beat", "- describe"),
        *("m0 beat owned=t:0,1/t2:0", "- describe", "m1 beat", "m1 beat"),
    ],
    "a target changes while a member gives up": [
        *_TWO,
        *("m0 beat", f"m2 {_JOIN} names=t,t2", "- describe", "m0 beat owned=mine", "m0 beat owned=mine", "- describe"),
        *("m1 beat", "m2 beat", "- describe", "m2 beat epoch=-1", "m0 beat", "m1 beat", "m0 beat", "- describe"),
    ],
    "what must be given up is taken back": [
        *_TWO,
        *("m0 beat", "m1 beat epoch=-1", "- describe", "m0 beat", "m0 beat owned=mine", "- describe", "m0 beat"),
    ],
    "an answer is lost": [
        f"m0 {_JOIN} names=t",
        f"m1 {_JOIN} names=t",
        *("m0 beat", "m0 beat owned=mine", "m0 beat epoch=told-1", "m0 beat epoch=told-1 owned=mine"),
        *("m0 beat epoch=2 owned=t:3", "m0 beat epoch=2 owned=-", "m0 beat", "m1 beat epoch=2 owned=-", "m1 beat"),
    ],
    "a member joins again": [
        *_TWO,
        *("m0 beat", f"m0 {_JOIN} names=t,t2", "- describe", f"m1 {_JOIN} names=t,t2", "- describe"),
        *(f"m1 {_JOIN} names=t", "- describe", "m0 beat", "m1 beat", "m0 beat", "- describe"),
    ],
    "topics are dropped and come back": [
        f"m0 {_JOIN} names=t,t2",
        *("m0 beat names=t", "m0 beat", "- describe", "m0 beat owned=t:0,1,2,3", "- describe"),
        *("m0 beat names=t2 owned=mine", "m0 beat names=t,t2", "- describe", "m0 beat owned=-", "- describe"),
        *("m0 beat names=", "m0 beat owned=-", "- describe", "m0 beat names=t,t2,t2", "m0 beat names=t2,t"),
    ],
    "topics are dropped by one of two": [
        *_TWO,
        *("m0 beat", "m0 beat owned=mine", "m1 beat", "m1 beat names=t2", "- describe", "m0 beat", "m1 beat owned=-"),
        *("m0 beat", "m1 beat", "m0 beat owned=mine", "m1 beat", "- describe"),
    ],
    "a static member returns": [
        f"m0 {_JOIN} names=t instance=i",
        f"m1 {_JOIN} names=t instance=j",
        *("m0 beat", "m0 beat owned=mine", "m1 beat", "- describe"),
        *(f"m2 {_JOIN} names=t instance=i", f"m0 {_JOIN} names=t instance=i", "m0 beat epoch=-2 instance=i"),
        *("- describe", "m0 beat instance=i", "m0 beat", "m0 beat epoch=-2 instance=i", "m1 beat"),
        *(f"m2 {_JOIN} names=t instance=i", "- describe", "m0 beat", "m0 beat instance=i", "m2 beat instance=i"),
        *("m2 beat", "m0 beat epoch=-1", "m0 beat epoch=-1 instance=i", "m2 beat epoch=-2 instance=i"),
        *(f"m2 {_JOIN} names=t instance=i", "- describe", "m2 beat epoch=-2 instance=i", "m2 beat epoch=-1"),
        *("- describe", "m1 beat", "m1 beat", "- describe"),
    ],
    "a static member returns with other topics": [
        f"m0 {_JOIN} names=t instance=i",
        *("m0 beat epoch=-2 instance=i", f"m2 {_JOIN} names=t2 instance=i", "- describe", "m2 beat owned=-"),
        *("- describe", "m2 beat epoch=-1 instance=i", "- describe"),
    ],
    "a static member goes while it gives up": [
        f"m0 {_JOIN} names=t instance=i",
        f"m1 {_JOIN} names=t",
        *("m0 beat", "m0 beat epoch=-2 instance=i", "- describe", "m1 beat", "- describe"),
        *(f"m2 {_JOIN} names=t instance=i", "- describe", "m1 beat", "- describe"),
    ],
    "commits of a static member that is away": [
        f"m0 {_JOIN} names=t instance=i",
        *("m0 beat epoch=-2 instance=i", "m0 commit epoch=-2", "m0 commit epoch=-1", "m0 commit epoch=2"),
        *(f"m2 {_JOIN} names=t instance=i", "m2 commit", "m2 commit epoch=1", "m2 commit epoch=0", "m0 commit epoch=2"),
    ],
    "commits of an older epoch": [
        *_TWO,
        *("m0 beat", "m0 commit to=t:0", "m0 commit to=t:3", "m0 beat owned=mine", "m1 beat"),
        *("m0 commit epoch=2 to=t:0", "m0 commit epoch=2 to=t:3", "m0 commit epoch=1 to=t:0", "m0 commit to=t:3"),
        *("m1 commit to=t:3", "m1 commit epoch=2 to=t:3", "m1 commit epoch=2 to=t:0", "m1 commit epoch=4"),
    ],
    "votes": [
        "m0 beat epoch=0 timeout=60000 owned=- names=t",
        *("- describe", "m0 beat assignor=range", "- describe", "m1 beat epoch=0 timeout=60000 owned=- names=t"),
        *("- describe", "m1 beat assignor=uniform", "- describe", "m1 beat assignor=range", "- describe"),
    ],
    "a regular expression": [
        "m0 beat epoch=0 timeout=60000 owned=- regex=t.* assignor=range",
        *("- wait ms=500", "m0 beat", "- describe", "m0 beat", "m0 beat regex=t.*", "- forget names=t,other"),
        *("m1 beat epoch=0 timeout=60000 owned=- regex=t.* assignor=range", "- describe", "m0 beat names=other"),
        *("- describe", "m0 beat regex=", "- describe", "m0 beat owned=-", "m1 beat", "m1 beat regex=t", "- describe"),
        *("m1 beat", "- wait ms=500", "m1 beat", "- describe"),
        *("m1 beat regex=[", "m1 beat", "m1 beat epoch=-1", "m0 beat", "- describe"),
    ],
    "a regular expression matches whole names": [
        "m0 beat epoch=0 timeout=60000 owned=- regex=t names=nowhere",
        *("- wait ms=500", "m0 beat", "- describe", "m0 beat regex=", "- describe"),
    ],
    "a topic is created after it was subscribed": [
        "m0 beat epoch=0 timeout=60000 owned=- names=t",
        *("m0 beat names=t,later", "m0 beat", "- describe"),
    ],
    "ids that the broker makes": [
        "nobody beat v=0 epoch=0 timeout=60000 owned=- names=t",
        *("nobody beat v=0 epoch=0 timeout=60000 owned=- names=t", "- delete"),
    ],
    "members are in the way": [
        f"m0 {_JOIN} names=t",
        *("- delete", "m0 beat epoch=-1", "- list", "m0 commit epoch=-1", "- delete", "- list", "- describe"),
        *(f"m0 {_JOIN} names=t", "m0 fetch", "m0 beat epoch=-1", "m0 fetch", "m0 fetch id=null epoch=-1"),
    ],
    "configs of a group": [
        *("- configure session=99 interval=50", "- configure session=60001", "- configure interval=49"),
        *("- configure interval=15001", "- configure session=x", "- configure session=5000"),
        *("- configure session=300 interval=300", "- configure session=301 interval=300", "- wait ms=500"),
        f"m0 {_JOIN} names=t",
    ],
    "a silent member expires": [
        "- configure session=5000 interval=500",
        "- wait ms=500",
        *(f"m0 {_JOIN} names=t", f"m1 {_JOIN} names=t", "- wait ms=3000", "m0 beat", "m1 commit epoch=3"),
        *("- wait ms=3000", "m1 beat", "- describe", "m0 beat", "- describe"),
    ],
    "a static member that is away expires": [
        "- configure session=5000 interval=500",
        "- wait ms=500",
        *(f"m0 {_JOIN} names=t instance=i", f"m1 {_JOIN} names=t", "- wait ms=3000", "m0 beat epoch=-2 instance=i"),
        *("m1 beat", "- wait ms=3000", "- describe", f"m2 {_JOIN} names=t instance=i"),
    ],
    "a member does not give up in time": [
        "m0 beat epoch=0 timeout=1500 owned=- names=t assignor=range",
        f"m1 {_JOIN} names=t",
        *("m0 beat", "- wait ms=900", "m0 beat", "- wait ms=1100", "m0 beat", "- describe", "m1 beat", "- describe"),
    ],
}


def cases() -> dict[str, list[str]]:
    """Return the steps of each case, by name."""
    found: dict[str, list[str]] = {}
    for state, before in SETUPS.items():
        for name, said in ways():
            found[f"{state}: {name}"] = [*before, f"m0 beat {said}".rstrip(), *_AFTER]
        for name, steps in OTHER_REQUESTS.items():
            found[f"{state}: {name}"] = [*before, *steps]
    for state, before in MIXED_SETUPS.items():  # heartbeats of the consumer member z; the classic member is m0
        for name, said in ways():
            if "," not in name:
                steps = [f"z beat {said}".rstrip(), "m0 classic_beat", "z beat", "- describe", "- list"]
                found[f"mixed, {state}: consumer beats, {name}"] = [*before, *steps]
    return found | {f"story: {name}": steps for name, steps in STORIES.items()} | mixed_cases()
