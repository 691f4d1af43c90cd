"""`sticky` and `cooperative-sticky`: a balanced assignment that moves as few partitions as possible.

With `sticky` members give up all partitions before they join (eager), and what a member owned comes from its user data.
With `cooperative-sticky` members go on reading while they join (KIP-429).

If all members subscribe to the same topics, the answer is exactly Kafka's (`equal_subscriptions.py`). Otherwise it is
the optimum (`unequal_subscriptions.py`), which Kafka misses in up to one case in five.

User data of `sticky` (version 1) is an array of (topic, array of int32), then the generation, an int32; version 0 has
no generation. That of `cooperative-sticky` is the generation alone, for leaders that do not know Subscription version
2. Unreadable user data owns nothing, so that a new member with invalid bytes does not stop the group.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Collection, Mapping, Sequence
from struct import Struct, error

from coterie.assignors.equal_subscriptions import assign_equal, assign_equal_with_racks
from coterie.assignors.model import (
    Assignment,
    Assignor,
    Member,
    Owned,
    Topic,
    by_id,
    java_sorted,
    racks_differ,
    racks_matter,
    topic_racks,
)
from coterie.assignors.owned_partitions import PreviousAssignment, StickyMemberData, settle
from coterie.assignors.unequal_subscriptions import assign_unequal
from coterie.protocol.messages import NO_GENERATION

_INT32 = Struct(">i")
_INT16 = Struct(">h")
_SWAP = sys.byteorder == "little"

_UNPACK: list[Callable[[bytes, int], tuple[int, ...]]] = [Struct(f">{count}I").unpack_from for count in range(5)]
"""Readers of up to four ids: a tuple of so few is made faster than an array."""


class OwnedReader:
    """Reads the user data of one member after the other.

    Members of a group mostly name the same topics in the same order, with as many partitions each. So the bytes that
    followed a topic last time are compared first, instead of reading a length, a name and a count. This halves the time
    of the whole assignment when there are many topics.
    """

    def __init__(self) -> None:
        self._after: dict[str, tuple[bytes, str, int]] = {}  # topic to bytes, topic and count that followed it
        self._names: dict[bytes, str] = {}

    def read(self, data: bytes) -> tuple[dict[str, Sequence[int]], int]:
        """Return owned partitions and their generation. Ids are read as unsigned: a negative one is just too large.

        A length is never trusted beyond the end of the data: slices end there.
        """
        owned: dict[str, Sequence[int]] = {}
        after = self._after
        topic, at = "", 4
        try:
            (topics,) = _INT32.unpack_from(data, 0)
            for _ in range(topics):
                guess = after.get(topic)
                if guess is not None and data.startswith(guess[0], at):
                    header, topic, count = guess
                else:
                    previous = topic
                    header, topic, count = self._read_header(data, at)
                    after[previous] = header, topic, count
                at += len(header)
                if topic in owned:  # Kafka adds up what it finds twice
                    more = _UNPACK[1](data, at) if count == 1 else Struct(f">{count}I").unpack_from(data, at)
                    owned[topic] = (*owned[topic], *more)
                    at += 4 * count
                elif count < len(_UNPACK):
                    owned[topic] = _UNPACK[count](data, at)
                    at += 4 * count
                else:
                    stop = at + 4 * count
                    ids = array("I", data[at:stop])
                    if _SWAP:
                        ids.byteswap()
                    if len(ids) < count:
                        return {}, NO_GENERATION
                    owned[topic] = ids
                    at = stop
        except (error, IndexError, ValueError):
            return {}, NO_GENERATION
        return owned, _INT32.unpack_from(data, at)[0] if len(data) >= at + 4 else NO_GENERATION

    def _read_header(self, data: bytes, at: int) -> tuple[bytes, str, int]:
        end = at + 2 + (data[at] << 8 | data[at + 1])
        name = data[at + 2 : end]
        (count,) = _INT32.unpack_from(data, end)
        if count < 0:
            raise ValueError(count)
        topic = self._names.get(name)
        if topic is None:
            topic = self._names[name] = name.decode("utf-8", "replace")
        return data[at : end + 4], topic, count


def read_owned(data: bytes) -> tuple[dict[str, Sequence[int]], int]:
    """Read the user data of `sticky`: what the member owned, and in which generation."""
    return OwnedReader().read(data)


def write_owned(owned: Owned, generation: int) -> bytes:
    """Write the user data of `sticky`, version 1."""
    parts = [_INT32.pack(len(owned))]
    for topic, ids in owned.items():
        name = topic.encode()
        numbers = array("i", ids)
        if _SWAP:
            numbers.byteswap()
        parts += (_INT16.pack(len(name)), name, _INT32.pack(len(ids)), numbers.tobytes())
    parts.append(_INT32.pack(generation))
    return b"".join(parts)


def read_generation(data: bytes | None) -> int:
    """Read the user data of `cooperative-sticky`, which is the generation."""
    return _INT32.unpack_from(data)[0] if data is not None and len(data) >= 4 else NO_GENERATION


def write_generation(generation: int) -> bytes:
    """Write the user data of `cooperative-sticky`."""
    return _INT32.pack(generation)


class Sticky(Assignor):
    """Balances partitions, and lets each member keep as many of its partitions as the balance allows."""

    name = "sticky"

    def assign(self, members: Sequence[Member], topics: Mapping[str, Topic]) -> Assignment:
        ordered = by_id(members)
        reader = OwnedReader()
        result, _ = stick(ordered, [_member_data(member, reader) for member in ordered], topics)
        return {member.id: dict(shares) for member, shares in zip(ordered, result, strict=True)}

    def user_data(self, topics: Collection[str], owned: Owned, generation: int) -> bytes | None:  # noqa: ARG002
        """Return version 1: what the member owned, and in which generation; None before its first rebalance."""
        return write_owned(owned, generation) if owned or generation != NO_GENERATION else None


def _member_data(member: Member, reader: OwnedReader) -> StickyMemberData:
    """Return what a member owned: from its user data, or else from `owned` and `generation`."""
    if member.user_data:
        return StickyMemberData(*reader.read(member.user_data), natural=True)
    return StickyMemberData(member.owned, NO_GENERATION if member.generation is None else member.generation)


def stick(
    members: Sequence[Member], data: Sequence[StickyMemberData], topics: Mapping[str, Topic], *, still: bool = False
) -> tuple[list[Owned], PreviousAssignment]:
    """Assign to members in order of id; return shares by position, and what each owned before.

    `still`: see `assign_equal_with_racks`.
    """
    subscribed = _subscriptions(members, topics)
    names = java_sorted(_subscribed_by_anyone(subscribed, topics))
    previous = settle(data, subscribed, {name: topics[name].partitions for name in names})
    ids = [member.id for member in members]
    racks = [member.rack for member in members]
    near = topic_racks(topics, names) if any(racks) else {}
    if not names:
        return [{} for _ in members], previous
    if any(topics_of is not subscribed[0] for topics_of in subscribed):
        differ = racks_differ(racks, near.values())
        return assign_unequal(names, subscribed, previous, racks, near if differ else None), previous
    if racks_matter(racks, near.values()):
        return assign_equal_with_racks(ids, names, previous, racks, near, still=still), previous
    return assign_equal(ids, names, previous), previous


def _subscribed_by_anyone(subscribed: Sequence[frozenset[str]], topics: Mapping[str, Topic]) -> set[str]:
    """Return the union of all subscriptions. Mostly the largest one has all topics, and the others are not read."""
    names: set[str] = set()
    for mine in sorted(set(subscribed), key=len, reverse=True):
        names |= mine
        if len(names) == len(topics):
            break
    return names


def _subscriptions(members: Sequence[Member], topics: Mapping[str, Topic]) -> list[frozenset[str]]:
    """Return each member's subscribed topics that exist and have partitions; equal sets are one object."""
    existing = frozenset(name for name, topic in topics.items() if topic.partitions)
    known: dict[frozenset[str], frozenset[str]] = {}
    sets: list[frozenset[str]] = []
    previous: Sequence[str] | None = None
    for member in members:
        if member.topics is previous or (sets and member.topics == previous):
            sets.append(sets[-1])
            continue
        previous = member.topics
        mine = existing.intersection(previous)
        sets.append(known.setdefault(mine, mine))
    return sets


class CooperativeSticky(Assignor):
    """Assigns as `sticky`, but withholds a partition that moves until its owner has given it up.

    In the first rebalance its owner does not get it any more, revokes it and rejoins; the second rebalance assigns it.
    Since the first rebalance made the fewest moves, the second has none to make, so two rebalances are always enough.
    """

    name = "cooperative-sticky"
    cooperative = True

    def assign(self, members: Sequence[Member], topics: Mapping[str, Topic]) -> Assignment:
        ordered = by_id(members)
        data = [StickyMemberData(member.owned, _generation(member)) for member in ordered]
        result, previous = stick(ordered, data, topics, still=True)
        return {
            member.id: _without_owned_by_others(shares, position, previous)
            for position, (member, shares) in enumerate(zip(ordered, result, strict=True))
        }

    def user_data(self, topics: Collection[str], owned: Owned, generation: int) -> bytes | None:  # noqa: ARG002
        """Return the generation, for leaders that do not know Subscription version 2."""
        return write_generation(generation)


def _generation(member: Member) -> int:
    return read_generation(member.user_data) if member.generation is None else member.generation


def _without_owned_by_others(shares: Owned, position: int, previous: PreviousAssignment) -> dict[str, Sequence[int]]:
    owned = previous.owned[position]
    if shares is owned:
        return dict(owned)
    given: dict[str, Sequence[int]] = {}
    for topic, ids in shares.items():
        claimed, mine = previous.claimed.get(topic), owned.get(topic, ())
        if claimed is None or ids is mine:
            given[topic] = ids
        elif now := [partition for partition in ids if not claimed[partition] or partition in mine]:
            given[topic] = now
    return given
