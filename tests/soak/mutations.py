"""What is done to a well-formed frame to make a hostile one."""

from __future__ import annotations

import struct
from collections.abc import Callable
from random import Random

__all__ = ["MUTATIONS", "hostile"]

ABSURD = (
    b"\x7f\xff\xff\xff",  # 2^31 - 1, the length of an old array
    b"\x80\x00\x00\x00",
    b"\x7f\xff",
    b"\xff\xff\xff\xff\x07",  # the same as a varint
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\xff\xff\x01",  # one that is too long
    b"\x00\x00\x00\x00",
    b"\xff\xff\xff\xff",
)
HEADER = 8
"""Key, version and correlation id."""


def _flip(frame: bytes, dice: Random) -> bytes:
    data = bytearray(frame)
    for _ in range(dice.choice((1, 1, 2, 8))):
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    return bytes(data)


def _flip_body(frame: bytes, dice: Random) -> bytes:
    return frame[:HEADER] + _flip(frame[HEADER:] or b"\0", dice)


def _cut(frame: bytes, dice: Random) -> bytes:
    return frame[: dice.randrange(len(frame) + 1)]


def _prolong(frame: bytes, dice: Random) -> bytes:
    return frame + dice.randbytes(dice.choice((1, 4, 100)))


def _absurd_length(frame: bytes, dice: Random) -> bytes:
    at, absurd = dice.randrange(HEADER, len(frame) + 1), dice.choice(ABSURD)
    return frame[:at] + absurd + frame[at + dice.choice((0, 1, len(absurd))) :]


def _repeat(frame: bytes, dice: Random) -> bytes:
    """A piece of it again and again: nested lists, many entries."""
    start = dice.randrange(len(frame))
    end = dice.randrange(start, min(start + 60, len(frame))) + 1
    return frame[:end] + frame[start:end] * dice.choice((1, 3, 100)) + frame[end:]


def _drop(frame: bytes, dice: Random) -> bytes:
    start = dice.randrange(len(frame))
    return frame[:start] + frame[start + dice.choice((1, 2, 4, 10)) :]


def _noise(frame: bytes, dice: Random) -> bytes:
    return frame[: dice.choice((0, 2, 4, 8, 12))] + dice.randbytes(dice.choice((0, 1, 10, 100)))


def _other_api(frame: bytes, dice: Random) -> bytes:
    return struct.pack(">h", dice.choice((dice.randrange(80), dice.randrange(-(2**15), 2**15)))) + frame[2:]


def _other_version(frame: bytes, dice: Random) -> bytes:
    version = dice.choice((dice.randrange(19), dice.randrange(-(2**15), 2**15)))
    return frame[:2] + struct.pack(">h", version) + frame[4:]


def _client_id(frame: bytes, dice: Random) -> bytes:
    """A name that is longer than the frame, or that swallows its beginning."""
    length = dice.choice((-1, 0, 1, 3, len(frame), 2**15 - 1, -(2**15)))
    return frame[:HEADER] + struct.pack(">h", min(length, 2**15 - 1)) + frame[HEADER + 2 :]


def _tags(frame: bytes, dice: Random) -> bytes:
    """Tagged fields at the end, where flexible versions have them: known, unknown, too long, too many."""
    count = dice.choice((1, 2, 3, 127))
    fields = b"".join(bytes([dice.choice((0, 1, 2, 100)), size]) + dice.randbytes(size) for size in (0, 1, 5))
    return frame[:-1] + bytes([count]) + fields


def _as_it_is(frame: bytes, _dice: Random) -> bytes:
    return frame


MUTATIONS: dict[Callable[[bytes, Random], bytes], int] = {
    _as_it_is: 40,
    _flip: 8,
    _flip_body: 12,
    _cut: 6,
    _prolong: 2,
    _absurd_length: 10,
    _repeat: 8,
    _drop: 4,
    _noise: 3,
    _other_api: 2,
    _other_version: 3,
    _client_id: 1,
    _tags: 3,
}
"""With how often each is taken, of a hundred or so. What is well-formed gets deeper, so there is much of it."""


def hostile(frame: bytes, dice: Random) -> bytes:
    (mutation,) = dice.choices(list(MUTATIONS), list(MUTATIONS.values()))
    mutated = mutation(frame, dice)
    return mutation(mutated, dice) if mutated and dice.random() < 0.1 else mutated
