"""For the readers that are written out by hand: fields that must be there. What `reader_source.py` would refuse, is
refused.

Like those of `protocol/encoding.py` they may run past the end: the caller checks that after the last field.
"""

from __future__ import annotations

from coterie.errors import MalformedError
from coterie.protocol.codec.reader_source import MAX_ENTRIES
from coterie.protocol.encoding import Encoding

__all__ = ["read_count", "read_text", "too_many"]


def read_text(frame: bytes, at: int, encoding: Encoding) -> tuple[str, int]:
    text, end = encoding.read_string(frame, at)
    if text is None:
        raise MalformedError(f"the text at byte {at} is null, which is not allowed there")
    return text, end


def read_count(frame: bytes, at: int, encoding: Encoding) -> tuple[int, int]:
    """Of a list: no more than there can be in the frame, nor than a request may list."""
    count, at = encoding.read_length(frame, at)
    if count < 0:
        raise MalformedError(f"the list before byte {at} is null, which is not allowed there")
    if count > len(frame) - at:
        raise IndexError
    if count > MAX_ENTRIES:
        raise too_many()
    return count, at


def too_many() -> MalformedError:
    return MalformedError(f"a request lists more than {MAX_ENTRIES} entries, which is the most allowed; ask in several")
