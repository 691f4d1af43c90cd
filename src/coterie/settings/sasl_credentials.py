"""The credentials of a client: user and password, or a source of tokens (S21, S55, S56)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from coterie.settings.config_def import Password, SettingsError
from coterie.settings.jaas import LoginModule, parse_jaas
from coterie.structs import DataStruct, field

if TYPE_CHECKING:
    from coterie.settings.security_settings import SecuritySettings

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
MSK_IAM = "For MSK IAM give sasl.mechanism=OAUTHBEARER and a token callback (docs/security.md has the recipe)"
_NO_PASSWORD = Password("")
_EXAMPLE = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="..." password="...";'
_CLAIM, _LIFETIME = "unsecuredLoginStringClaim_", "unsecuredLoginLifetimeSeconds"
_HOUR_S = "3600"


def are(names: Sequence[str]) -> str:
    """Return a list of names with its verb."""
    return f"{' and '.join(names)} {'are' if len(names) > 1 else 'is'}"


class TokenEndpoint(DataStruct, frozen=True):
    """The endpoint that gives tokens for client credentials, a flow of OAuth (S21)."""

    url: str
    client_id: str
    client_secret: Password
    scope: str
    is_urlencoded: bool
    """True if id and secret are encoded before they go into the header, as RFC 6749 says and Kafka does not."""


class UnsecuredToken(DataStruct, frozen=True):
    """The claims of a token without a signature, for tests (S20)."""

    claims: Mapping[str, str]
    lifetime_s: int


class SaslCredentials(DataStruct, frozen=True):
    """The credentials of a client."""

    mechanism: str
    username: str = ""
    password: Password = _NO_PASSWORD
    token: object = None
    """A callback, its name (module:name), a `TokenEndpoint` or an `UnsecuredToken`."""
    extensions: Mapping[str, str] = field(default_factory=dict)


class Login:
    """Finds out who a client is from its settings; `problems` says what is missing or does not fit together."""

    def __init__(self, settings: SecuritySettings) -> None:
        self._settings = settings
        self.problems: list[str] = []

    def credentials(self) -> SaslCredentials | None:
        mechanism = self._settings.sasl_mechanism
        if mechanism not in MECHANISMS:
            default = "" if "sasl.mechanism" in self._settings.given else ", Java's default"
            self.problems.append(
                f"sasl.mechanism is {mechanism}{default}, which is not supported: give one of {', '.join(MECHANISMS)}"
            )
            return None
        options = self._jaas()
        if self.problems:
            return None
        found = self._with_token(options) if mechanism == "OAUTHBEARER" else self._with_password(mechanism, options)
        return None if self.problems else found

    def _jaas(self) -> Mapping[str, str]:
        """Return the options of `sasl.jaas.config`, whose login module has to fit the mechanism."""
        config = self._settings.sasl_jaas_config
        if config is None:
            return {}
        try:
            entry = parse_jaas(config.value)
        except SettingsError as error:
            self.problems.append(f"{error}. It looks like: {_EXAMPLE}")
            return {}
        problem = self._wrong_module(entry)
        if problem:
            self.problems.append(f"sasl.jaas.config has {entry.name}{problem}")
        return entry.options

    def _wrong_module(self, entry: LoginModule) -> str:
        """The class only says which options there are: ScramLoginModule's line does for PLAIN, as in Java."""
        mechanism = self._settings.sasl_mechanism
        if entry.name == "Krb5LoginModule":
            return f": Kerberos is not supported; use {', '.join(MECHANISMS)}"
        if entry.name == "IAMLoginModule":
            return f", which is Java's. {MSK_IAM}"
        fitting = ["OAuthBearerLoginModule"] if mechanism == "OAUTHBEARER" else ["PlainLoginModule", "ScramLoginModule"]
        if entry.name not in fitting:
            return f", and sasl.mechanism is {mechanism}, which needs {' or '.join(fitting)}"
        return ""

    def _one_of(self, what: str, name: str, value: Any, in_jaas: Any) -> Any:
        """Return what a setting or the option of `sasl.jaas.config` gives. If both do and differ, that is a problem."""
        if value is not None and in_jaas is not None and value != in_jaas:
            self.problems.append(f"{name} and sasl.jaas.config give {what}, and not the same: leave one out")
        return in_jaas if value is None else value

    def _with_password(self, mechanism: str, options: Mapping[str, str]) -> SaslCredentials:
        settings = self._settings
        username = self._one_of("the user", "sasl.username", settings.sasl_username, options.get("username"))
        password = self._one_of(
            "the password", "sasl.password", settings.sasl_password, _password(options.get("password"))
        )
        missing = [name for name, value in (("sasl.username", username), ("sasl.password", password)) if not value]
        if missing:
            self.problems.append(
                f"sasl.mechanism is {mechanism}, and {are(missing)} missing: give sasl.username and sasl.password, "
                "or sasl.jaas.config"
            )
        elif not _is_text(username) or not _is_text(password.value):
            self.problems.append("sasl.username or sasl.password has characters that UTF-8 cannot encode")
        self._is_for("OAUTHBEARER", [name for name in settings.given if "oauth" in name])
        return SaslCredentials(mechanism, username or "", password or _NO_PASSWORD)

    def _is_for(self, others: str, names: Sequence[str]) -> None:
        if names:
            mechanism = self._settings.sasl_mechanism
            self.problems.append(f"{are(names)} for {others}, and sasl.mechanism is {mechanism}: leave one out")

    def _with_token(self, options: Mapping[str, str]) -> SaslCredentials:
        settings = self._settings
        self._is_for("PLAIN and SCRAM", [name for name in ("sasl.username", "sasl.password") if name in settings.given])
        sources = {
            "sasl.oauth.token.provider": settings.sasl_oauth_token_provider,
            "sasl.oauthbearer.token.endpoint.url": self._endpoint(options),
            "the unsecured claims of sasl.jaas.config": self._unsecured(options),
        }
        found = {name: source for name, source in sources.items() if source is not None}
        if len(found) > 1:
            self.problems.append(f"{are(list(found))} given, and tokens come from one place: leave one out")
        elif not found and not self.problems:
            self.problems.append(
                "sasl.mechanism is OAUTHBEARER, and nothing says where tokens come from: give "
                "sasl.oauth.token.provider, or sasl.oauthbearer.token.endpoint.url with client id and secret"
            )
        extensions = dict(settings.sasl_oauthbearer_extensions)
        for prefix in ("extension_", "unsecuredLoginExtension_"):
            extensions |= {
                name.removeprefix(prefix): value for name, value in options.items() if name.startswith(prefix)
            }
        return SaslCredentials("OAUTHBEARER", token=next(iter(found.values()), None), extensions=extensions)

    def _endpoint(self, options: Mapping[str, str]) -> TokenEndpoint | None:
        settings = self._settings
        name_of_id, name_of_secret = (f"sasl.oauthbearer.client.credentials.client.{what}" for what in ("id", "secret"))
        client_id = self._one_of("the client id", name_of_id, settings[name_of_id], options.get("clientId"))
        client_secret = self._one_of(
            "the client secret", name_of_secret, settings[name_of_secret], _password(options.get("clientSecret"))
        )
        scope = self._one_of(
            "the scope", "sasl.oauthbearer.scope", settings.sasl_oauthbearer_scope, options.get("scope")
        )
        url = settings.sasl_oauthbearer_token_endpoint_url
        if url is None:
            if client_id or client_secret or settings.sasl_oauthbearer_method == "oidc":
                self.problems.append(
                    "sasl.oauthbearer.token.endpoint.url is missing: a client id and secret, or "
                    "sasl.oauthbearer.method=oidc, need it"
                )
            return None
        is_file = url.lower().startswith("file:")
        if not is_file and not url.lower().startswith(("https://", "http://")):
            self.problems.append("sasl.oauthbearer.token.endpoint.url must begin with https://, http:// or file:")
        elif not is_file and not (client_id and client_secret):
            self.problems.append(
                f"sasl.oauthbearer.token.endpoint.url needs a client id and secret: give {name_of_id} and "
                f"{name_of_secret}"
            )
        return TokenEndpoint(
            url,
            client_id or "",
            client_secret or _NO_PASSWORD,
            scope or "",
            settings.sasl_oauthbearer_header_urlencode,
        )

    def _unsecured(self, options: Mapping[str, str]) -> UnsecuredToken | None:
        claims = {name.removeprefix(_CLAIM): value for name, value in options.items() if name.startswith(_CLAIM)}
        lifetime = options.get(_LIFETIME, _HOUR_S)
        if not lifetime.isascii() or not lifetime.isdecimal():
            self.problems.append(f"sasl.jaas.config has a {_LIFETIME} that is not a whole number")
            lifetime = _HOUR_S
        return UnsecuredToken(claims, int(lifetime)) if claims else None


def _is_text(text: str) -> bool:
    return text == text.encode("utf-8", "replace").decode()


def _password(text: str | None) -> Password | None:
    return None if text is None else Password(text)
