"""The SASL settings of a listener: its mechanisms, the users of each, and how long a session lasts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from uuid import UUID

from coterie.broker.security.users import NO_USERS, Users, plain_users
from coterie.protocol.sasl_mechanisms import (
    OAuthBearerServer,
    PlainServer,
    SaslServer,
    ScramCredential,
    ScramServer,
    ValidToken,
)
from coterie.settings.broker_settings import BrokerSettings
from coterie.settings.listeners import Endpoint

CredentialOf = Callable[[str, str], ScramCredential | None]
"""Takes a SCRAM mechanism and a user."""
Validate = Callable[[str, int], ValidToken | None]
"""Takes a bearer token and the time of the wall clock; returns None if the token is not accepted."""


class SaslListener:
    def __init__(
        self,
        endpoint: Endpoint,
        settings: BrokerSettings,
        users: Users,
        stored_credential: CredentialOf,
        validate: Validate,
        fresh_id: Callable[[], UUID],
    ) -> None:
        """`settings` are the broker's. `stored_credential` finds what was stored by AlterUserScramCredentials."""
        own = settings.of_listener(endpoint)
        self.name = endpoint.name
        self.mechanisms = own.sasl_enabled_mechanisms
        self.failed_authentication_delay_ms = settings.connection_failed_authentication_delay_ms
        self.max_reauth_ms: Mapping[str, int] = {
            mechanism: settings.of_listener(endpoint, mechanism).connections_max_reauth_ms
            for mechanism in self.mechanisms
        }
        self._users = users
        self._stored_credential = stored_credential
        self._validate = validate
        self._fresh_id = fresh_id
        jaas = settings.of_listener(endpoint, "PLAIN").sasl_jaas_config if "PLAIN" in self.mechanisms else None
        self._plain_users = plain_users(jaas.value) if jaas else NO_USERS

    def server_of(self, mechanism: str, wall_ms: Callable[[], int]) -> SaslServer:
        """Return the broker's side of one authentication. `wall_ms` is the time at which a token is checked."""
        if mechanism == "PLAIN":
            return PlainServer(self._has_password)
        if mechanism == "OAUTHBEARER":
            return OAuthBearerServer(lambda token: self._validate(token, wall_ms()))
        nonce = self._fresh_id().hex + self._fresh_id().hex
        return ScramServer(mechanism, partial(self._credential_of, mechanism), nonce)

    def _has_password(self, user: str, password: str) -> bool:
        in_jaas = self._plain_users.has_password(user, password)
        return self._users.has_password(user, password) or in_jaas

    def _credential_of(self, mechanism: str, user: str) -> ScramCredential | None:
        return self._stored_credential(mechanism, user) or self._users.credential_of(mechanism, user)
