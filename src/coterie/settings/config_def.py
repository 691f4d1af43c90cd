"""The definition of a setting: a name, a type with bounds, a default and a sentence of help. Kafka calls it ConfigDef.

A table of settings is a subclass of `Settings`: each field is a row, made by `setting()`, and an object of the class
holds the values. `settings/__init__.py` names the files of the tables.

    class ProducerSettings(ClientSettings):
        linger_ms: int = setting(PRODUCER, 5, int64(0), "How long a batch that is not full waits for more records.")

Values are read as Kafka reads them: blanks around a value do not count, `true` may be `TRUE`, a list has commas.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from functools import cache
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Protocol, Self

from coterie.errors import CoterieError
from coterie.structs import replace

MAX_DECOMPRESSED = 128 << 20
"""The most a batch may decompress to, in a client too, unless `coterie.max.decompressed.bytes` says otherwise.

It is far above what clients send, and far below harm.
"""


NOT_UTF8 = "it has half of a character (a lone surrogate), which cannot be sent as UTF-8"


class SettingsError(CoterieError, ValueError):
    """Settings that are not valid: a line for each, with what was given, where, and what is allowed."""


# --- types of values --------------------------------------------------------------------------------------------------

_INTEGER = re.compile(r"[+-]?[0-9]{1,40}", re.ASCII)
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?", re.ASCII)
_REPLICAS = re.compile(r"\*?|([0-9]+:[0-9]+)(,[0-9]+:[0-9]+)*", re.ASCII)


class Kind(Protocol):
    """The type of a setting's value, with its bounds."""

    @property
    def code(self) -> int:
        """Kafka's number for the type, which DescribeConfigs returns."""

    @property
    def allowed(self) -> str:
        """The values that are allowed, in words that can follow "must be"."""

    def read(self, text: str) -> Any:
        """Return the value of a text; raise ValueError if it is not allowed."""

    def write(self, value: Any) -> str:
        """Return the text of a value, as DescribeConfigs returns it."""


@dataclass(frozen=True, slots=True)
class Number:
    """A whole number from `least` to `most`, or one of `also`."""

    code: int
    least: int
    most: int
    also: tuple[int, ...] = ()

    @property
    def allowed(self) -> str:
        if self.least == self.most:
            return str(self.least)
        return " or ".join([f"a whole number from {self.least} to {self.most}", *map(str, self.also)])

    def read(self, text: str) -> int:
        if not _INTEGER.fullmatch(text.strip()):
            raise ValueError(text)
        value = int(text)
        if not self.least <= value <= self.most and value not in self.also:
            raise ValueError(text)
        return value

    def write(self, value: int) -> str:
        return str(value)


def int32(least: int = -(2**31), most: int = 2**31 - 1, also: tuple[int, ...] = ()) -> Number:
    return Number(3, least, most, also)


def int64(least: int = -(2**63), most: int = 2**63 - 1) -> Number:
    return Number(5, least, most)


@dataclass(frozen=True, slots=True)
class Ratio:
    """A number from 0 to 1."""

    code: int = 6

    @property
    def allowed(self) -> str:
        return "a number from 0 to 1"

    def read(self, text: str) -> float:
        if not _DECIMAL.fullmatch(text.strip()) or not 0 <= float(text) <= 1:
            raise ValueError(text)
        return float(text)

    def write(self, value: float) -> str:
        return str(value)


@dataclass(frozen=True, slots=True)
class Flag:
    """True or false."""

    code: int = 1

    @property
    def allowed(self) -> str:
        return "true or false"

    def read(self, text: str) -> bool:
        value = {"true": True, "false": False}.get(text.strip().lower())
        if value is None:
            raise ValueError(text)
        return value

    def write(self, value: bool) -> str:
        return text_of(value)


@dataclass(frozen=True, slots=True)
class Word:
    """One of the words in `choices`, or any text if there are none. `any_case`: the case of the word does not count."""

    choices: tuple[str, ...] = ()
    code: int = 2
    any_case: bool = False
    is_empty_allowed: bool = True

    @property
    def allowed(self) -> str:
        if not self.choices:
            return "any text" if self.is_empty_allowed else "any text that is not empty"
        return " or ".join(choice or "empty" for choice in self.choices)

    def read(self, text: str) -> str:
        value = text.strip()
        if self.any_case:
            value = next((choice for choice in self.choices if choice.lower() == value.lower()), value)
        if (self.choices and value not in self.choices) or not (value or self.is_empty_allowed or self.choices):
            raise ValueError(text)
        value.encode()  # UnicodeEncodeError, a ValueError, for a lone surrogate
        return value

    def write(self, value: str) -> str:
        return value


@dataclass(frozen=True, slots=True)
class Words:
    """A list of words, each once, in the order given. `replicas`: they are `partition:broker`, or `*` alone."""

    choices: tuple[str, ...] = ()
    replicas: bool = False
    code: int = 7

    @property
    def allowed(self) -> str:
        if self.replicas:
            return "* or a comma-separated list of partition:broker"
        return f"a comma-separated list of {', '.join(self.choices) or 'any words'}"

    def read(self, text: str) -> tuple[str, ...]:
        stripped = text.strip()
        values = tuple(dict.fromkeys(part.strip() for part in stripped.split(","))) if stripped else ()
        if "" in values or (self.choices and not set(values) <= set(self.choices)):
            raise ValueError(text)
        if self.replicas and not _REPLICAS.fullmatch(self.write(values)):
            raise ValueError(text)
        return values

    def write(self, value: tuple[str, ...]) -> str:
        return ",".join(value)


HIDDEN = "[hidden]"


class Password:
    """A value that is not shown: not by `str` or `repr`, not in a log. `value` has it."""

    __slots__ = ("value",)

    def __init__(self, value: str) -> None:
        self.value = value

    def __repr__(self) -> str:
        return HIDDEN

    def __bool__(self) -> bool:
        return bool(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Password) and self.value == other.value

    def __hash__(self) -> int:
        return hash(self.value)


@dataclass(frozen=True, slots=True)
class Secret:
    """Any text, which is not shown: its value is a `Password`. Kafka's name of the type is PASSWORD."""

    code: int = 9

    @property
    def allowed(self) -> str:
        return "any text"

    def read(self, text: str) -> Password:
        return Password(text.strip())

    def write(self, value: Password) -> str:
        return str(value)


@dataclass(frozen=True, slots=True)
class PythonObject:
    """An object of Python, such as a function; text that matches `names` may name one. It appears in no error."""

    what: str
    """The type in words that can follow "must be"."""
    is_one: Callable[[Any], bool]
    names: re.Pattern[str] | None = None
    code: int = 8

    @property
    def allowed(self) -> str:
        return self.what

    def take(self, value: object) -> object:
        """Return an object that was given in Python."""
        if not self.is_one(value):
            raise ValueError
        return value

    def read(self, text: str) -> str:
        if self.names is None or not self.names.fullmatch(text.strip()):
            raise ValueError(text)
        return text.strip()

    def write(self, value: object) -> str:
        return value if isinstance(value, str) else type(value).__name__


def text_of(value: object) -> str:
    """Return the text that a properties file would have for a value given in Python."""
    if isinstance(value, Password):
        return value.value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return str(value)


# --- rows -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Setting:
    """A row of a table."""

    name: str
    kind: Kind
    default: Any
    section: str
    """The heading in the documentation that it stands under."""
    doc: str
    also: tuple[str, ...] = ()
    """Other names for it. If a value is given under this name too, that one wins."""
    unused: str = ""
    """The reason why it is accepted without effect."""
    why: str = ""
    """The reason why fewer values are allowed than in Kafka, and what to do instead."""

    @property
    def field_name(self) -> str:
        return self.name.replace(".", "_")

    @property
    def help(self) -> str:
        """Return what the setting does, and why it has no effect if that is so."""
        return f"{self.doc} Without effect: {self.unused}." if self.unused else self.doc

    def text(self, value: Any) -> str | None:
        return None if value is None else self.kind.write(value)

    def shown(self, text: str) -> str:
        """Return what an error may say of a value that was given."""
        return HIDDEN if isinstance(self.kind, Secret | PythonObject) else repr(text)


def setting(
    section: str,
    default: object,
    kind: Kind,
    doc: str,
    *,
    also: tuple[str, ...] = (),
    unused: str = "",
    why: str = "",
) -> Any:
    """Make a row of a table. The name of the setting is that of the field, with dots for underscores."""
    return field(default=default, metadata={"setting": Setting("", kind, default, section, doc, also, unused, why)})


def with_default(table: type[Settings], name: str, default: object) -> Any:
    """Make the row that another table has for this name, with another default."""
    return field(default=default, metadata={"setting": replace(table.rows()[name], default=default)})


class Unsupported(NamedTuple):
    """A row for settings of Kafka that Coterie does not have. A name may end in `*`."""

    names: tuple[str, ...]
    why: str
    """The reason why they have no effect, or what to do instead."""
    is_refused: bool

    def has(self, name: str) -> bool:
        return any(name == each or (each.endswith("*") and name.startswith(each[:-1])) for each in self.names)


def ignored(why: str, names: str) -> Unsupported:
    """Make a row for settings that are accepted, and logged as having no effect. `names` has blanks between them."""
    return Unsupported(tuple(names.split()), why, is_refused=False)


def refused(instead: str, names: str) -> Unsupported:
    """Make a row for settings that are an error, which says what to do instead. `names` has blanks between them."""
    return Unsupported(tuple(names.split()), instead, is_refused=True)


OF_LISTENER = "listener.name."
"""A setting of one listener begins with this and the listener's name."""


def dotted(name: str) -> str:
    """Kafka's names have no underscore, so `num_partitions` can only be `num.partitions`. Names of listeners have."""
    return name if name.lower().startswith(OF_LISTENER) else name.replace("_", ".")


# --- tables -----------------------------------------------------------------------------------------------------------

_PROBABLY_MEANT, _PERHAPS_MEANT = 0.85, 0.6


class Given(NamedTuple):
    """A value as it was given, and where."""

    name: str
    text: str
    where: str
    is_certain: bool = True
    """False for a variable of the environment that may have nothing to do with Coterie, such as KAFKA_TOPIC."""
    value: object = None
    """The value, if it was given in Python."""

    def read_by(self, kind: Kind) -> Any:
        """Return the value that a kind makes of it; raise ValueError if it is not allowed."""
        if isinstance(kind, PythonObject) and not isinstance(self.value, str | None):
            return kind.take(self.value)
        return kind.read(self.text)


class Ignored(NamedTuple):
    """A setting that was given and has no effect."""

    name: str
    where: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name} ({self.where}) has no effect: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """A table of settings, and as an object the values of one broker or client."""

    whose: ClassVar[str]
    """The owner of the settings, for messages: "a broker"."""
    page: ClassVar[str]
    """The page of the documentation that has them all."""
    unsupported: ClassVar[Sequence[Unsupported]] = ()
    other_names_must_agree: ClassVar[bool] = False
    """If True, two names of one setting with different values are an error. Otherwise the first one wins."""

    given: Mapping[str, str] = field(default_factory=dict, compare=False)
    """The source of each setting that was given, by name; all others have their default."""
    ignored: Sequence[Ignored] = ()
    """The settings that were given and have no effect, with the reason."""

    @classmethod
    @cache
    def rows(cls) -> Mapping[str, Setting]:
        """Return the rows of the table, by name."""
        made = [(each.name, each.metadata["setting"]) for each in fields(cls) if each.metadata]
        return {dotted(field_name): replace(row, name=dotted(field_name)) for field_name, row in made}

    @classmethod
    def has(cls, name: str) -> bool:
        """Return whether a name, with dots, is that of a row or another name of one."""
        return name in cls.rows() or any(name in row.also for row in cls.rows().values())

    def __getitem__(self, name: str) -> Any:
        """Return the value of a setting by its name with dots."""
        return getattr(self, name.replace(".", "_"))

    def contradictions(self) -> list[str]:
        """Return what is wrong with values that are allowed alone, and not together."""
        return []

    @classmethod
    def settled(
        cls, given: Sequence[Given], problems: list[str], defaults: Mapping[str, object] = MappingProxyType({})
    ) -> Self:
        """Make settings from what was given. The last value of a name counts, and `defaults` go before the table's.

        Raises:
            SettingsError: There are problems; a line for each, those that were known before first.
        """
        latest = {dotted(each.name): each for each in given}
        without_effect = cls._resolve_other_names(latest, problems)
        values: dict[str, Any] = cls._take_others(latest, problems, without_effect)
        origins: dict[str, str] = {}
        for name, each in latest.items():
            row = cls.rows().get(name)
            if row is None:
                without_effect += cls._not_in_the_table(name, each, problems)
                continue
            try:
                values[row.field_name] = each.read_by(row.kind)
            except UnicodeEncodeError:
                problems.append(f"{each.name} = {row.shown(each.text)} ({each.where}): {NOT_UTF8}")
                continue
            except ValueError:
                why = f"; {row.why}" if row.why else ""
                shown = row.shown(each.text)
                problems.append(f"{each.name} = {shown} ({each.where}): must be {row.kind.allowed}{why}")
                continue
            origins[name] = each.where
            if row.unused and values[row.field_name] != row.default:
                without_effect.append(Ignored(name, each.where, row.unused))
        assumed = {name.replace(".", "_"): value for name, value in defaults.items() if name not in origins}
        settings = cls(**{**assumed, **values}, given=origins, ignored=tuple(without_effect))
        problems += settings.contradictions() if not problems else []
        if problems:
            raise SettingsError("\n".join(problems))
        return settings

    @classmethod
    def _resolve_other_names(cls, latest: dict[str, Given], problems: list[str]) -> list[Ignored]:
        """Put what was given under another name of a setting under its own."""
        without_effect = []
        for row in cls.rows().values():
            for other in row.also:
                if other in latest:
                    found = latest.pop(other)
                    first = latest.setdefault(row.name, found)
                    if first is not found and cls.other_names_must_agree:
                        if first.text != found.text:
                            problems.append(
                                f"{first.name} ({first.where}) and {found.name} ({found.where}) are the same setting, "
                                "and have different values: leave one out"
                            )
                    elif first is not found:
                        reason = f"{row.name} is also given and takes precedence"
                        without_effect.append(Ignored(other, found.where, reason))
        return without_effect

    @classmethod
    def _take_others(
        cls,
        latest: dict[str, Given],  # noqa: ARG003  for tables that have more than rows
        problems: list[str],  # noqa: ARG003
        without_effect: list[Ignored],  # noqa: ARG003
    ) -> dict[str, Any]:
        """Remove from `latest` what is no row of the table, and return the fields that it makes."""
        return {}

    @classmethod
    def _not_in_the_table(cls, name: str, given: Given, problems: list[str]) -> list[Ignored]:
        row = next((row for row in cls.unsupported if row.has(name)), None)
        if row is not None and row.is_refused:
            problems.append(f"{given.name} ({given.where}) is not supported: {row.why}")
            return []
        if row is not None:
            return [Ignored(name, given.where, row.why)]
        nearest = _nearest(name, cls._known_names(), is_certain=given.is_certain)
        if not nearest and not given.is_certain:
            return [Ignored(name, given.where, f"it is not a setting of {cls.whose}")]
        hint = f"did you mean {nearest}?" if nearest else f"see {cls.page} for all settings"
        problems.append(f"{given.name} ({given.where}): unknown setting; {hint}")
        return []

    @classmethod
    def _known_names(cls) -> list[str]:
        rows = cls.rows()
        others = [name for row in rows.values() for name in row.also]
        return [*rows, *others, *(name for row in cls.unsupported for name in row.names if "*" not in name)]


def _nearest(name: str, known: Iterable[str], *, is_certain: bool) -> str | None:
    names = list(known)
    perhaps = _PERHAPS_MEANT if is_certain else 1
    for text, cutoff in ((name, _PROBABLY_MEANT), (f"coterie.{name}", _PROBABLY_MEANT), (name, perhaps)):
        for nearest in get_close_matches(text, names, n=1, cutoff=cutoff):
            return nearest
    return None
