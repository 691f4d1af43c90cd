"""What the sticky assignors put into the user data of a subscription.

`sticky` (version 1): array of (topic, array of int32), then the generation, an int32. Version 0 ends before the
generation. `cooperative-sticky`: the generation alone, for leaders that do not know Subscription version 2.
Unreadable user data owns nothing: a newcomer with strange bytes must not stop the group.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Sequence
from struct import Struct, error

from coterie.assignors.model import Owned
from coterie.protocol.messages import NO_GENERATION

__all__ = ["OwnedReader", "read_generation", "read_owned", "write_generation", "write_owned"]

_INT32 = Struct(">i")
_INT16 = Struct(">h")
_SWAP = sys.byteorder == "little"

_UNPACK: list[Callable[[bytes, int], tuple[int, ...]]] = [Struct(f">{count}I").unpack_from for count in range(5)]
"""For so few ids a tuple is made faster than an array."""


class OwnedReader:
    """Reads the user data of one member after the other.

    Members of a group mostly name the same topics in the same order, with as many partitions each. So what followed a
    topic last time is tried first: a comparison of bytes instead of reading a length, a name and a count. This halves
    the time of the whole assignment when there are many topics.
    """

    def __init__(self) -> None:
        self._after: dict[str, tuple[bytes, str, int]] = {}  # topic to bytes, topic and count that followed it
        self._names: dict[bytes, str] = {}

    def read(self, data: bytes) -> tuple[dict[str, Sequence[int]], int]:
        """Owned partitions and their generation. Ids are read as unsigned: a negative one is then merely too large.

        An announced length is never trusted beyond the bytes that are there: slices end where the data ends.
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
    return OwnedReader().read(data)


def write_owned(owned: Owned, generation: int) -> bytes:
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
    return _INT32.unpack_from(data)[0] if data is not None and len(data) >= 4 else NO_GENERATION


def write_generation(generation: int) -> bytes:
    return _INT32.pack(generation)
