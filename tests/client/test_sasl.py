"""The login of a connection, against a broker that a test scripts: the dialogue, sessions that end, where tokens come
from, and what is said when it does not work.

`test_secured_clusters.py` has the same with brokers.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
from base64 import b64decode
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from client.peers import HANG_UP, Asked, Peer, Run, answer_to, until
from coterie.client.network.connection import BrokerConnection
from coterie.client.network.oauth_tokens import Token, Tokens
from coterie.client.network.sasl import Authenticator
from coterie.errors import ErrorCode, KafkaError, SaslAuthenticationError
from coterie.protocol.apis import heartbeat, sasl_authenticate, sasl_handshake
from coterie.protocol.messages import Heartbeat
from coterie.protocol.sasl_mechanisms import ScramCredential, ScramServer, salted_password
from coterie.settings.client_settings import ClientSettings

pytestmark = pytest.mark.real_time

BEAT = Heartbeat(None, "g", "m", None, 1)
SECRET = "s3cr3t-of-alice"
PLAIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "alice",
    "sasl.password": SECRET,
}
SCRAM = {**PLAIN, "sasl.mechanism": "SCRAM-SHA-256"}
TOKENS = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
HANDSHAKE, AUTHENTICATE, HEARTBEAT = sasl_handshake.API.key, sasl_authenticate.API.key, heartbeat.API.key


def token_in(asked: Asked) -> bytes:
    """The bytes of a SaslAuthenticate."""
    request: sasl_authenticate.Request = sasl_authenticate.read_request(asked.frame, asked.at, asked.version)
    return request.auth_bytes


def welcome(asked: Asked, lifetime_ms: int = 0, auth_bytes: bytes = b"") -> object:
    """Accept every login; the session lives for `lifetime_ms`."""
    if asked.key == HANDSHAKE:
        return answer_to(asked, sasl_handshake.Response(mechanisms=["PLAIN"]))
    if asked.key == AUTHENTICATE:
        answer = sasl_authenticate.Response(message="", auth_bytes=auth_bytes, session_lifetime_ms=lifetime_ms)
        return answer_to(asked, answer)
    return answer_to(asked, ErrorCode.NONE)


async def open_connection(
    peer: Peer, given: dict[str, Any], chance: Callable[[], float] = lambda: 0.5, wall_ms: Callable[[], int] = lambda: 0
) -> BrokerConnection:
    settings = peer.settings(**given)
    credentials = settings.credentials
    assert credentials is not None
    authenticator = Authenticator(settings, credentials, wall_ms, chance)
    return await BrokerConnection.open("127.0.0.1", peer.port, settings, authenticator=authenticator)


# --- the dialogue -----------------------------------------------------------------------------------------------------


def test_plain_sends_user_and_password_after_the_handshake(run: Run) -> None:
    """S2, S6 and S13: ApiVersions, SaslHandshake v1, SaslAuthenticate."""

    async def story() -> None:
        async with Peer(welcome) as peer:
            connection = await open_connection(peer, PLAIN)
            assert [each.key for each in peer.asked] == [18, HANDSHAKE, AUTHENTICATE]
            assert peer.asked[1].version == 1 and token_in(peer.asked[2]) == f"\0alice\0{SECRET}".encode()
            assert SECRET not in repr(connection)
            await connection.close()

    run(story())


def test_scram_proves_the_password_and_checks_the_brokers_proof(run: Run) -> None:
    """S15."""
    salted = salted_password("SCRAM-SHA-256", SECRET, b"salt", 4096)
    credential = ScramCredential.of("SCRAM-SHA-256", salted, b"salt", 4096)

    async def story(lies: bool) -> None:
        server = ScramServer("SCRAM-SHA-256", lambda _: credential, "nonce")

        def script(asked: Asked) -> object:
            if asked.key != AUTHENTICATE:
                return welcome(asked)
            answer = server.evaluate(token_in(asked))
            return welcome(asked, auth_bytes=b"v=AAAA" if lies and server.is_complete else answer)

        async with Peer(script) as peer:
            if lies:
                with pytest.raises(SaslAuthenticationError, match="it does not know the password either"):
                    await open_connection(peer, SCRAM)
            else:
                await (await open_connection(peer, SCRAM)).close()
                assert server.user == "alice" and SECRET.encode() not in b"".join(each.frame for each in peer.asked)

    run(story(lies=False))
    run(story(lies=True))


@pytest.mark.parametrize(
    ("answer", "code", "says"),
    [
        (
            sasl_handshake.Response(error=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=["SCRAM-SHA-512", "PLAIN"]),
            33,
            "does not have sasl.mechanism PLAIN enabled; it has PLAIN, SCRAM-SHA-512 (UNSUPPORTED_SASL_MECHANISM)",
        ),
        (
            sasl_handshake.Response(error=ErrorCode.ILLEGAL_SASL_STATE),
            34,
            "the listener has no login, and security.protocol is SASL_PLAINTEXT: is it PLAINTEXT?",
        ),
        (
            sasl_authenticate.Response(error=ErrorCode.SASL_AUTHENTICATION_FAILED, message="Go away"),
            58,
            "refused user 'alice' with sasl.mechanism PLAIN: Go away (SASL_AUTHENTICATION_FAILED); check sasl.username",
        ),
        (sasl_authenticate.Response(auth_bytes=b"more"), 58, "the broker sent a token where PLAIN has none"),
    ],
)
def test_what_the_broker_refuses_is_raised_with_its_text(run: Run, answer: Any, code: int, says: str) -> None:
    """S5, S8, S9 and S57."""
    refused = HANDSHAKE if isinstance(answer, sasl_handshake.Response) else AUTHENTICATE

    async def story() -> None:
        async with Peer(lambda asked: answer_to(asked, answer) if asked.key == refused else welcome(asked)) as peer:
            with pytest.raises(SaslAuthenticationError, match=re.escape(says)) as raised:
                await open_connection(peer, PLAIN)
            assert raised.value.code == code and not raised.value.retriable
            assert SECRET not in f"{raised.value!r} {raised.value}"

    run(story())


def test_a_token_that_is_refused_is_acknowledged_before_the_broker_says_so(run: Run) -> None:
    """S18: error 0 with bytes is no success."""

    def script(asked: Asked) -> object:
        if asked.key != AUTHENTICATE:
            return welcome(asked)
        if token_in(asked) != b"\x01":
            return welcome(asked, auth_bytes=b'{"status":"invalid_token"}')
        failed = sasl_authenticate.Response(
            error=ErrorCode.SASL_AUTHENTICATION_FAILED, message='{"status":"invalid_token"}'
        )
        return [answer_to(asked, failed), HANG_UP]

    async def story() -> None:
        async with Peer(script) as peer:
            with pytest.raises(SaslAuthenticationError, match=r"refused the token .*invalid_token") as raised:
                await open_connection(peer, {**TOKENS, "oauth_cb": lambda: SECRET})
            assert SECRET not in str(raised.value)

    run(story())


def test_a_login_that_never_ends_is_given_up(run: Run) -> None:
    async def story() -> None:
        async with Peer(lambda asked: welcome(asked, auth_bytes=b"again")) as peer:
            with pytest.raises(SaslAuthenticationError, match="does not come to an end"):
                await open_connection(peer, {**TOKENS, "oauth_cb": lambda: SECRET})

    run(story())


# --- sessions that end ------------------------------------------------------------------------------------------------


def test_before_a_session_ends_requests_wait_for_the_next_login_and_go_on_in_order(run: Run) -> None:
    """S33 and S34: earlier requests are answered first, nothing is sent meanwhile, and nothing is overtaken."""

    async def story() -> None:
        held: list[Asked] = []

        def script(asked: Asked) -> object:
            if asked.key == HEARTBEAT and not held:
                held.append(asked)  # it is answered later
                return None
            return welcome(asked, lifetime_ms=1)

        async with Peer(script) as peer:
            connection = await open_connection(peer, PLAIN)
            first = asyncio.ensure_future(connection.send(heartbeat, BEAT, timeout_ms=60_000))
            await until(lambda: bool(held))
            connection._requests.login_at = 0.0  # the session is about to end
            later = [asyncio.ensure_future(connection.send(heartbeat, BEAT, timeout_ms=60_000)) for _ in range(3)]
            for _ in range(10):  # turns of the loop, in which the login would begin
                await asyncio.sleep(0)
            requests = connection._requests
            assert len(requests) == 4 and requests._last_correlation_id == 4, "the first is not answered yet"
            peer._writers[0].write(answer_to(held[0], ErrorCode.NONE))
            assert await asyncio.gather(first, *later) == [ErrorCode.NONE] * 4
            beat, login = HEARTBEAT, [HANDSHAKE, AUTHENTICATE]
            assert [each.key for each in peer.asked] == [18, *login, beat, *login, beat, beat, beat]
            numbers = [each.correlation_id for each in peer.asked]
            assert numbers == sorted(numbers) and peer.connections == 1
            await connection.close()

    run(story())


def test_a_request_that_is_cancelled_during_a_login_does_not_end_the_connection_later(run: Run) -> None:
    async def story() -> None:
        async with Peer(lambda asked: welcome(asked, lifetime_ms=0)) as peer:
            connection = await open_connection(peer, PLAIN)
            connection._requests.login_at = 0.0
            cancelled = asyncio.ensure_future(connection.send(heartbeat, BEAT, timeout_ms=300))
            after = asyncio.ensure_future(connection.send(heartbeat, BEAT, timeout_ms=60_000))
            await asyncio.sleep(0)
            cancelled.cancel()
            assert await after is ErrorCode.NONE
            assert [each.key for each in peer.asked].count(HEARTBEAT) == 1, "it was never sent"
            await asyncio.sleep(0.4)
            assert not connection.is_closed
            await connection.close()

    run(story())


def test_a_session_that_cannot_be_renewed_ends_the_connection_for_all_who_wait(run: Run) -> None:
    """S33: another password, for example."""

    async def story() -> None:
        logins: list[Asked] = []

        def script(asked: Asked) -> object:
            if asked.key == AUTHENTICATE and logins:
                refused = sasl_authenticate.Response(error=ErrorCode.SASL_AUTHENTICATION_FAILED, message="Too late")
                return [answer_to(asked, refused), HANG_UP]
            logins.extend([asked] if asked.key == AUTHENTICATE else [])
            return welcome(asked, lifetime_ms=1)

        async with Peer(script) as peer:
            connection = await open_connection(peer, PLAIN)
            lost: list[KafkaError] = []
            connection.on_lost = lost.append
            connection._requests.login_at = 0.0
            beats = [connection.send(heartbeat, BEAT, timeout_ms=60_000) for _ in range(2)]
            for error in await asyncio.gather(*beats, return_exceptions=True):
                assert isinstance(error, SaslAuthenticationError) and "Too late" in str(error)
            assert len(lost) == 1 and connection.is_closed and not connection.in_flight

    run(story())


def test_a_connection_that_is_lost_or_closed_during_a_login_tells_all_who_wait(run: Run) -> None:
    async def story(closes: bool) -> None:
        logins: list[Asked] = []

        def script(asked: Asked) -> object:
            logins.extend([asked] if asked.key == HANDSHAKE else [])
            if len(logins) == 2:
                return None if closes else HANG_UP
            return welcome(asked, lifetime_ms=1)

        async with Peer(script) as peer:
            connection = await open_connection(peer, PLAIN)
            connection._requests.login_at = 0.0
            beats = [asyncio.ensure_future(connection.send(heartbeat, BEAT, timeout_ms=60_000)) for _ in range(2)]
            await until(lambda: len(logins) == 2)
            if closes:
                await connection.close()
            for error in await asyncio.gather(*beats, return_exceptions=True):
                assert isinstance(error, KafkaError) and error.retriable
            await connection.close()

    run(story(closes=False))
    run(story(closes=True))


@pytest.mark.parametrize(
    ("lifetime_ms", "chance", "after_s"), [(0, 0.5, None), (10_000, 0.0, 8.5), (10_000, 1.0, 9.5), (1_000, 0.0, 1.1)]
)
def test_a_session_is_renewed_at_85_to_95_percent_of_its_life(
    lifetime_ms: int, chance: float, after_s: float | None
) -> None:
    """S33 and S34: not within a second, which Kafka refuses; a login right after the end is still taken (32)."""
    settings = ClientSettings.of(PLAIN)
    assert settings.credentials is not None
    authenticator = Authenticator(settings, settings.credentials, lambda: 0, lambda: chance)
    assert authenticator._again_after_s(lifetime_ms) == after_s


# --- tokens -----------------------------------------------------------------------------------------------------------


def tokens_of(given: dict[str, Any], wall_ms: Callable[[], int] = lambda: 0) -> Tokens:
    settings = ClientSettings.of({**TOKENS, **given})
    assert settings.credentials is not None
    return Tokens(settings, settings.credentials, wall_ms)


class KafkaPythonProvider:
    def token(self) -> str:
        return SECRET

    def extensions(self) -> dict[str, str]:
        return {"logicalCluster": "lkc-1"}


class AiokafkaProvider:
    async def token(self) -> str:
        await asyncio.sleep(0)
        return SECRET


def named_provider(config: str) -> tuple[str, float]:
    return f"{SECRET}{config}", 2.0


async def _coroutine(config: str) -> tuple[str, float, str, dict[str, str]]:
    await asyncio.sleep(0)
    return f"{SECRET}{config}", 2.0, "alice", {"a": "1"}


@pytest.mark.parametrize(
    ("provider", "token"),
    [
        (lambda config: (f"{SECRET}{config}", 2.0), Token(f"{SECRET}-eu", 2_000.0)),
        (lambda _: (SECRET, 2.0, "alice", {"a": "1"}), Token(SECRET, 2_000.0, {"a": "1"})),
        (lambda: (SECRET, 1_794_854_795_307), Token(SECRET, 1_794_854_795_307)),
        (lambda: SECRET, Token(SECRET)),
        (_coroutine, Token(f"{SECRET}-eu", 2_000.0, {"a": "1"})),
        (KafkaPythonProvider(), Token(SECRET, None, {"logicalCluster": "lkc-1"})),
        (KafkaPythonProvider, Token(SECRET, None, {"logicalCluster": "lkc-1"})),
        (AiokafkaProvider(), Token(SECRET)),
        (f"{__name__}:named_provider", Token(f"{SECRET}-eu", 2_000.0)),
    ],
    ids=["confluent", "extensions", "msk", "text", "coroutine", "kafka-python", "its class", "aiokafka", "by name"],
)
def test_a_callback_returns_what_other_libraries_callbacks_return(run: Run, provider: object, token: Token) -> None:
    """S22 and S23."""
    found = run(tokens_of({"oauth_cb": provider, "sasl.oauthbearer.config": "-eu"}).token())
    assert found == token and SECRET not in repr(found)


def test_a_token_is_kept_for_four_fifths_of_its_life_and_the_old_one_helps_out(run: Run) -> None:
    now_ms = 0
    tries: list[int] = []

    def callback() -> tuple[str, float]:
        tries.append(now_ms)
        if len(tries) == 2:
            raise OSError("no network")
        return f"token-{len(tries)}", now_ms / 1000 + 1

    async def story() -> None:
        nonlocal now_ms
        tokens = tokens_of({"oauth_cb": callback}, lambda: now_ms)
        both = await asyncio.gather(tokens.token(), tokens.token())
        assert [each.value for each in both] == ["token-1"] * 2 and len(tries) == 1
        now_ms = 799
        assert (await tokens.token()).value == "token-1" and len(tries) == 1
        now_ms = 900
        assert (await tokens.token()).value == "token-1" and len(tries) == 2, "the provider failed, the old one lives"
        now_ms = 1_001
        assert (await tokens.token()).value == "token-3"
        tries.clear()

    run(story())


class _SecretiveError(Exception):
    pass


def _fails() -> str:
    raise _SecretiveError(SECRET)


@pytest.mark.parametrize(
    ("provider", "says"),
    [
        (_fails, "sasl.oauth.token.provider returned no token: it raised _SecretiveError"),
        (lambda: 5, "sasl.oauth.token.provider returned int: it must return a token as text"),
        (lambda: "", "it must return a token as text"),
        (lambda: f"{SECRET}\x01auth=x", "it must return a token as text"),
        (lambda: (SECRET, "soon"), "(token, expiry in seconds since 1970)"),
        ("no_such_module:x", "returned no token: it raised ModuleNotFoundError"),
        (lambda: asyncio.sleep(3600), "returned no token within request.timeout.ms, which is 1000"),
    ],
)
def test_a_callback_that_returns_no_token_is_an_error_without_what_it_said(
    run: Run, provider: object, says: str
) -> None:
    """S57. What the callback raised is the cause."""
    with pytest.raises(SaslAuthenticationError, match=re.escape(says)) as raised:
        run(tokens_of({"oauth_cb": provider, "request.timeout.ms": 1000}).token())
    assert SECRET not in str(raised.value)


def test_an_unsecured_token_has_the_claims_of_jaas() -> None:
    """S20: it says that it was made some seconds ago, since Kafka allows no difference of clocks."""
    jaas = (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
        'unsecuredLoginStringClaim_sub="alice" unsecuredLoginLifetimeSeconds="60";'
    )
    found = asyncio.run(tokens_of({"sasl.jaas.config": jaas}, lambda: 1_000_000).token())
    head, body, signature = found.value.split(".")
    assert json.loads(b64decode(head + "==")) == {"alg": "none"} and signature == ""
    assert json.loads(b64decode(body + "==")) == {"sub": "alice", "iat": 995.0, "exp": 1060.0}
    assert found.expires_ms == 1_060_000


# --- a token endpoint -------------------------------------------------------------------------------------------------


class Endpoint:
    """A token endpoint whose answers a test writes: status and body, in order; the last one stays."""

    def __init__(self, *answers: tuple[int, object]) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[dict[str, str], dict[str, list[str]]]] = []
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                form = self.rfile.read(int(self.headers["Content-Length"])).decode()
                endpoint.asked.append((dict(self.headers), parse_qs(form)))
                status, answer = endpoint.answers.pop(0) if len(endpoint.answers) > 1 else endpoint.answers[0]
                body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Nothing."""

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    @property
    def settings(self) -> dict[str, Any]:
        return {
            "sasl.oauthbearer.token.endpoint.url": f"http://127.0.0.1:{self._server.server_port}/token?tenant=1",
            "sasl.oauthbearer.client.credentials.client.id": "app",
            "sasl.oauthbearer.client.credentials.client.secret": SECRET,
        }

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    running = Endpoint((200, {"access_token": "the-token", "expires_in": 60}))
    yield running
    running.stop()


def test_a_token_endpoint_is_asked_with_client_credentials(run: Run, endpoint: Endpoint) -> None:
    """S21."""
    more = {"sasl.oauthbearer.scope": "a b"}
    assert run(tokens_of({**endpoint.settings, **more}, lambda: 1_000).token()) == Token("the-token", 61_000)
    ((headers, form),) = endpoint.asked
    assert form == {"grant_type": ["client_credentials"], "scope": ["a b"]}
    assert b64decode(headers["Authorization"].removeprefix("Basic ")).decode() == f"app:{SECRET}"
    assert headers["Content-Type"] == "application/x-www-form-urlencoded" and headers["Accept"] == "application/json"


def test_id_and_secret_are_encoded_if_that_is_asked_for(run: Run, endpoint: Endpoint) -> None:
    more = {"sasl.oauthbearer.client.credentials.client.id": "a:b", "sasl.oauthbearer.header.urlencode": True}
    run(tokens_of({**endpoint.settings, **more}).token())
    assert b64decode(endpoint.asked[0][0]["Authorization"].removeprefix("Basic ")).decode() == f"a%3Ab:{SECRET}"


def test_a_token_endpoint_that_is_down_for_a_moment_is_asked_again(run: Run, endpoint: Endpoint) -> None:
    endpoint.answers = [(503, b""), (500, b""), *endpoint.answers]
    found = run(tokens_of({**endpoint.settings, "sasl.login.retry.backoff.ms": 1}).token())
    assert found.value == "the-token" and len(endpoint.asked) == 3


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (
            (401, {"error": "invalid_client", "error_description": f"not {SECRET}"}),
            "answered 401 (invalid_client: not [hidden]): check the client id and secret",
        ),
        ((302, b""), "answered 302: check the client id"),
        ((200, b"<html>"), "answered without an access_token: is it the token endpoint?"),
        ((200, []), "answered without an access_token"),
    ],
)
def test_a_token_endpoint_that_refuses_is_not_asked_again(
    run: Run, endpoint: Endpoint, answer: tuple[int, object], says: str
) -> None:
    """S21. A redirect is not followed: it would carry the secret elsewhere."""
    endpoint.answers = [answer]
    with pytest.raises(SaslAuthenticationError, match=re.escape(says)) as raised:
        run(tokens_of(endpoint.settings).token())
    assert len(endpoint.asked) == 1 and SECRET not in f"{raised.value!r} {raised.value}"
    assert "sasl.oauthbearer.token.endpoint.url" in str(raised.value) and "tenant" not in str(raised.value)


def test_a_token_endpoint_that_nobody_is_at_is_given_up_in_time(run: Run) -> None:
    given = {
        "sasl.oauthbearer.token.endpoint.url": "http://127.0.0.1:9/token",
        "sasl.oauthbearer.client.id": "app",
        "sasl.oauthbearer.client.secret": SECRET,
        "sasl.login.retry.backoff.max.ms": 50,
    }
    with pytest.raises(SaslAuthenticationError, match=r"http://127.0.0.1:9/token cannot be reached: .*refused"):
        run(tokens_of(given).token())


def test_a_token_may_be_in_a_file(run: Run, tmp_path: Path) -> None:
    """As Java's file: URL of a token endpoint; it is read for each login."""
    (tmp_path / "token").write_text(f"{SECRET}\n")
    tokens = tokens_of({"sasl.oauthbearer.token.endpoint.url": (tmp_path / "token").as_uri()})
    assert run(tokens.token()) == Token(SECRET)


# --- Amazon MSK -------------------------------------------------------------------------------------------------------


def test_msk_iam_is_a_token_callback(run: Run) -> None:
    """S22: a stand-in for aws_msk_iam_sasl_signer, whose tokens are no JWTs and live for 900 s."""

    class MSKAuthTokenProvider:
        @staticmethod
        def generate_auth_token(region: str) -> tuple[str, int]:
            return f"aHR0cHM6Ly9rYWZrYS4{region}", 1_794_855_695_307

    def msk_token(_config: str) -> tuple[str, float]:
        token, expires_ms = MSKAuthTokenProvider.generate_auth_token("eu-west-1")
        return token, expires_ms / 1000

    async def story() -> None:
        async with Peer(welcome) as peer:
            connection = await open_connection(peer, {**TOKENS, "oauth_cb": msk_token})
            assert token_in(peer.asked[2]) == b"n,,\x01auth=Bearer aHR0cHM6Ly9rYWZrYS4eu-west-1\x01\x01"
            await connection.close()

    run(story())
