"""Frames out of a stream, headers out of frames."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.errors import MalformedError
from coterie.protocol.frames import (
    FrameCutter,
    RequestHeader,
    client_id_of,
    read_request_header,
    read_response_header,
    request_frame,
    response_frame,
    response_frame_parts,
)

FLEXIBLE = {12: 4, 18: 3}
HEARTBEAT = bytes.fromhex("000c 0004 00000007 0001") + b"c"


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


@given(st.lists(st.binary(max_size=30)), st.data())
def test_frames_come_out_whole_however_the_stream_is_cut(bodies: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(map(framed, bodies))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)))))
    cutter = FrameCutter(max_size=30)
    seen: list[bytes] = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        seen += cutter.feed(stream[start:end])
    assert seen == bodies
    assert cutter.held == 0


def test_a_large_frame_in_large_pieces_comes_out_whole() -> None:
    body = bytes(range(256)) * 1000
    stream = framed(body) + framed(b"next")
    cutter = FrameCutter(max_size=len(body))
    seen = [frame for at in range(0, len(stream), 65_536) for frame in cutter.feed(stream[at : at + 65_536])]
    assert seen == [body, b"next"]


@pytest.mark.parametrize("size", [-1, -(2**31), 1001, 2**31 - 1, int.from_bytes(b"GET ", "big")])
def test_a_size_out_of_bounds_ends_the_stream(size: int) -> None:
    """Rule C7."""
    with pytest.raises(MalformedError, match=f"a frame of {size} bytes was announced; a size is 0 to 1000"):
        FrameCutter(max_size=1000).feed(size.to_bytes(4, "big", signed=True))


def test_an_announced_frame_costs_what_has_arrived_of_it() -> None:
    cutter = FrameCutter(max_size=100 * 1024 * 1024)
    tracemalloc.start()
    try:
        assert cutter.feed((100 * 1024 * 1024).to_bytes(4, "big")) == []
        for _ in range(10_000):
            assert cutter.feed(b"xy") == []
        assert cutter.held == 20_004
        assert tracemalloc.get_traced_memory()[0] < 60_000
    finally:
        tracemalloc.stop()


def test_frames_before_a_bad_size_are_not_handed_out() -> None:
    """The stream is closed at once; whoever sends garbage has no claim to an answer."""
    with pytest.raises(MalformedError):
        FrameCutter(max_size=10).feed(framed(b"good") + b"\xff\xff\xff\xff")


# --- request headers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("frame", "header", "client_id"),
    [
        (HEARTBEAT + b"\0body", (12, 4, 7, 12), "c"),
        (HEARTBEAT + b"\1\0\3abcbody", (12, 4, 7, 17), "c"),
        (HEARTBEAT + b"\1\x80\1\3abcbody", (12, 4, 7, 18), "c"),
        (HEARTBEAT.replace(b"\0\4", b"\0\3", 1) + b"body", (12, 3, 7, 11), "c"),
        (bytes.fromhex("000c 0000 ffffffff ffff") + b"body", (12, 0, -1, 10), ""),
        (bytes.fromhex("000c 0000 00000001 8000"), (12, 0, 1, 10), ""),
        (bytes.fromhex("000c 0000 00000001 0000"), (12, 0, 1, 10), ""),
        (bytes.fromhex("0012 0063 00000001 0001 ff 00"), (18, 99, 1, 12), "\N{REPLACEMENT CHARACTER}"),
    ],
    ids=["flexible", "tagged", "large tag", "old", "null client", "negative length", "empty client", "no UTF-8"],
)
def test_headers_are_read_as_kafka_reads_them(frame: bytes, header: RequestHeader, client_id: str) -> None:
    """A null client id, or one of any negative length, counts as "" (rule 3); tagged fields are stepped over."""
    assert read_request_header(frame, FLEXIBLE) == header
    assert client_id_of(frame) == client_id


@pytest.mark.parametrize("length", range(len(HEARTBEAT) + 1))
def test_a_header_cut_short_is_malformed(length: int) -> None:
    with pytest.raises(MalformedError, match="ends within its request header"):
        read_request_header(HEARTBEAT[:length], FLEXIBLE)


@pytest.mark.parametrize("tags", [b"\1", b"\1\0\5abc", b"\x64"])
def test_tagged_fields_cut_short_are_malformed(tags: bytes) -> None:
    with pytest.raises(MalformedError, match="ends within its request header"):
        read_request_header(HEARTBEAT + tags, FLEXIBLE)


def test_a_varint_that_does_not_end_is_malformed() -> None:
    with pytest.raises(MalformedError, match="varint at byte 11 does not end within five bytes"):
        read_request_header(HEARTBEAT + b"\xff" * 9, FLEXIBLE)


def test_an_unknown_api_has_no_header_we_could_read() -> None:
    """Kafka closes such a connection too."""
    with pytest.raises(MalformedError, match="API key 4242 is not one of ours"):
        read_request_header((4242).to_bytes(2, "big") + bytes(20), FLEXIBLE)


@given(st.binary(max_size=40))
def test_noise_is_a_header_or_malformed(frame: bytes) -> None:
    try:
        header = read_request_header(frame, FLEXIBLE)
    except MalformedError:
        return
    assert header[-1] <= len(frame)
    client_id_of(frame)


# --- packing ----------------------------------------------------------------------------------------------------------


@given(st.integers(-(2**31), 2**31 - 1), st.binary(max_size=20), st.booleans())
def test_an_answer_is_read_back(correlation_id: int, body: bytes, flexible: bool) -> None:
    stream = response_frame(correlation_id, body, flexible=flexible)
    (frame,) = FrameCutter(max_size=100).feed(stream)
    told, at = read_response_header(frame, flexible=flexible)
    assert (told, frame[at:]) == (correlation_id, body)
    parts = response_frame_parts(correlation_id, [body[:3], memoryview(body)[3:]], flexible=flexible)
    assert b"".join(parts) == stream


@given(st.integers(-(2**31), 2**31 - 1), st.none() | st.text(max_size=9), st.binary(max_size=20), st.booleans())
def test_a_request_is_read_back(correlation_id: int, client_id: str | None, body: bytes, flexible: bool) -> None:
    version = 4 if flexible else 3
    stream = request_frame(12, version, correlation_id, client_id, body, flexible=flexible)
    (frame,) = FrameCutter(max_size=100).feed(stream)
    *header, body_at = read_request_header(frame, FLEXIBLE)
    assert header == [12, version, correlation_id]
    assert client_id_of(frame) == (client_id or "")
    assert frame[body_at:] == body


@pytest.mark.parametrize("frame", [b"", b"\0\0\0", b"\0\0\0\1", b"\0\0\0\1\1\0\5a"])
def test_an_answer_cut_short_is_malformed(frame: bytes) -> None:
    with pytest.raises(MalformedError, match="ends within its response header"):
        read_response_header(frame, flexible=True)
