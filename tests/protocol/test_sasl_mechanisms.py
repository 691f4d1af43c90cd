"""The SASL mechanisms: both sides against each other, and SCRAM against the example of RFC 7677."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.errors import MalformedError
from coterie.protocol.sasl_mechanisms import (
    HASHES,
    OAuthBearerClient,
    OAuthBearerServer,
    PlainClient,
    PlainServer,
    SaslError,
    ScramClient,
    ScramCredential,
    ScramServer,
    ValidToken,
    salted_password,
)

NAMES = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1, max_size=20)
PASSWORDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20)


def credential(mechanism: str, password: str, salt: bytes = b"salt", iterations: int = 4_096) -> ScramCredential:
    return ScramCredential.of(mechanism, salted_password(mechanism, password, salt, iterations), salt, iterations)


# --- PLAIN (S13) --------------------------------------------------------------------------------------------------


def plain(token: bytes) -> PlainServer:
    server = PlainServer(lambda user, password: (user, password) == ("alice", "secret"))
    assert server.evaluate(token) == b""
    return server


@pytest.mark.parametrize("token", [PlainClient("alice", "secret").respond(b""), b"alice\0alice\0secret"])
def test_plain_takes_no_authorization_id_and_the_users_own(token: bytes) -> None:
    server = plain(token)
    assert server.is_complete
    assert server.user == "alice"


@pytest.mark.parametrize(
    ("token", "said"),
    [
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"a\0b\0c\0d", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0\0secret", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"\0alice\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0nobody\0secret", "Authentication failed: Invalid username or password"),
        (b"\0alice\0\xff", "Authentication failed: Invalid username or password"),
        (
            b"bob\0alice\0secret",
            "Authentication failed: Client requested an authorization id that is different from username",
        ),
    ],
)
def test_plain_refuses_with_kafkas_text(token: bytes, said: str) -> None:
    with pytest.raises(SaslError) as refused:
        plain(token)
    assert str(refused.value) == said


# --- SCRAM (S15, S16) ---------------------------------------------------------------------------------------------


def test_scram_is_that_of_the_rfc() -> None:
    """RFC 7677, section 3."""
    client = ScramClient("SCRAM-SHA-256", "user", "pencil", "rOprNGfwEbeRWgbNEkqO")
    assert client.respond(b"") == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    first = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    assert client.respond(first) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert not client.is_complete
    assert client.respond(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=") == b""
    assert client.is_complete


@given(mechanism=st.sampled_from(sorted(HASHES)), user=NAMES, password=PASSWORDS)
def test_scram_lets_in_who_knows_the_password(mechanism: str, user: str, password: str) -> None:
    stored = {user: credential(mechanism, password)}
    client, server = ScramClient(mechanism, user, password, "client"), ScramServer(mechanism, stored.get, "server")
    token = client.respond(b"")
    while not client.is_complete:
        token = client.respond(server.evaluate(token))
    assert server.is_complete
    assert server.user == user


@given(mechanism=st.sampled_from(sorted(HASHES)), right=PASSWORDS, wrong=PASSWORDS)
def test_scram_refuses_a_wrong_password_at_the_second_message(mechanism: str, right: str, wrong: str) -> None:
    server = ScramServer(mechanism, {"alice": credential(mechanism, right)}.get, "server")
    client = ScramClient(mechanism, "alice", wrong, "client")
    proof = client.respond(server.evaluate(client.respond(b"")))
    if right == wrong:
        assert server.evaluate(proof)
    else:
        with pytest.raises(SaslError) as refused:
            server.evaluate(proof)
        assert not str(refused.value)


@pytest.mark.parametrize(
    "token",
    [
        b"n,,n=bob,r=abc",
        b"y,,n=alice,r=abc",
        b"p=tls-unique,,n=alice,r=abc",
        b"n,,n=alice",
        b"n,,n=ali=ce,r=abc",
        b"",
        b"\xff",
        b"hello",
    ],
)
def test_scram_refuses_the_first_message(token: bytes) -> None:
    server = ScramServer("SCRAM-SHA-256", {"alice": credential("SCRAM-SHA-256", "secret")}.get, "server")
    with pytest.raises(SaslError) as refused:
        server.evaluate(token)
    assert not str(refused.value)


@pytest.mark.parametrize("token", [b"n,,n=alice,r=abc", b"n,a=alice,n=alice,r=abc", b"n,,n=alice,r=abc,x=unknown"])
def test_scram_takes_the_first_message(token: bytes) -> None:
    server = ScramServer("SCRAM-SHA-256", {"alice": credential("SCRAM-SHA-256", "secret")}.get, "server")
    assert server.evaluate(token) == b"r=abcserver,s=c2FsdA==,i=4096"


def test_scram_refuses_another_authorization_id() -> None:
    server = ScramServer("SCRAM-SHA-256", {"alice": credential("SCRAM-SHA-256", "secret")}.get, "server")
    with pytest.raises(SaslError, match="different from username"):
        server.evaluate(b"n,a=bob,n=alice,r=abc")


@pytest.mark.parametrize("message", [b"c=biws,r=abcserver,p=YWJj", b"c=biws,r=other,p=" + b"A" * 44, b"junk", b"\x00"])
def test_scram_refuses_a_last_message_that_proves_nothing(message: bytes) -> None:
    server = ScramServer("SCRAM-SHA-256", {"alice": credential("SCRAM-SHA-256", "secret")}.get, "server")
    server.evaluate(b"n,,n=alice,r=abc")
    with pytest.raises(SaslError):
        server.evaluate(message)
    assert not server.is_complete


@pytest.mark.parametrize(
    ("challenge", "said"),
    [
        (b"r=other,s=c2FsdA==,i=4096", "nonce"),
        (b"r=client,s=c2FsdA==,i=4096", "nonce"),
        (b"r=clientX,s=c2FsdA==,i=1", "iterations"),
        (b"r=clientX,s=c2FsdA==,i=99999999999", "iterations"),
        (b"junk", "cannot be read"),
    ],
)
def test_a_scram_client_does_not_answer_a_broker_that_cheats(challenge: bytes, said: str) -> None:
    client = ScramClient("SCRAM-SHA-256", "alice", "secret", "client")
    client.respond(b"")
    with pytest.raises(SaslError, match=said):
        client.respond(challenge)


def test_a_scram_client_does_not_believe_a_broker_without_the_password() -> None:
    client = ScramClient("SCRAM-SHA-256", "alice", "secret", "client")
    client.respond(b"")
    client.respond(b"r=clientX,s=c2FsdA==,i=4096")
    with pytest.raises(SaslError, match="signature is wrong"):
        client.respond(b"v=AAAA")
    assert not client.is_complete


# --- OAUTHBEARER (S17, S18) ---------------------------------------------------------------------------------------


def bearer() -> OAuthBearerServer:
    return OAuthBearerServer(lambda token: ValidToken("alice", 5_000) if token == "good" else None)


def test_oauthbearer_takes_a_token_with_extensions() -> None:
    server, client = bearer(), OAuthBearerClient("good", {"logicalCluster": "lkc-1", "identityPoolId": "pool-2"})
    assert server.evaluate(client.respond(b"")) == b""
    assert server.is_complete
    assert client.is_complete
    assert (server.user, server.expires_ms) == ("alice", 5_000)
    assert server.extensions == {"logicalCluster": "lkc-1", "identityPoolId": "pool-2"}


def test_oauthbearer_refuses_a_token_in_two_steps() -> None:
    server, client = bearer(), OAuthBearerClient("bad")
    answer = server.evaluate(client.respond(b""))
    assert answer == b'{"status":"invalid_token"}'
    with pytest.raises(SaslError, match="invalid_token"):
        server.evaluate(client.respond(answer))
    assert not client.is_complete
    assert client.refusal == answer.decode()


def test_oauthbearer_takes_a_good_token_after_a_bad_one() -> None:
    server = bearer()
    server.evaluate(OAuthBearerClient("bad").respond(b""))
    server.evaluate(OAuthBearerClient("good").respond(b""))
    assert server.is_complete


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"junk",
        b"n,,\x01auth=Bearer good\x01",
        b"n,,\x01auth=Bearer good\x01x1=y\x01\x01",
        b"n,,\x01auth=Bearer good\x01auth=Bearer good\x01\x01",
    ],
)
def test_oauthbearer_refuses_what_is_not_its_form(token: bytes) -> None:
    with pytest.raises(SaslError) as refused:
        bearer().evaluate(token)
    assert not str(refused.value)


def test_oauthbearer_refuses_another_authorization_id_than_the_tokens() -> None:
    """Rule 17."""
    with pytest.raises(SaslError, match="different from the token's principal name"):
        bearer().evaluate(b"n,a=bob,\x01auth=Bearer good\x01\x01")


def test_oauthbearer_closes_for_another_scheme_than_bearer() -> None:
    assert bearer().evaluate(b"n,,\x01auth=bEaReR good\x01\x01") == b""
    with pytest.raises(MalformedError, match="scheme"):
        bearer().evaluate(b"n,,\x01auth=Basic good\x01\x01")
