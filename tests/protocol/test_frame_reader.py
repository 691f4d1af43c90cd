"""Frames read in place: the same as FrameCutter makes of the same bytes, however they come in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.errors import MalformedError
from coterie.protocol.frames import FIRST_GUESS, SMALL, FrameCutter, FrameReader

MAX = 8 * FIRST_GUESS
MOST_PORTIONS = 2_000
OF_OTHERS = b"\xee" * SMALL


def frame(size: int, fill: int = 7) -> bytes:
    return size.to_bytes(4, "big") + bytes([fill]) * size


def read(data: bytes, portions: list[int], max_size: int = MAX) -> tuple[list[bytes], FrameReader]:
    """As a socket fills it: never more than there is room for."""
    shared = bytearray(SMALL)
    reader = FrameReader(max_size, shared)
    frames: list[bytes] = []
    at = turn = 0
    least = len(data) // MOST_PORTIONS  # else one byte at a time takes a minute
    while at < len(data):
        with reader.buffer() as room:
            count = min(len(room), max(portions[turn % len(portions)], least), len(data) - at)
            assert count, "a buffer without room would look like the end of the stream"
            room[:count] = data[at : at + count]
            frames += map(bytes, reader.filled(count))
            shared[:] = OF_OTHERS  # others use it in between
        at += count
        turn += 1
    return frames, reader


sizes = st.lists(st.one_of(st.integers(0, 300), st.sampled_from([SMALL - 5, SMALL - 4, SMALL - 3, SMALL, 3 * SMALL])))


@given(sizes, st.lists(st.integers(1, 2 * SMALL), min_size=1, max_size=5))
def test_it_reads_what_the_cutter_cuts(wanted: list[int], portions: list[int]) -> None:
    data = b"".join(frame(size, at % 256) for at, size in enumerate(wanted))
    frames, reader = read(data, portions)
    assert frames == FrameCutter(MAX).feed(data)
    assert reader.held == 0


def test_a_frame_much_larger_than_the_first_guess_comes_whole() -> None:
    data = frame(5 * FIRST_GUESS // 2) + frame(3)
    assert read(data, [1 << 20])[0] == [data[4:-7], b"\x07" * 3]


def test_memory_follows_what_has_come_and_not_what_is_announced() -> None:
    _, reader = read((4 * FIRST_GUESS).to_bytes(4, "big") + bytes(10), [100])
    assert len(reader.buffer()) <= FIRST_GUESS
    assert reader.held == 10


@pytest.mark.parametrize("size", [-1, MAX + 1])
def test_a_size_that_cannot_be_is_refused(size: int) -> None:
    with pytest.raises(MalformedError, match=f"a frame of {size} bytes was announced"):
        read(size.to_bytes(4, "big", signed=True), [100])
