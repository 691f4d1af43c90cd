r"""Writers made from a message's fields: `write(append, value)` appends the message piece by piece.

A writer is made as source and compiled; `python_source.py` says why. Numbers that stand side by side, and the zero that
says that there are no tagged fields, are packed at once. The writer of a Metadata request, version 12:

    def write(append, value):
        value1 = value.topics
        if value1 is None:
            append(lengths[-1])
        else:
            append(lengths[len(value1)])
            for value2 in value1:
                append(pack_16s((value2.topic_id or no_id).int.to_bytes(16)))
                value3 = value2.name
                if value3 is None:
                    append(lengths[-1])
                else:
                    data = value3.encode()
                    append(lengths[len(data)] + data)
                append(b'\0')
        append(pack_ttx(value.allow_auto_topic_creation, value.include_topic_authorized_operations))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import cache
from typing import Any, get_args, get_origin
from uuid import UUID

from coterie.protocol.buffer import COMPACT, OLD, Encoding, uvarint
from coterie.protocol.codec.fields import MessageField, is_message, is_records, number_format, present
from coterie.protocol.codec.python_source import SHORT, Source, repeated, shape

Append = Callable[[bytes | memoryview], None]
Write = Callable[[Append, Any], None]

_NO_ID = UUID(int=0)


class _Lengths(dict[int, bytes]):
    """Length -> its bytes; -1 is null. Only the short ones are kept."""

    def __init__(self, encode: Callable[[int], bytes]) -> None:
        super().__init__({length: encode(length) for length in range(-1, SHORT - 1)})
        self._encode = encode

    def __missing__(self, length: int) -> bytes:
        return self._encode(length)


_COMPACT, _OLD, _OLD_STRING = _Lengths(COMPACT.length), _Lengths(OLD.length), _Lengths(shape("h").pack)


@cache
def message_writer(message: type, version: int, encoding: Encoding) -> Write:
    write: Write = writer_source(message, version, encoding).function(f"writer of {message}, version {version}")
    return write


def writer_source(hint: Any, version: int, encoding: Encoding) -> Source:
    """Make the writer of a message, or of the value of a tagged field."""
    writer = _Writer(version, encoding)
    writer.value(hint, "value")
    writer.flush()
    return writer.source


class _Writer:
    """Writes down how to write; `value` is what the source calls the message or the value at hand."""

    def __init__(self, version: int, encoding: Encoding) -> None:
        self.source = Source("write(append, value)")
        self._version = version
        self._encoding = encoding
        self._run: list[tuple[str, str]] = []  # numbers side by side: the struct code, and what each is
        self._depth = 0

    # --- numbers side by side -----------------------------------------------------------------------------------------

    def flush(self) -> None:
        layout = "".join(code for code, _ in self._run)
        if layout == "x":
            self.source.line(r"append(b'\0')")
        elif layout:
            pack = self.source.use(shape(layout).pack, f"pack_{layout}")
            self.source.line(f"append({pack}({', '.join(what for _, what in self._run if what)}))")
        self._run = []

    # --- messages -----------------------------------------------------------------------------------------------------

    def _message(self, message: type, value: str) -> None:
        for member in present(message, self._version, tagged=False):
            self._member(member, value)
        if self._encoding.flexible:
            self._tags(message, value)

    def _member(self, member: MessageField, value: str) -> None:
        hint, what = member.type, f"{value}.{member.name}"
        if number_format(hint) or hint is UUID:
            self.value(hint, what)
            return
        self.flush()
        self._depth += 1
        inner = f"value{self._depth}"
        self.source.line(f"{inner} = {what}")
        if not member.may_be_null(self._version):
            unsaid = self.source.use(_unsaid, "unsaid")
            self._unless_null(hint, inner, f"raise {unsaid}({value}, {member.name!r}, {self._version})")
        elif is_message(hint):
            self._unless_null(hint, inner, r"append(b'\xff')", r"append(b'\x01')")  # KIP-893
        else:
            self._unless_null(hint, inner, f"append({self._lengths(hint)}[-1])")
        self._depth -= 1

    def _tags(self, message: type, value: str) -> None:
        tagged = sorted(present(message, self._version, tagged=True), key=lambda member: member.wire.tag or 0)
        if not tagged:
            self._run.append(("x", ""))  # a zero
            return
        self.flush()
        source = self.source
        differs = []
        for name, default in ((member.name, member.default) for member in tagged):
            unlike = "is not" if default is None else "!="
            differs.append(f"{value}.{name} {unlike} {source.use(default, f'default_{name}')}")
        write = source.use(_tags_writer(tagged, self._version, self._encoding), f"tags_of_{message.__name__}")
        source.line(rf"append({write}({value}) if {' or '.join(differs)} else b'\0')")

    # --- values -------------------------------------------------------------------------------------------------------

    def value(self, hint: Any, value: str) -> None:
        """Write an element or a tagged field; null is written if it can be null."""
        if code := number_format(hint):
            self._run.append((code, value))
        elif hint is UUID:
            self._run.append(("16s", f"({value} or {self.source.use(_NO_ID, 'no_id')}).int.to_bytes(16)"))
        elif is_message(hint):
            assert isinstance(hint, type)
            self._message(hint, value)
        else:
            self.flush()
            self._unless_null(hint, value, f"append({self._lengths(hint)}[-1])")

    def _unless_null(self, hint: Any, value: str, null: str, given: str = "") -> None:
        source = self.source
        with source.block(f"if {value} is None:"):
            source.line(null)
        with nullcontext() if null.startswith("raise") else source.block("else:"):
            if given:
                source.line(given)
            if get_origin(hint) is Sequence:
                self._list(get_args(hint)[0], value)
            elif is_message(hint):
                self.value(hint, value)
            elif hint is str:
                source.line(f"data = {value}.encode()")
                source.line(f"append({self._lengths(hint)}[len(data)] + data)")
            else:
                assert hint is bytes or is_records(hint), f"{value}: nothing on the wire is a {hint}"
                source.line(f"append({self._lengths(hint)}[len({value})])")
                source.line(f"append({value})")
            self.flush()

    def _lengths(self, hint: Any) -> str:
        if self._encoding.flexible:
            return self.source.use(_COMPACT, "lengths")
        return self.source.use(_OLD_STRING, "short_lengths") if hint is str else self.source.use(_OLD, "lengths")

    def _list(self, hint: Any, value: str) -> None:
        source = self.source
        length = f"{self._lengths(Sequence)}[len({value})]"
        if code := number_format(hint):
            shapes = source.use(repeated(code), f"many_{code}")
            source.line(f"append({length} + {shapes}[len({value})].pack(*{value}))")
            return
        source.line(f"append({length})")
        self._depth += 1
        element = f"value{self._depth}"
        with source.block(f"for {element} in {value}:"):
            self.value(hint, element)
            self.flush()
        self._depth -= 1


# --- what the sources call --------------------------------------------------------------------------------------------


def _unsaid(value: Any, field: str, version: int) -> ValueError:
    return ValueError(f"{type(value).__name__}.{field} is None, which version {version} cannot say")


def _tags_writer(tagged: Sequence[MessageField], version: int, encoding: Encoding) -> Callable[[Any], bytes]:
    """Write the tagged fields of a message that differ from their defaults; writers are made on first use."""

    def write_tagged(value: Any) -> bytes:
        given = []
        for member in tagged:
            inner = getattr(value, member.name)
            if inner != member.default:
                parts: list[bytes | memoryview] = []
                message_writer(member.type, version, encoding)(parts.append, inner)
                data = b"".join(parts)
                given.append(uvarint(member.wire.tag or 0) + uvarint(len(data)) + data)
        return uvarint(len(given)) + b"".join(given)

    return write_tagged
