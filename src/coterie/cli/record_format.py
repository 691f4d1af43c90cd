"""How `coterie consume` writes a record: kcat's format letters, or JSON lines."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable

from coterie.errors import CoterieError
from coterie.protocol.records import Record

__all__ = ["Writer", "as_format", "as_json"]

Writer = Callable[[Record], bytes]

_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
_TOKEN = re.compile(r"%(.)|\\x([0-9a-fA-F]{2})|\\(.)|%\Z|\\\Z", re.DOTALL)


def _letters(null: bytes) -> dict[str, Writer]:
    def or_null(value: bytes | None) -> bytes:
        return null if value is None else value

    return {
        "v": lambda record: or_null(record.value),
        "s": lambda record: or_null(record.value),
        "k": lambda record: or_null(record.key),
        "o": lambda record: b"%d" % record.offset,
        "p": lambda record: b"%d" % record.partition,
        "t": lambda record: record.topic.encode(),
        "T": lambda record: b"%d" % record.timestamp,
        "h": lambda record: b",".join(name.encode() + b"=" + or_null(value) for name, value in record.headers),
        "S": lambda record: b"%d" % (-1 if record.value is None else len(record.value)),
        "K": lambda record: b"%d" % (-1 if record.key is None else len(record.key)),
        "%": lambda _record: b"%",
    }


def as_format(text: str, null: bytes = b"") -> Writer:
    r"""%v or %s value, %k key, %o offset, %p partition, %t topic, %T timestamp, %h headers, \n, \t, \x1f.

    `null` is written for a key or value that is null.
    """
    letters = _letters(null)
    parts: list[Writer] = []
    at = 0
    for token in _TOKEN.finditer(text):
        if token.start() > at:
            parts.append(_constant(text[at : token.start()].encode()))
        parts.append(_part(token, letters))
        at = token.end()
    if at < len(text):
        parts.append(_constant(text[at:].encode()))
    return lambda record: b"".join([part(record) for part in parts])


def _part(token: re.Match[str], letters: dict[str, Writer]) -> Writer:
    letter, code, escaped = token.groups()
    if code is not None:
        return _constant(bytes([int(code, 16)]))
    if escaped is not None and escaped in _ESCAPES:
        return _constant(_ESCAPES[escaped])
    if letter is not None and letter in letters:
        return letters[letter]
    known = " ".join(f"%{one}" for one in letters)
    raise CoterieError(f'--format does not know "{token.group()}"; it knows {known} and \\n \\t \\r \\0 \\\\ \\xHH')


def _constant(value: bytes) -> Writer:
    return lambda _record: value


def as_json(record: Record) -> bytes:
    """One line. Bytes that are not UTF-8 are {"base64": ...}."""
    line = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _text(record.key),
        "value": _text(record.value),
        "headers": [[name, _text(value)] for name, value in record.headers],
    }
    return json.dumps(line, ensure_ascii=False).encode() + b"\n"


def _text(value: bytes | None) -> str | dict[str, str] | None:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}
