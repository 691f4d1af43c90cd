"""SaslServerAuthenticator without sockets: its table, its delay and its clock. `test_sasl.py` has the dialogues."""

from __future__ import annotations

from typing import Any

import pytest

from broker.driver import Client, World
from coterie.broker.broker_facts import AuthenticationFailed
from coterie.broker.calls import ANONYMOUS
from coterie.broker.security.sasl_server_authenticator import (
    AUTHENTICATE,
    HANDSHAKE,
    OTHER,
    REQUESTS,
    Action,
    SaslServerAuthenticator,
    SaslState,
)
from coterie.broker.security.users import Users, plain_users
from coterie.errors import ErrorCode
from coterie.protocol.api import ResourceType
from coterie.protocol.apis import (
    APIS,
    api_versions,
    describe_configs,
    metadata,
    sasl_authenticate,
    sasl_handshake,
)
from coterie.protocol.frames import request_frame
from coterie.settings.config_def import SettingsError
from coterie.settings.listeners import Endpoint

LISTENER = Endpoint("LOGIN", "127.0.0.1", 0, "SASL_PLAINTEXT")
SETTINGS = {
    "listeners": "LOGIN://127.0.0.1:0",
    "listener.security.protocol.map": "LOGIN:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "connection.failed.authentication.delay.ms": 500,
    "listener.name.login.plain.sasl.jaas.config": (
        'org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="own" '
        'user_alice="alice-secret";'
    ),
}
ALICE = b"\0alice\0alice-secret"


def secured(**settings: Any) -> tuple[World, Client]:
    world = World(settings=SETTINGS | settings)
    world.cluster.offer_sasl(LISTENER)
    world.cluster.metadata.endpoints["LOGIN"] = {1: ("broker.test", 9092)}
    return world, connected(world)


def connected(world: World) -> Client:
    client = world.client()
    client.connection.listener = "LOGIN"
    world.node.connected(client.connection)
    return client


def handshake(client: Client) -> Any:
    return client.ask(sasl_handshake, sasl_handshake.Request(mechanism="PLAIN"), 1)


def authenticate(client: Client, token: bytes = ALICE) -> Any:
    return client.ask(sasl_authenticate, sasl_authenticate.Request(auth_bytes=token), 2)


def state_of(client: Client) -> SaslState:
    assert client.connection.authenticator is not None
    return client.connection.authenticator.state


def test_the_table_has_an_action_for_each_request_in_each_state_that_reads_requests() -> None:
    """S2, S3, S4, S5, S6, S7, S8, S9."""
    reading = set(SaslState) - {SaslState.TOKENS, SaslState.BAD_MECHANISM, SaslState.FAILED}
    assert set(REQUESTS) == reading
    for actions in REQUESTS.values():
        assert set(actions) == {api_versions.API.key, HANDSHAKE, AUTHENTICATE, OTHER}
    passing = {state for state, actions in REQUESTS.items() if actions[OTHER] is Action.PASS}
    assert passing == {SaslState.COMPLETE}, "nothing is served before the login"


def test_a_client_is_somebody_when_the_mechanism_is_complete() -> None:
    """S2, S8 and S35."""
    world, client = secured()
    assert state_of(client) is SaslState.INITIAL and not client.connection.is_quick
    assert handshake(client).mechanisms == ["PLAIN", "SCRAM-SHA-256"]
    assert client.connection.principal == ANONYMOUS
    answer = authenticate(client)
    assert (answer.error, answer.message, answer.auth_bytes, answer.session_lifetime_ms) == (0, "", b"", 0)
    assert client.connection.principal == "User:alice"
    assert world.authenticated == [client.connection] and client.connection.is_quick
    assert client.ask(metadata, metadata.Request(topics=[]), 12).brokers[0].host == "broker.test"


def test_a_failure_is_told_when_its_delay_is_over() -> None:
    """S10: nothing that comes meanwhile is looked at."""
    world, client = secured()
    handshake(client)
    client.send(sasl_authenticate, sasl_authenticate.Request(auth_bytes=b"\0alice\0wrong"), 2)
    (failed,) = [fact for fact in world.facts if isinstance(fact, AuthenticationFailed)]
    assert (failed.listener, failed.mechanism) == ("LOGIN", "PLAIN") and "wrong" not in repr(failed)
    client.send(sasl_authenticate, sasl_authenticate.Request(auth_bytes=ALICE), 2)
    world.advance(499)
    assert client.answers == 0 and not client.connection.is_closed
    world.advance(1)
    assert [client.answers, client.connection.is_closed] == [1, True]
    assert client.connection.principal == ANONYMOUS


def test_a_client_that_is_gone_when_the_delay_is_over_is_not_answered() -> None:
    """S10."""
    world, client = secured()
    handshake(client)
    client.send(sasl_authenticate, sasl_authenticate.Request(auth_bytes=b"\0alice\0wrong"), 2)
    world.node.disconnected(client.connection)
    world.advance(500)
    assert not client.answers


def test_a_session_ends_by_the_brokers_own_time() -> None:
    """S31, S32, S33."""
    world, client = secured(**{"connections.max.reauth.ms": 10_000})
    handshake(client)
    assert authenticate(client).session_lifetime_ms == 10_000
    assert not client.connection.is_quick, "each request is looked at"
    world.advance(10_000)
    assert client.ask(metadata, metadata.Request(topics=[]), 12)
    handshake(client)
    assert authenticate(client).session_lifetime_ms == 10_000
    world.advance(10_001)
    client.send(metadata, metadata.Request(topics=[]), 12)
    assert client.connection.is_closed
    assert "session of User:alice has ended" in world.drops[-1]


def test_any_other_request_in_place_of_a_token_closes() -> None:
    """S7: after the delay, or at once if it cannot be read. `sasl_dialogues.py` has the answers to those of groups."""
    world, _ = secured()
    for api in APIS:
        for version in api.versions:
            if api.key != AUTHENTICATE and api.advertised and api.serves(version):
                client = connected(world)
                handshake(client)
                frame = request_frame(api.key, version, 1, "c", b"", flexible=version >= api.flexible)
                client.send_frame(frame[4:])
                world.advance(500)
                assert client.connection.is_closed, f"{api.name} v{version}"


def test_listeners_without_sasl_have_no_authenticator() -> None:
    """S9."""
    client = World().client()
    assert client.connection.authenticator is None
    assert authenticate(client).error is ErrorCode.ILLEGAL_SASL_STATE
    assert not client.connection.is_closed


def test_no_repr_has_a_password() -> None:
    """S57."""
    _, client = secured()
    assert isinstance(client.connection.authenticator, SaslServerAuthenticator)
    assert "secret" not in repr([Users({"alice": "secret"}), client.connection.authenticator, client.connection])


def test_described_configs_have_no_secret() -> None:
    """S57: as in Kafka, they are sensitive and null."""
    secrets = {"ssl.key.password": "secret-1", "ssl.keystore.key": "secret-2", "sasl.jaas.config": "secret-3"}
    client = World(settings=secrets).client()
    resource = describe_configs.Resource(resource_type=ResourceType.BROKER, resource_name="1")
    (result,) = client.ask(
        describe_configs, describe_configs.Request(resources=[resource], include_synonyms=True), 4
    ).results
    found = {config.name: config for config in result.configs}
    assert all(found[name].is_sensitive and found[name].value is None for name in secrets)
    assert "secret-" not in repr(result)


# --- users ------------------------------------------------------------------------------------------------------------


def test_the_users_of_plain_are_options_of_its_login_module() -> None:
    """S14: `username` is the broker's own name."""
    users = plain_users('PlainLoginModule required username="admin" password="own" user_a="1" user_b="";')
    assert users.has_password("a", "1")
    for user, password in (("a", ""), ("a", "2"), ("b", ""), ("admin", "own"), ("", "1"), ("user_a", "1")):
        assert not users.has_password(user, password)
    with pytest.raises(SettingsError, match="must be PlainLoginModule"):
        plain_users('ScramLoginModule required user_a="1";')


def test_a_scram_credential_is_made_once_and_again_if_the_file_changes() -> None:
    salts = iter([b"1", b"2", b"3"])
    users = Users({"given": "x"}, lambda: next(salts))
    first = users.credential_of("SCRAM-SHA-256", "given")
    assert first is not None and first is users.credential_of("SCRAM-SHA-256", "given")
    assert users.credential_of("SCRAM-SHA-256", "nobody") is None
    users.replace_file({"filed": "y", "given": "z"})
    again = users.credential_of("SCRAM-SHA-256", "given")
    assert again is not None and again.salt == b"2"
    assert (
        users.has_password("given", "x") and users.has_password("filed", "y") and not users.has_password("given", "z")
    )
