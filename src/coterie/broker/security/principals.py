"""The principal of a client certificate: its distinguished name, as Java writes it, and the rules that map it.

The name is in the order of RFC 2253, the most specific part first: `CN=alice,OU=Tests,O=Coterie` (S35). The rules
are those of `ssl.principal.mapping.rules` (S36).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from coterie.errors import MalformedError
from coterie.settings.config_def import SettingsError

_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
"""The attributes that RFC 2253 has a word for; others are written as `OID=#hex`."""
_TEXTS = {0x0C: "utf-8", 0x13: "ascii", 0x14: "latin-1", 0x16: "ascii", 0x1B: "ascii", 0x1E: "utf-16-be"}
"""The types of texts in DER, and their encodings."""
_SEQUENCE, _SET, _OBJECT_ID, _EXPLICIT_0 = 0x30, 0x31, 0x06, 0xA0
_RULE = re.compile(
    r"\s*(?:(?P<default>DEFAULT)|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?))\s*"
)
_NO_MATCH = "no rule of ssl.principal.mapping.rules matches the name of the client's certificate"


def principal_of(certificate: bytes, rules: str) -> str:
    """Return the principal of a certificate in DER.

    Raises:
        MalformedError: The certificate has no name that can be read, or no rule matches it.
    """
    name = distinguished_name(certificate)
    for rule in parse_mapping_rules(rules):
        found = rule.apply(name)
        if found is not None:
            return f"User:{found}"
    raise MalformedError(_NO_MATCH)


# --- ssl.principal.mapping.rules --------------------------------------------------------------------------------------


class MappingRule(NamedTuple):
    pattern: re.Pattern[str] | None
    """None is DEFAULT: every name, as it is."""
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        """Return what the rule makes of a name; None if it does not match."""
        if self.pattern is None:
            return name
        match = self.pattern.fullmatch(name)
        if match is None:
            return None
        found = re.sub(r"\$([0-9])", lambda group: match[int(group[1])] or "", self.replacement)
        return {"L": found.lower(), "U": found.upper()}.get(self.case, found)


@lru_cache(maxsize=32)
def parse_mapping_rules(text: str) -> tuple[MappingRule, ...]:
    """Return the rules in their order.

    Raises:
        SettingsError: One of them is not DEFAULT or `RULE:pattern/replacement/[LU]`.
    """
    rules = []
    at = 0
    while at <= len(text):
        match = _RULE.match(text, at)
        if match is None or (match.end() < len(text) and text[match.end()] != ","):
            raise SettingsError(
                f"ssl.principal.mapping.rules: {text[at : at + 40]!r} is not a rule; it must be DEFAULT or "
                "RULE:pattern/replacement/[LU], with commas between rules"
            )
        rules.append(_rule(match))
        at = match.end() + 1
    return tuple(rules)


def _rule(match: re.Match[str]) -> MappingRule:
    if match["default"]:
        return MappingRule(None)
    try:
        pattern = re.compile(match["pattern"])
    except re.error as error:
        raise SettingsError(f"ssl.principal.mapping.rules: {match['pattern']!r} is not a pattern: {error}") from None
    used = [int(number) for number in re.findall(r"\$([0-9])", match["replacement"])]
    if max(used, default=0) > pattern.groups:
        raise SettingsError(
            f"ssl.principal.mapping.rules: {match['replacement']!r} names a group that the pattern does not have"
        )
    return MappingRule(pattern, match["replacement"], match["case"])


# --- distinguished names ----------------------------------------------------------------------------------------------


def distinguished_name(certificate: bytes) -> str:
    """Return the subject of a certificate in DER, in the form of RFC 2253."""
    try:
        return ",".join(reversed([_relative_name(part) for part in _subject(certificate)]))
    except (IndexError, ValueError, StopIteration):
        raise MalformedError("the client's certificate cannot be read") from None


class _Value(NamedTuple):
    """A value in DER: its type, its content, and all of it."""

    tag: int
    content: bytes
    whole: bytes


def _values(data: bytes) -> Iterator[_Value]:
    at = 0
    while at < len(data):
        tag, length, begin = data[at], data[at + 1], at + 2
        if length & 0x80:
            count = length & 0x7F
            length = int.from_bytes(data[begin : begin + count], "big")
            begin += count
        end = begin + length
        if end > len(data):
            raise ValueError(tag)
        yield _Value(tag, data[begin:end], data[at:end])
        at = end


def _subject(certificate: bytes) -> Iterator[bytes]:
    """Yield the relative names of the subject, the least specific first."""
    (whole,) = _values(certificate)
    fields = [field for field in _values(next(_values(whole.content)).content) if field.tag != _EXPLICIT_0]
    subject = fields[4]  # behind serial number, signature, issuer and validity
    return (part.content for part in _values(subject.content) if part.tag == _SET)


def _relative_name(part: bytes) -> str:
    return "+".join(_attribute(each.content) for each in _values(part) if each.tag == _SEQUENCE)


def _attribute(data: bytes) -> str:
    name, value = _values(data)
    dotted = _object_id(name.content)
    keyword = _KEYWORDS.get(dotted)
    if keyword is None or value.tag not in _TEXTS:
        return f"{keyword or dotted}=#{value.whole.hex()}"
    return f"{keyword}={_escaped(value.content.decode(_TEXTS[value.tag], 'replace'))}"


def _object_id(data: bytes) -> str:
    numbers, number = [], 0
    for byte in data:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _escaped(text: str) -> str:
    """Escape what has a meaning in a name, as RFC 2253 says."""
    escaped = re.sub(r'[,=+<>#;"\\]', lambda found: f"\\{found[0]}", text)
    return re.sub(r"^ +| +$", lambda found: "\\ " * len(found[0]), escaped)
