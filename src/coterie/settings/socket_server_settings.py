"""The settings of connections, TLS and SASL, for all listeners or for one: `listener.name.NAME.ssl.client.auth`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from coterie.settings.config_def import (
    OF_LISTENER,
    Given,
    Ignored,
    Password,
    Secret,
    Settings,
    SettingsError,
    Word,
    Words,
    int32,
    int64,
    setting,
)
from coterie.settings.jaas import parse_jaas
from coterie.settings.listeners import Endpoint, listener_names
from coterie.settings.sasl_credentials import MECHANISMS
from coterie.structs import replace

REQUESTS = "Connections and requests"
TLS = "TLS"
SASL = "SASL"

_OF_LISTENERS = (TLS, SASL)
"""The sections whose settings a listener may have of its own."""
_UNSECURED = (
    "org.apache.kafka.common.security.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
)
_VALIDATOR = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
_STORES = ("PEM", "PKCS12", "JKS")
_MOST_HELD = 512 << 20


@dataclass(frozen=True, kw_only=True)
class SocketServerSettings(Settings):
    """The settings of connections, TLS and SASL."""

    socket_request_max_bytes: int = setting(REQUESTS, 104_857_600, int32(1), "The largest request.")
    socket_send_buffer_bytes: int = setting(
        REQUESTS, 102_400, int32(), "The send buffer of a connection's socket; a negative size is the system's default."
    )
    socket_receive_buffer_bytes: int = setting(
        REQUESTS,
        102_400,
        int32(),
        "The receive buffer of a connection's socket; a negative size is the system's default. What a client has sent "
        "and the broker has not read yet waits there.",
    )
    max_connections: int = setting(REQUESTS, 2**31 - 1, int32(0), "How many connections may be open at a time.")
    max_connections_per_ip: int = setting(
        REQUESTS, 2**31 - 1, int32(0), "How many connections from one address may be open at a time."
    )
    max_connections_per_ip_overrides: tuple[str, ...] = setting(
        REQUESTS,
        (),
        Words(code=2),
        "How many connections from single addresses may be open at a time, as address:count.",
    )
    connections_max_idle_ms: int = setting(
        REQUESTS,
        600_000,
        int64(),
        "How long a connection may be silent, or take to send one request, before it is closed; a negative "
        "time is no limit.",
    )
    queued_max_requests: int = setting(
        REQUESTS, 500, int32(1), "How many requests of one connection may wait. Kafka counts those of all connections."
    )
    queued_max_request_bytes: int = setting(
        REQUESTS,
        -1,
        int64(),
        "The most memory for requests and responses of all connections: requests that arrive or wait, and "
        "responses that are not read. Above it, the connection that has used memory for the longest time is "
        "closed. A negative size is 512 MiB, and at least five of the largest requests. Kafka counts "
        "requests alone, has no limit by default, and stops reading.",
    )
    fetch_max_bytes: int = setting(REQUESTS, 57_671_680, int32(1024), "The largest response to a fetch.")
    max_incremental_fetch_session_cache_slots: int = setting(
        REQUESTS,
        1_000,
        int32(0),
        "How many fetch sessions may be open at a time.",
        unused="there are no fetch sessions",
    )

    ssl_keystore_location: str | None = setting(
        TLS, None, Word(), "The file with the broker's certificate, the chain to its CA, and its key."
    )
    ssl_keystore_type: str = setting(
        TLS,
        "JKS",
        Word(_STORES, any_case=True),
        "The format of the file. PEM and PKCS12 are read, whatever is given here; JKS is not.",
    )
    ssl_keystore_password: Password | None = setting(TLS, None, Secret(), "The password of a PKCS12 file.")
    ssl_keystore_key: Password | None = setting(TLS, None, Secret(), "The key as PEM text, in place of a file.")
    ssl_keystore_certificate_chain: Password | None = setting(
        TLS, None, Secret(), "The certificate and its chain as PEM text, in place of a file."
    )
    ssl_key_password: Password | None = setting(TLS, None, Secret(), "The password of an encrypted key.")
    ssl_truststore_location: str | None = setting(
        TLS, None, Word(), "The file with the CAs that certificates of clients are verified with."
    )
    ssl_truststore_type: str = setting(
        TLS,
        "JKS",
        Word(_STORES, any_case=True),
        "The format of the file. PEM and PKCS12 are read, whatever is given here; JKS is not.",
    )
    ssl_truststore_password: Password | None = setting(TLS, None, Secret(), "The password of a PKCS12 file.")
    ssl_truststore_certificates: Password | None = setting(
        TLS, None, Secret(), "The CAs as PEM text, in place of a file."
    )
    ssl_client_auth: str = setting(
        TLS,
        "none",
        Word(("required", "requested", "none")),
        "Whether a client must have a certificate, may have one, or is not asked. On a SASL_SSL listener only "
        "`listener.name.NAME.ssl.client.auth` counts.",
    )
    ssl_enabled_protocols: tuple[str, ...] = setting(
        TLS, ("TLSv1.2", "TLSv1.3"), Words(("TLSv1.2", "TLSv1.3")), "The versions of TLS that a client may use."
    )
    ssl_principal_mapping_rules: str = setting(
        TLS,
        "DEFAULT",
        Word(),
        "How the name in a certificate becomes a principal: a list of RULE:pattern/replacement/[LU] and DEFAULT, "
        "of which the first that matches counts.",
    )

    sasl_enabled_mechanisms: tuple[str, ...] = setting(
        SASL,
        ("GSSAPI",),
        Words(),
        "The SASL mechanisms that clients may use: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER. Kafka's default, "
        "GSSAPI, is not supported.",
    )
    sasl_jaas_config: Password | None = setting(
        SASL,
        None,
        Secret(),
        "The users of PLAIN, as options user_NAME of PlainLoginModule. It is given for a listener and a mechanism: "
        "`listener.name.NAME.plain.sasl.jaas.config`.",
    )
    coterie_users_file: str | None = setting(
        SASL,
        None,
        Word(),
        "A properties file with users and their passwords, name=password, for PLAIN and SCRAM. It is read again when "
        "it changes.",
    )
    sasl_server_callback_handler_class: str | None = setting(
        SASL,
        None,
        Word((_VALIDATOR, _UNSECURED), code=8),
        "Which tokens OAUTHBEARER takes: those that a key of sasl.oauthbearer.jwks.endpoint.url has signed, or "
        "unsecured ones, for tests. Without it, an endpoint means the first.",
        why="there is no JVM to load another class into",
    )
    sasl_oauthbearer_jwks_endpoint_url: str | None = setting(
        SASL, None, Word(), "Where the keys are that tokens are verified with: an http, https or file URL of a JWKS."
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = setting(
        SASL, 3_600_000, int64(), "How often the keys are fetched again."
    )
    sasl_oauthbearer_expected_audience: tuple[str, ...] = setting(
        SASL, (), Words(), "The audiences of which a token must name one."
    )
    sasl_oauthbearer_expected_issuer: str | None = setting(SASL, None, Word(), "The issuer that a token must be from.")
    sasl_oauthbearer_clock_skew_seconds: int = setting(
        SASL, 30, int32(), "By how much the clock of a token's issuer may be wrong."
    )
    sasl_oauthbearer_sub_claim_name: str = setting(SASL, "sub", Word(), "The claim that has the user's name.")
    sasl_server_max_receive_size: int = setting(
        SASL, 524_288, int32(), "The largest request of a client that has not authenticated yet."
    )
    connections_max_reauth_ms: int = setting(
        SASL,
        0,
        int64(),
        "How long a connection may be used before its client must authenticate again; 0 is no limit.",
    )
    connection_failed_authentication_delay_ms: int = setting(
        REQUESTS, 100, int32(0), "How long the answer to a failed authentication is held back."
    )
    coterie_authentication_timeout_ms: int = setting(
        REQUESTS,
        60_000,
        int32(1),
        "How long a client may take for the TLS handshake and SASL. Kafka has no such limit.",
    )
    coterie_max_unauthenticated_connections: int = setting(
        REQUESTS,
        1_000,
        int32(1),
        "How many connections may be within the TLS handshake or SASL at a time. If there are more, the oldest of them "
        "is closed. Kafka has no such limit.",
    )

    of_listeners: Mapping[tuple[str, str, str], Any] = field(default_factory=dict)
    """The settings of single listeners, by listener, mechanism (empty is all) and field."""

    @classmethod
    def _take_others(
        cls, latest: dict[str, Given], problems: list[str], without_effect: list[Ignored]
    ) -> dict[str, Any]:
        """Take `listener.name.NAME.…` and `listener.name.NAME.MECHANISM.…`."""
        listeners = latest["listeners"].text.split(",") if "listeners" in latest else cls.rows()["listeners"].default
        names = sorted(listener_names([text.strip() for text in listeners]), key=len, reverse=True)
        values = {}
        for each in [each for name, each in latest.items() if name.lower().startswith(OF_LISTENER)]:
            del latest[each.name]
            rest = each.name[len(OF_LISTENER) :]
            listener = next((name for name in names if rest.upper().startswith(f"{name}.")), None)
            if listener is None:
                without_effect.append(Ignored(each.name, each.where, "listeners has no listener of this name"))
                continue
            rest = rest[len(listener) + 1 :]
            mechanism = next((name for name in MECHANISMS if rest.upper().startswith(f"{name}.")), "")
            row = cls.rows().get(rest[len(mechanism) + 1 :] if mechanism else rest)
            if row is None or row.section not in _OF_LISTENERS:
                without_effect.append(Ignored(each.name, each.where, "a listener has no such setting of its own"))
                continue
            try:
                values[listener, mechanism, row.field_name] = row.kind.read(each.text)
            except ValueError:
                problems.append(f"{each.name} ({each.where}): must be {row.kind.allowed}")
        return {"of_listeners": values}

    def of_listener(self, endpoint: Endpoint, mechanism: str = "") -> Self:
        """Return the settings that hold for a listener, and there for a mechanism."""
        own = {
            name: value
            for level in dict.fromkeys(("", mechanism))
            for (listener, of_mechanism, name), value in self.of_listeners.items()
            if listener == endpoint.name and of_mechanism == level
        }
        if endpoint.has_sasl and "ssl_client_auth" not in own:
            own["ssl_client_auth"] = "none"  # S24
        return replace(self, **own)

    @property
    def has_signed_tokens(self) -> bool:
        """Return whether OAUTHBEARER takes tokens that are signed; otherwise unsecured ones, for tests."""
        handler = self.sasl_server_callback_handler_class
        return handler == _VALIDATOR or (handler is None and bool(self.sasl_oauthbearer_jwks_endpoint_url))

    def contradictions(self) -> list[str]:
        problems = super().contradictions()
        if 0 <= self.queued_max_request_bytes < self.socket_request_max_bytes:
            problems.append(
                f"queued.max.request.bytes is {self.queued_max_request_bytes}, socket.request.max.bytes "
                f"{self.socket_request_max_bytes}: the largest request could never be taken. Raise it, or give -1"
            )
        try:
            _ = self.connections_of_ips
        except SettingsError as error:
            problems.append(str(error))
        return problems

    def check_listener(self, endpoint: Endpoint) -> None:
        """Raise `SettingsError` if a listener has not all settings that its security protocol needs."""
        settings = self.of_listener(endpoint)
        if endpoint.has_sasl:
            unknown = [name for name in settings.sasl_enabled_mechanisms if name not in MECHANISMS]
            if unknown or not settings.sasl_enabled_mechanisms:
                raise SettingsError(
                    f"listener {endpoint.name} needs sasl.enabled.mechanisms, which is "
                    f"{','.join(settings.sasl_enabled_mechanisms)!r}; supported are {', '.join(MECHANISMS)}"
                )
            for mechanism in settings.sasl_enabled_mechanisms:
                of_mechanism = self.of_listener(endpoint, mechanism)
                if of_mechanism.sasl_jaas_config:
                    parse_jaas(of_mechanism.sasl_jaas_config.value)
                if of_mechanism.has_signed_tokens and not of_mechanism.sasl_oauthbearer_jwks_endpoint_url:
                    raise SettingsError(
                        f"listener {endpoint.name} must verify tokens (sasl.server.callback.handler.class), and has no "
                        "keys: give sasl.oauthbearer.jwks.endpoint.url"
                    )
        if endpoint.has_tls:
            has_text = settings.ssl_keystore_key and settings.ssl_keystore_certificate_chain
            if not settings.ssl_keystore_location and not has_text:
                raise SettingsError(
                    f"listener {endpoint.name} needs a certificate: give ssl.keystore.location, a PEM file with the "
                    "key and the certificate, or ssl.keystore.key and ssl.keystore.certificate.chain"
                )
            has_authorities = settings.ssl_truststore_location or settings.ssl_truststore_certificates
            if settings.ssl_client_auth != "none" and not has_authorities:
                raise SettingsError(
                    f"listener {endpoint.name} asks for certificates of clients (ssl.client.auth) and cannot verify "
                    "them: give ssl.truststore.location, a PEM file with their CA"
                )

    @property
    def most_held_bytes(self) -> int:
        """Return the limit that `queued.max.request.bytes` sets."""
        if self.queued_max_request_bytes >= 0:
            return self.queued_max_request_bytes
        return max(_MOST_HELD, 5 * self.socket_request_max_bytes)

    @property
    def connections_of_ips(self) -> dict[str, int]:
        """Return `max.connections.per.ip.overrides` as a count for each address."""
        return dict(map(_connections_of_ip, self.max_connections_per_ip_overrides))


def _connections_of_ip(entry: str) -> tuple[str, int]:
    host, colon, count = entry.rpartition(":")
    if not colon or not host or not count.isdecimal():
        raise SettingsError(f"max.connections.per.ip.overrides has {entry!r}; must be address:count")
    return host.strip("[]"), int(count)
