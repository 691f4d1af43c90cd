"""The settings that all clients have, and those of the admin client: names, types and defaults of Java's (Kafka 4.3.1).

    AdminSettings.of({"bootstrap.servers": "localhost:9092"})
    AdminSettings.load(properties=text, sets=["request.timeout.ms=5000"])

`consumer_settings.py` and `producer_settings.py` add to `ClientSettings`; `security_settings.py` has its TLS and SASL.
`UNSUPPORTED` has the rows of settings that only the Java clients have. docs/client-settings.md and
`coterie.client.settings_kwargs` are generated.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, NamedTuple, Self

from coterie.errors import MalformedError
from coterie.settings.config_def import (
    Flag,
    Given,
    SettingsError,
    Unsupported,
    Word,
    Words,
    dotted,
    ignored,
    int32,
    int64,
    refused,
    setting,
    text_of,
    with_default,
)
from coterie.settings.security_settings import UNSUPPORTED_SECURITY, SecuritySettings, protocol_problem
from coterie.settings.sources import from_properties, from_sets, parse_properties

CLIENT = "Every client"

_NO_PUSH = "metrics are not pushed to brokers; metrics() has them"

UNSUPPORTED = (
    refused(
        "records carry bytes. Decode them where you read them: record.value.decode()",
        "key.deserializer value.deserializer",
    ),
    refused("records carry bytes. Encode them where you send them: text.encode()", "key.serializer value.serializer"),
    refused(
        "there is no JVM to load a class into. Wrap poll() or send() in a function of your own", "interceptor.classes"
    ),
    refused("there is no JVM to load a class into. Leave it out", "metric.reporters auto.include.jmx.reporter"),
    refused(
        "there is no JVM to load a class into. Name the partition in send(), or set partitioner.ignore.keys",
        "partitioner.class",
    ),
    ignored(
        "${env:NAME}, ${file:PATH} and ${file:PATH:KEY} are understood without it",
        "config.providers config.providers.env.* config.providers.file.*",
    ),
    refused(
        "there is no JVM to load a class into. ${env:NAME}, ${file:PATH} and ${file:PATH:KEY} need no provider",
        "config.providers.*",
    ),
    *UNSUPPORTED_SECURITY,
    refused("clients talk to brokers. Give bootstrap.servers", "bootstrap.controllers"),
    refused("there are no share groups", "share.acknowledgement.mode share.acquire.mode"),
    refused("there is no two-phase commit (KIP-939). Leave it out", "transaction.two.phase.commit.enable"),
    refused("it is internal to the Java consumer. Leave it out", "internal.*"),
)


class Address(NamedTuple):
    """The address of a broker."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_addresses(texts: Sequence[str], security_protocol: str, problems: list[str]) -> tuple[Address, ...]:
    """Return the addresses of `bootstrap.servers`: host:port or [::1]:port, with or without SASL_SSL:// before it."""
    found = []
    for text in texts:
        protocol, _, rest = text.rpartition("://")
        host, colon, port = rest.rpartition(":")
        if not colon or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) <= 65_535:
            problems.append(f"bootstrap.servers has {text!r}: must be host:port, for example localhost:9092")
        elif problem := protocol_problem(protocol, text, security_protocol):
            problems.append(problem)
        else:
            found.append(Address(host.removeprefix("[").removesuffix("]"), int(port)))
    return tuple(found)


def check_mapping(values: object) -> None:
    """Raise a SettingsError if the settings of a client are no mapping: an address alone is a common mistake."""
    if not isinstance(values, Mapping):
        shown = repr(values) if isinstance(values, str) else type(values).__name__  # a list may have secrets
        raise SettingsError(
            f'settings are a mapping, not {shown}; give {{"bootstrap.servers": "localhost:9092"}}, or '
            'bootstrap_servers="localhost:9092"'
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings(SecuritySettings):
    """The settings that all clients have."""

    whose: ClassVar[str] = "a client"
    page: ClassVar[str] = "docs/client-settings.md"
    unsupported: ClassVar[Sequence[Unsupported]] = UNSUPPORTED
    other_names_must_agree: ClassVar[bool] = True

    bootstrap_servers: tuple[str, ...] = setting(
        CLIENT, (), Words(), "The brokers to connect to first, as host:port. One of them must be up."
    )
    client_id: str = setting(
        CLIENT, "", Word(), "The name of this client in the brokers' logs and in the member ids of a group."
    )
    request_timeout_ms: int = setting(CLIENT, 30_000, int32(0), "How long to wait for a response.")
    default_api_timeout_ms: int = setting(
        CLIENT, 60_000, int32(0), "How long a call without a timeout of its own may take, retries included."
    )
    retry_backoff_ms: int = setting(
        CLIENT, 100, int64(0), "The pause before the first retry. It doubles with each further one."
    )
    retry_backoff_max_ms: int = setting(CLIENT, 1_000, int64(0), "The longest pause before a retry.")
    reconnect_backoff_ms: int = setting(
        CLIENT,
        50,
        int64(0),
        "The pause before the client connects to a broker again. It doubles with each further attempt.",
    )
    reconnect_backoff_max_ms: int = setting(
        CLIENT, 1_000, int64(0), "The longest pause before the client connects to a broker again."
    )
    socket_connection_setup_timeout_ms: int = setting(
        CLIENT, 10_000, int64(0), "How long to wait for a connection. It doubles with each further attempt."
    )
    socket_connection_setup_timeout_max_ms: int = setting(
        CLIENT, 30_000, int64(0), "The longest time to wait for a connection."
    )
    connections_max_idle_ms: int = setting(
        CLIENT, 540_000, int64(), "How long a connection may be idle before it is closed; a negative time is no limit."
    )
    metadata_max_age_ms: int = setting(
        CLIENT, 300_000, int64(0), "How long metadata is used before it is fetched again."
    )
    metadata_recovery_strategy: str = setting(
        CLIENT,
        "rebootstrap",
        Word(("rebootstrap", "none"), any_case=True),
        "What to do when no known broker answers. rebootstrap: connect to bootstrap.servers again. none: go "
        "on as before.",
    )
    metadata_recovery_rebootstrap_trigger_ms: int = setting(
        CLIENT,
        300_000,
        int64(0),
        "How long to wait before the client connects to bootstrap.servers again.",
        unused="bootstrap.servers are asked again at once",
    )
    client_dns_lookup: str = setting(
        CLIENT,
        "use_all_dns_ips",
        Word(("use_all_dns_ips",)),
        "How host names are resolved: all addresses of a name are tried.",
        why="the other value is for Kerberos, which is not supported",
    )
    send_buffer_bytes: int = setting(
        CLIENT, 131_072, int32(-1), "The send buffer of the socket; -1 is the system's default."
    )
    receive_buffer_bytes: int = setting(
        CLIENT, 65_536, int32(-1), "The receive buffer of the socket; -1 is the system's default."
    )
    enable_metrics_push: bool = setting(
        CLIENT, True, Flag(), "Whether metrics are pushed to the brokers.", unused=_NO_PUSH
    )
    metrics_num_samples: int = setting(
        CLIENT, 2, int32(1), "How many samples an average, a maximum or a rate is made from."
    )
    metrics_recording_level: str = setting(
        CLIENT, "INFO", Word(("INFO", "DEBUG", "TRACE")), "How much is measured.", unused="everything is measured"
    )
    metrics_sample_window_ms: int = setting(CLIENT, 30_000, int64(0), "How long a sample of a metric lasts.")
    coterie_max_response_bytes: int = setting(
        CLIENT,
        268_435_456,
        int32(1_048_576),
        "The largest response that is accepted. If a broker announces more, the connection is closed.",
    )

    @classmethod
    def of(cls, values: Mapping[str, object] = MappingProxyType({}), **more: object) -> Self:
        """Make settings from values in Python.

        Args:
            values: Settings by name, with dots or underscores. None counts as not given.
            **more: Settings as keywords, which count more.

        Returns:
            The settings, with the defaults of those that are not given.

        Raises:
            SettingsError: A setting is unknown, or its value is not allowed; there is a line for each.
        """
        check_mapping(values)
        both = {dotted(name): value for name, value in values.items()}
        both |= {dotted(name): value for name, value in more.items()}
        given = [
            Given(name, text_of(value), "settings", value=value) for name, value in both.items() if value is not None
        ]
        return cls._resolved(given, [])

    @classmethod
    def of_arguments(cls, settings: Mapping[str, object] | Self | None, keywords: Mapping[str, object]) -> Self:
        """Return what a client was given: settings as an object, or a mapping, keywords or both."""
        if settings is None or isinstance(settings, Mapping):
            return cls.of(settings or {}, **keywords)
        if not isinstance(settings, cls):
            check_mapping(settings)
        if keywords:
            raise SettingsError(
                f"settings are given as an object already, so that {', '.join(keywords)} comes too late: "
                f"give all of them to {cls.__name__}.of()"
            )
        return settings

    @classmethod
    def load(
        cls,
        properties: str = "",
        sets: Sequence[str] = (),
        defaults: Mapping[str, object] = MappingProxyType({}),
        **more: object,
    ) -> Self:
        """Make settings from a file, then from `--set name=value`, then from keywords: the later one counts.

        Args:
            properties: The text of a properties file.
            sets: Texts of the form `name=value`.
            defaults: Defaults of the caller, in the place of Kafka's.
            **more: Settings as keywords.

        Returns:
            The settings, with the defaults of those that are not given.

        Raises:
            SettingsError: A setting is unknown, or its value is not allowed; there is a line for each.
        """
        problems: list[str] = []
        given = [
            *from_properties(properties, problems),
            *from_sets(sets, problems),
            *(Given(name, text_of(value), f"{name}=") for name, value in more.items() if value is not None),
        ]
        return cls._resolved(given, problems, defaults)

    @classmethod
    def _resolved(
        cls, given: Sequence[Given], problems: list[str], defaults: Mapping[str, object] = MappingProxyType({})
    ) -> Self:
        return cls.settled(_resolve_references(given, problems), problems, defaults)

    def contradictions(self) -> list[str]:
        problems = SecuritySettings.contradictions(self)
        parse_addresses(self.bootstrap_servers, self.security_protocol, problems)
        return problems

    @property
    def addresses(self) -> tuple[Address, ...]:
        """Return the addresses of `bootstrap.servers`; raise a SettingsError if there are none."""
        problems: list[str] = []
        found = parse_addresses(self.bootstrap_servers, self.security_protocol, problems)
        if problems or not found:
            raise SettingsError(
                "\n".join(problems) or "bootstrap.servers is empty: name a broker, as in localhost:9092"
            )
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminSettings(ClientSettings):
    """The settings of an admin."""

    whose: ClassVar[str] = "an admin"

    connections_max_idle_ms: int = with_default(ClientSettings, "connections.max.idle.ms", 300_000)
    enable_metrics_push: bool = with_default(ClientSettings, "enable.metrics.push", False)
    retries: int = setting(
        CLIENT,
        2**31 - 1,
        int32(0),
        "How often a call is retried.",
        unused="default.api.timeout.ms says how long a call is retried",
    )

    def contradictions(self) -> list[str]:
        problems = ClientSettings.contradictions(self)
        if "default.api.timeout.ms" in self.given and self.default_api_timeout_ms < self.request_timeout_ms:
            problems.append(
                f"default.api.timeout.ms is {self.default_api_timeout_ms}, request.timeout.ms {self.request_timeout_ms}"
                ": a call could end before its first answer may. Raise the one or lower the other"
            )
        return problems


# --- config providers (KIP-297, KIP-887) ------------------------------------------------------------------------------
# A value may have references, so that a secret need not stand in a file or an option: `${env:NAME}`, `${file:PATH:KEY}`
# (a value of a properties file, as in Java) and `${file:PATH}` (all that a file has, as a mounted secret of
# Kubernetes). What a reference gives is not looked at again.

_REFERENCE = re.compile(r"\$\{(env|file):([^}]*)\}")


def _resolve_references(given: Sequence[Given], problems: list[str]) -> list[Given]:
    """Put what references mean in their place. One that cannot be followed is a problem, and is left out."""
    resolved = []
    for each in given:
        if "${" in each.text:
            try:
                resolved.append(each._replace(text=_REFERENCE.sub(_meaning, each.text)))
            except ValueError as error:
                problems.append(f"{each.name} ({each.where}): {error}")
        else:
            resolved.append(each)
    return resolved


def _meaning(match: re.Match[str]) -> str:
    return _PROVIDERS[match[1]](match[2])


def _from_environ(name: str) -> str:
    value = os.environ.get(name)
    if value is None:
        raise ValueError(f"${{env:{name}}} names a variable that the environment of this process does not have")
    return value


def _from_file(reference: str) -> str:
    path, colon, key = reference.rpartition(":") if ":" in reference else (reference, "", "")
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise ValueError(f"${{file:{reference}}} cannot be read: {why}") from None
    if not colon:
        return text.rstrip("\r\n")
    try:
        values = {entry.key: entry.value for entry in parse_properties(text)}
    except MalformedError as error:
        raise ValueError(f"${{file:{reference}}} cannot be read: {error}") from None
    if key not in values:
        raise ValueError(f"${{file:{reference}}} names a key that the properties file does not have")
    return values[key]


_PROVIDERS: Mapping[str, Callable[[str], str]] = {"env": _from_environ, "file": _from_file}
