"""Reads `sasl.jaas.config`: one login module with its options, as Java's users paste it (S56).

    parse_jaas('org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="secret";')

Text is split as Java's `StreamTokenizer` splits it. No message of an error here has a value in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from coterie.settings.config_def import SettingsError

FLAGS = ("required", "requisite", "sufficient", "optional")
_LEXEME = (
    r"""(?P<blank>[\x00-\x20]+|//[^\r\n]*|/\*.*?(?:\*/|\Z)|/[^\r\n]*)"""
    r"""|(?P<quote>["'])(?P<quoted>(?:\\.|(?!(?P=quote))[^\\\r\n])*)(?:(?P=quote)|(?=[\r\n])|\Z)"""
    r"""|(?P<word>[A-Za-z_$\xa0-\U0010ffff][A-Za-z0-9_$.\-\xa0-\U0010ffff]*)"""
    r"""|(?P<other>.)"""
)
_ESCAPE = r"\\([0-3][0-7]{0,2}|[0-7]{1,2}|.)"
_LETTERS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


@dataclass(frozen=True, slots=True)
class LoginModule:
    """The one entry of a JAAS line."""

    name: str
    """The class, by the last part of its name: services write other packages before it."""
    options: Mapping[str, str] = field(repr=False)


def parse_jaas(text: str) -> LoginModule:
    """Return the login module of a JAAS line.

    Raises:
        SettingsError: It is not one entry that ends with a semicolon. The message has no value of the line.
    """
    tokens = _tokens(text)
    name = _word(next(tokens, None))
    if not name:
        raise SettingsError('sasl.jaas.config names no login module; it must be CLASS required name="value" ...;')
    flag = _word(next(tokens, None))
    if flag is None or flag.lower() not in FLAGS:
        raise SettingsError(f"sasl.jaas.config must have one of {', '.join(FLAGS)} after the login module")
    options: dict[str, str] = {}
    for token in tokens:
        if token == (False, ";"):
            break
        key = _word(token)
        equals, value = next(tokens, None), _word(next(tokens, None))
        if key is None or equals != (False, "=") or value is None:
            after = f" for key {key!r}" if key and equals == (False, "=") else f" after {len(options)} options"
            raise SettingsError(f'sasl.jaas.config: a value is missing{after}; each option must be name="value"')
        options[key] = value
    else:
        raise SettingsError("sasl.jaas.config does not end with a semicolon")
    if next(tokens, None) is not None:
        raise SettingsError("sasl.jaas.config has more than one login module; it must have one")
    return LoginModule(name.rpartition(".")[2], options)


Token = tuple[bool, str]
"""The kind of a token, a word or quoted, and its text."""


def _word(token: Token | None) -> str | None:
    return token[1] if token is not None and token[0] else None


def _tokens(text: str) -> Iterator[Token]:
    for match in re.finditer(_LEXEME, text, re.DOTALL):
        if match["word"] is not None:
            yield True, match["word"]
        elif match["quote"] is not None:
            yield True, re.sub(_ESCAPE, _unescape, match["quoted"], flags=re.DOTALL)
        elif match["other"] is not None:
            yield False, match["other"]


def _unescape(match: re.Match[str]) -> str:
    code = match[1]
    return chr(int(code, 8)) if code[0] in "01234567" else _LETTERS.get(code, code)
