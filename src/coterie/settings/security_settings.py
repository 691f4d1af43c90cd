"""The table of the clients' security settings, and what they mean together (S55 and S56).

Rows have Java's names. The names of librdkafka, kafka-python and aiokafka are in `also`, or are rows where Java has no
such thing. `SecuritySettings.contradictions` says what does not fit together; `credentials` has who a client is,
whichever names it was given by. Certificates are loaded by `client/network/tls.py`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from coterie.settings.config_def import (
    Flag,
    Password,
    PythonObject,
    Secret,
    Settings,
    Word,
    Words,
    ignored,
    int64,
    refused,
    setting,
)
from coterie.settings.sasl_credentials import MECHANISMS, MSK_IAM, Login, SaslCredentials, are

SECURITY = "Every client: security"
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_LOGIN_HANDLER = re.compile(
    r"org\.apache\.kafka\.common\.security\.oauthbearer\.(secured\.)?OAuthBearerLoginCallbackHandler"
)
_ONE_PLACE = {
    "the CA": ("ssl.ca.location", "ssl.truststore.location", "ssl.truststore.certificates"),
    "the client's certificate": (
        "ssl.certificate.location",
        "ssl.keystore.location",
        "ssl.keystore.certificate.chain",
    ),
    "the client's key": ("ssl.key.location", "ssl.keystore.location", "ssl.keystore.key"),
}
_TOGETHER = {
    "ssl.key.location": "ssl.certificate.location",
    "ssl.keystore.key": "ssl.keystore.certificate.chain",
    "ssl.keystore.certificate.chain": "ssl.keystore.key",
}

UNSUPPORTED_SECURITY = (
    refused(
        f"GSSAPI (Kerberos) is not supported. Give sasl.mechanism as one of {', '.join(MECHANISMS)}",
        "sasl.kerberos.*",
    ),
    refused(
        f"there is no JVM to load a class into. {MSK_IAM}; else leave it out",
        "sasl.client.callback.handler.class sasl.login.class",
    ),
    refused("there is no JVM to load a class into. Give ssl_context, an ssl.SSLContext", "ssl.engine.factory.class"),
    refused(
        "the grant type jwt-bearer is not supported. Give a token callback, sasl_oauth_token_provider",
        "sasl.oauthbearer.assertion.*",
    ),
    ignored("TLS is Python's, which is OpenSSL", "ssl.provider ssl.secure.random.implementation security.providers"),
    ignored("TLS is Python's, which is OpenSSL", "ssl.keymanager.algorithm ssl.trustmanager.algorithm"),
    ignored("ssl.enabled.protocols says which versions are allowed", "ssl.protocol"),
    ignored(
        "a token is fetched again when four fifths of its life are over",
        "sasl.login.refresh.* sasl.oauthbearer.jwt.retriever.class",
    ),
    ignored(
        "request.timeout.ms is the time that fetching a token may take",
        "sasl.login.connect.timeout.ms sasl.login.read.timeout.ms",
    ),
    ignored(
        "the broker validates tokens, the client does not",
        "sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.* sasl.oauthbearer.jwks.* "
        "sasl.oauthbearer.jwt.validator.class sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name",
    ),
)


class HostNameCheck(Word):
    """`https` or empty, as in Java; librdkafka's `none` and kafka-python's true and false mean the same."""

    @property
    def allowed(self) -> str:
        return "https, or empty (none) for no check"

    def read(self, text: str) -> str:
        found = {"https": "https", "true": "https", "": "", "none": "", "false": ""}.get(text.strip().lower())
        if found is None:
            raise ValueError(text)
        return found


class Pairs(Word):
    """Librdkafka's `name=value,name=value`."""

    @property
    def allowed(self) -> str:
        return "name=value, separated by commas"

    def read(self, text: str) -> Any:
        pairs = [part.partition("=") for part in text.split(",") if part.strip()]
        if not all(name.strip() and equals for name, equals, _ in pairs):
            raise ValueError(text)
        return tuple((name.strip(), value.strip()) for name, _, value in pairs)

    def write(self, value: Any) -> str:
        return ",".join(f"{name}={text}" for name, text in value)


_BY_NAME = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def _is_token_provider(value: object) -> bool:
    return callable(value) or callable(getattr(value, "token", None))


def _is_context(value: object) -> bool:
    return callable(getattr(value, "wrap_bio", None))


@dataclass(frozen=True, slots=True, kw_only=True)
class SecuritySettings(Settings):
    """The settings of TLS and SASL."""

    security_protocol: str = setting(
        SECURITY,
        "PLAINTEXT",
        Word(PROTOCOLS, any_case=True),
        "The kind of the listener: SSL has TLS, SASL_PLAINTEXT has a login, SASL_SSL has both.",
    )
    sasl_mechanism: str = setting(
        SECURITY,
        "GSSAPI",
        Word(("GSSAPI", *MECHANISMS), any_case=True),
        "How the client logs in. Java's default, GSSAPI (Kerberos), is not supported, so that one must be given.",
        also=("sasl.mechanisms",),
        why=MSK_IAM,
    )
    sasl_username: str | None = setting(
        SECURITY,
        None,
        Word(is_empty_allowed=False),
        "The user of PLAIN and SCRAM.",
        also=("sasl.plain.username",),
    )
    sasl_password: Password | None = setting(
        SECURITY, None, Secret(), "The password of PLAIN and SCRAM.", also=("sasl.plain.password",)
    )
    sasl_jaas_config: Password | None = setting(
        SECURITY,
        None,
        Secret(),
        "User and password, or client id and secret, as Java has them: a line with PlainLoginModule, ScramLoginModule "
        "or OAuthBearerLoginModule.",
    )
    sasl_oauth_token_provider: object = setting(
        SECURITY,
        None,
        PythonObject(
            "a function, an object with a method token(), or module:name of one of them", _is_token_provider, _BY_NAME
        ),
        "OAUTHBEARER: what returns tokens, in the form of confluent-kafka (oauth_cb), kafka-python or aiokafka.",
        also=("oauth.cb",),
    )
    sasl_oauthbearer_config: str = setting(
        SECURITY, "", Word(), "OAUTHBEARER: the argument of an oauth_cb that takes one, as in confluent-kafka."
    )
    sasl_oauthbearer_token_endpoint_url: str | None = setting(
        SECURITY,
        None,
        Word(is_empty_allowed=False),
        "OAUTHBEARER: where tokens are asked for with client credentials. A file: URL names a file with a token.",
    )
    sasl_oauthbearer_client_credentials_client_id: str | None = setting(
        SECURITY,
        None,
        Word(is_empty_allowed=False),
        "OAUTHBEARER: the client id for the token endpoint.",
        also=("sasl.oauthbearer.client.id", "sasl.oauthbearer.client.credentials.id"),
    )
    sasl_oauthbearer_client_credentials_client_secret: Password | None = setting(
        SECURITY,
        None,
        Secret(),
        "OAUTHBEARER: the client secret for the token endpoint.",
        also=("sasl.oauthbearer.client.secret", "sasl.oauthbearer.client.credentials.secret"),
    )
    sasl_oauthbearer_scope: str | None = setting(
        SECURITY, None, Word(), "OAUTHBEARER: the scope that is asked for at the token endpoint."
    )
    sasl_oauthbearer_header_urlencode: bool = setting(
        SECURITY, False, Flag(), "OAUTHBEARER: whether id and secret are URL-encoded for the token endpoint (RFC 6749)."
    )
    sasl_oauthbearer_extensions: tuple[tuple[str, str], ...] = setting(
        SECURITY, (), Pairs(), "OAUTHBEARER: SASL extensions, for example logicalCluster=lkc-1."
    )
    sasl_oauthbearer_method: str = setting(
        SECURITY,
        "default",
        Word(("default", "oidc"), any_case=True),
        "OAUTHBEARER: librdkafka's name for where tokens come from: a callback (default) or the token endpoint (oidc).",
    )
    https_ca_location: str | None = setting(
        SECURITY,
        None,
        Word(is_empty_allowed=False),
        "OAUTHBEARER: the CA certificates that the token endpoint is verified with, a PEM file.",
    )
    sasl_login_callback_handler_class: str | None = setting(
        SECURITY,
        None,
        PythonObject("Kafka's own OAuthBearerLoginCallbackHandler", lambda _: False, _LOGIN_HANDLER),
        "OAUTHBEARER: Java's class for the token endpoint. It may stay in a file; others cannot be loaded.",
        why="there is no JVM to load a class into. Give a token callback, sasl_oauth_token_provider",
    )
    sasl_login_retry_backoff_ms: int = setting(
        SECURITY, 100, int64(), "The pause before a token is asked for again. It doubles with each further attempt."
    )
    sasl_login_retry_backoff_max_ms: int = setting(
        SECURITY, 10_000, int64(), "How long a token endpoint that does not answer is asked again."
    )

    ssl_ca_location: str | None = setting(
        SECURITY,
        None,
        Word(is_empty_allowed=False),
        "The CA certificates that the broker is verified with: a PEM file, or a directory as OpenSSL has it. Without "
        "any, the system's are used.",
        also=("ssl.cafile",),
    )
    ssl_truststore_location: str | None = setting(
        SECURITY, None, Word(is_empty_allowed=False), "The same as a file of Java: PEM or PKCS12."
    )
    ssl_truststore_certificates: Password | None = setting(
        SECURITY, None, Secret(), "The same as PEM text.", also=("ssl.ca.pem",)
    )
    ssl_truststore_type: str = setting(
        SECURITY,
        "JKS",
        Word(("JKS", "PKCS12", "PEM"), any_case=True),
        "The type of ssl.truststore.location. The file itself tells PEM from PKCS12; JKS cannot be read.",
    )
    ssl_truststore_password: Password | None = setting(
        SECURITY, None, Secret(), "The password of a PKCS12 file in ssl.truststore.location."
    )
    ssl_certificate_location: str | None = setting(
        SECURITY,
        None,
        Word(is_empty_allowed=False),
        "The client's certificate and its chain, a PEM file. It may have the key too.",
        also=("ssl.certfile",),
    )
    ssl_key_location: str | None = setting(
        SECURITY, None, Word(is_empty_allowed=False), "The client's private key, a PEM file.", also=("ssl.keyfile",)
    )
    ssl_keystore_location: str | None = setting(
        SECURITY,
        None,
        Word(is_empty_allowed=False),
        "The client's key and certificate in one file of Java or librdkafka: PEM or PKCS12.",
    )
    ssl_keystore_certificate_chain: Password | None = setting(
        SECURITY,
        None,
        Secret(),
        "The client's certificate and its chain as PEM text.",
        also=("ssl.certificate.pem",),
    )
    ssl_keystore_key: Password | None = setting(
        SECURITY, None, Secret(), "The client's private key as PEM text.", also=("ssl.key.pem",)
    )
    ssl_keystore_type: str = setting(
        SECURITY,
        "JKS",
        Word(("JKS", "PKCS12", "PEM"), any_case=True),
        "The type of ssl.keystore.location. The file itself tells PEM from PKCS12; JKS cannot be read.",
    )
    ssl_keystore_password: Password | None = setting(
        SECURITY, None, Secret(), "The password of a PKCS12 file in ssl.keystore.location."
    )
    ssl_key_password: Password | None = setting(
        SECURITY, None, Secret(), "The password of the private key, if it is encrypted.", also=("ssl.password",)
    )
    ssl_endpoint_identification_algorithm: str = setting(
        SECURITY,
        "https",
        HostNameCheck(),
        "Whether the broker's certificate must be for the host name that the client connects to.",
        also=("ssl.check.hostname",),
    )
    enable_ssl_certificate_verification: bool = setting(
        SECURITY,
        True,
        Flag(),
        "Whether the broker's certificate is verified at all. Without it, any server can pose as the broker.",
    )
    ssl_enabled_protocols: tuple[str, ...] = setting(
        SECURITY, ("TLSv1.2", "TLSv1.3"), Words(("TLSv1.2", "TLSv1.3")), "The versions of TLS that are allowed."
    )
    ssl_cipher_suites: tuple[str, ...] = setting(
        SECURITY,
        (),
        Words(),
        "The cipher suites that are allowed, by their names in OpenSSL. Empty: OpenSSL's choice.",
        also=("ssl.ciphers",),
    )
    ssl_context: object = setting(
        SECURITY,
        None,
        PythonObject("an ssl.SSLContext", _is_context),
        "A context of Python's ssl, in the place of all other ssl settings.",
    )

    @property
    def uses_tls(self) -> bool:
        return self.security_protocol.endswith("SSL")

    @property
    def uses_sasl(self) -> bool:
        return self.security_protocol.startswith("SASL")

    @property
    def credentials(self) -> SaslCredentials | None:
        """Return the credentials of the client, if it logs in."""
        return Login(self).credentials() if self.uses_sasl else None

    def contradictions(self) -> list[str]:
        problems = self._wrong_protocol()
        if self.uses_tls:
            problems += self._tls_contradictions()
        if self.uses_sasl and not problems:
            login = Login(self)
            login.credentials()
            problems += login.problems
        return problems

    def _wrong_protocol(self) -> list[str]:
        """Security that was meant and would be missing is an error: it is not left out silently."""
        problems = []
        for names, is_used, protocols in (
            (self._tls_names(), self.uses_tls, "SSL or SASL_SSL"),
            ([name for name in self.given if name.startswith("sasl.")], self.uses_sasl, "SASL_SSL or SASL_PLAINTEXT"),
        ):
            if names and not is_used:
                default = "" if "security.protocol" in self.given else ", the default"
                problems.append(
                    f"{are(names)} given, and security.protocol is {self.security_protocol}{default}: "
                    f"set security.protocol to {protocols}, or leave {'them' if names[1:] else 'it'} out"
                )
        return problems

    def _tls_names(self) -> list[str]:
        return [name for name in self.given if name.startswith(("ssl.", "enable.ssl."))]

    def _tls_contradictions(self) -> list[str]:
        problems = []
        for what, ways in _ONE_PLACE.items():
            given = [name for name in ways if name in self.given]
            if len(given) > 1:
                problems.append(f"{are(given)} given, and {what} comes from one place: leave one out")
        for name, other in _TOGETHER.items():
            if name in self.given and other not in self.given:
                problems.append(f"{name} is given without {other}: a key and its certificate belong together")
        others = [name for name in self._tls_names() if name != "ssl.context"]
        if self.ssl_context is not None and others:
            problems.append(f"{are(['ssl.context', *others])} given: leave the others out, the context has it all")
        return problems


def protocol_problem(protocol: str, text: str, security_protocol: str) -> str | None:
    """Return what is wrong with the protocol in an entry of `bootstrap.servers`, such as SASL_SSL://host:9093."""
    if protocol.upper() in {"", security_protocol}:
        return None
    if protocol.upper() not in PROTOCOLS:
        return f"bootstrap.servers has {text!r}: must be host:port, for example localhost:9092"
    return (
        f"bootstrap.servers has {text!r}, and security.protocol is {security_protocol}: "
        f"set security.protocol to {protocol.upper()}, or leave {protocol}:// out"
    )
