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


def _flip(frame: bytes, rng: Random) -> bytes:
    data = bytearray(frame)
    for _ in range(rng.choice((1, 1, 2, 8))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


def _flip_body(frame: bytes, rng: Random) -> bytes:
    return frame[:HEADER] + _flip(frame[HEADER:] or b"\0", rng)


def _cut(frame: bytes, rng: Random) -> bytes:
    return frame[: rng.randrange(len(frame) + 1)]


def _prolong(frame: bytes, rng: Random) -> bytes:
    return frame + rng.randbytes(rng.choice((1, 4, 100)))


def _absurd_length(frame: bytes, rng: Random) -> bytes:
    at, absurd = rng.randrange(HEADER, len(frame) + 1), rng.choice(ABSURD)
    return frame[:at] + absurd + frame[at + rng.choice((0, 1, len(absurd))) :]


def _repeat(frame: bytes, rng: Random) -> bytes:
    """A piece of it again and again: nested lists, many entries."""
    start = rng.randrange(len(frame))
    end = rng.randrange(start, min(start + 60, len(frame))) + 1
    return frame[:end] + frame[start:end] * rng.choice((1, 3, 100)) + frame[end:]


def _drop(frame: bytes, rng: Random) -> bytes:
    start = rng.randrange(len(frame))
    return frame[:start] + frame[start + rng.choice((1, 2, 4, 10)) :]


def _noise(frame: bytes, rng: Random) -> bytes:
    return frame[: rng.choice((0, 2, 4, 8, 12))] + rng.randbytes(rng.choice((0, 1, 10, 100)))


def _other_api(frame: bytes, rng: Random) -> bytes:
    return struct.pack(">h", rng.choice((rng.randrange(80), rng.randrange(-(2**15), 2**15)))) + frame[2:]


def _other_version(frame: bytes, rng: Random) -> bytes:
    version = rng.choice((rng.randrange(19), rng.randrange(-(2**15), 2**15)))
    return frame[:2] + struct.pack(">h", version) + frame[4:]


def _client_id(frame: bytes, rng: Random) -> bytes:
    """A name that is longer than the frame, or that swallows its beginning."""
    length = rng.choice((-1, 0, 1, 3, len(frame), 2**15 - 1, -(2**15)))
    return frame[:HEADER] + struct.pack(">h", min(length, 2**15 - 1)) + frame[HEADER + 2 :]


def _tags(frame: bytes, rng: Random) -> bytes:
    """Tagged fields at the end, where flexible versions have them: known, unknown, too long, too many."""
    count = rng.choice((1, 2, 3, 127))
    fields = b"".join(bytes([rng.choice((0, 1, 2, 100)), size]) + rng.randbytes(size) for size in (0, 1, 5))
    return frame[:-1] + bytes([count]) + fields


def _as_it_is(frame: bytes, _rng: Random) -> bytes:
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


def hostile(frame: bytes, rng: Random) -> bytes:
    (mutation,) = rng.choices(list(MUTATIONS), list(MUTATIONS.values()))
    mutated = mutation(frame, rng)
    return mutation(mutated, rng) if mutated and rng.random() < 0.1 else mutated
