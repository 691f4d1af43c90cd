"""OAUTHBEARER as it is used in earnest: an identity provider signs tokens, clients ask it by client credentials, and
brokers verify them with its keys (S21). The brokers are Coterie's and Apache Kafka 4.3.1.
"""

from __future__ import annotations

import json
import threading
import time
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from client.consumers import PATIENCE_S
from coterie import Admin, Consumer, Producer, SaslAuthenticationError
from secured_kafka import BROKERS, Cluster, started

pytestmark = pytest.mark.real_time

SECRET = "s3cr3t-of-billing"
AUDIENCE, ISSUER = "kafka", "https://login.example"
LIVES_S = 4


def _text(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")


class IdentityProvider:
    """Signs tokens for the client `billing`, and publishes its key."""

    def __init__(self) -> None:
        self._key = rsa.generate_private_key(65537, 2048)
        self.tokens = 0
        self.audience = AUDIENCE
        self.time_s: Callable[[], float] = time.time  # noqa: TID251
        """The clock of the broker that verifies the tokens."""
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(200, provider.keys())

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                login = b64decode(self.headers["Authorization"].removeprefix("Basic ")).decode()
                if login == f"billing:{SECRET}":
                    self._answer(200, {"access_token": provider.token(), "expires_in": LIVES_S})
                else:
                    self._answer(401, {"error": "invalid_client", "error_description": "who are you?"})

            def _answer(self, status: int, answer: Any) -> None:
                body = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def keys(self) -> dict[str, Any]:
        numbers = self._key.public_key().public_numbers()
        modulus, exponent = (
            _text(each.to_bytes((each.bit_length() + 7) // 8, "big")) for each in (numbers.n, numbers.e)
        )
        return {"keys": [{"kty": "RSA", "kid": "k", "use": "sig", "alg": "RS256", "n": modulus, "e": exponent}]}

    def token(self) -> str:
        self.tokens += 1
        now = int(self.time_s())
        claims = {"sub": "billing", "iss": ISSUER, "aud": self.audience, "iat": now - 5, "exp": now + LIVES_S}
        parts = ({"alg": "RS256", "kid": "k", "typ": "JWT"}, claims)
        content = ".".join(_text(json.dumps(part).encode()) for part in parts)
        return f"{content}.{_text(self._key.sign(content.encode(), padding.PKCS1v15(), hashes.SHA256()))}"


@pytest.fixture(scope="module")
def provider() -> Iterator[IdentityProvider]:
    running = IdentityProvider()
    yield running
    running.stop()


@pytest.fixture(scope="module", params=BROKERS)
def cluster(request: pytest.FixtureRequest, provider: IdentityProvider) -> Iterator[Cluster]:
    verifies = {
        "sasl.oauthbearer.jwks.endpoint.url": f"{provider.url}/keys",
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.expected.issuer": ISSUER,
    }
    if request.param == "apache kafka":
        handler = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
        verifies |= {
            f"listener.name.{listener}.oauthbearer.sasl.server.callback.handler.class": handler
            for listener in ("sasl_plaintext", "sasl_ssl")
        }
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={provider.url}/keys"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", allowed)
        with started(request.param, verifies) as running:
            provider.time_s = running.time_s
            yield running


def settings_of(cluster: Cluster, provider: IdentityProvider) -> dict[str, object]:
    return {
        "bootstrap.servers": cluster.address_of("SASL_SSL"),
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(cluster.certificates.ca),
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": f"{provider.url}/token",
        "sasl.oauthbearer.client.credentials.client.id": "billing",
        "sasl.oauthbearer.client.credentials.client.secret": SECRET,
    }


def test_clients_ask_for_tokens_and_sessions_outlive_them(
    cluster: Cluster, provider: IdentityProvider, name: str
) -> None:
    """S19, S21 and S33."""
    settings = settings_of(cluster, provider)
    with (
        Producer(settings) as producer,
        Consumer({**settings, "group.id": name, "auto.offset.reset": "earliest"}) as consumer,
    ):
        consumer.subscribe([name])
        before, sent, read = provider.tokens, 0, 0
        while provider.tokens < before + 6:  # three for each client
            producer.send(name, b"value").result(PATIENCE_S)
            sent += 1
            read += len(consumer.poll(0.05))
        while read < sent:
            records = consumer.poll(PATIENCE_S)
            assert records, f"{sent - read} records are missing"
            read += len(records)
        assert read == sent


def test_what_the_identity_provider_or_the_broker_refuses_is_raised(
    cluster: Cluster, provider: IdentityProvider
) -> None:
    """S18, S21 and S57."""
    settings = settings_of(cluster, provider)
    wrong = {**settings, "sasl.oauthbearer.client.credentials.client.secret": "not-its-secret"}
    with (
        Admin(wrong) as admin,
        pytest.raises(SaslAuthenticationError, match=r"answered 401 \(invalid_client") as raised,
    ):
        admin.list_topics()
    assert "not-its-secret" not in str(raised.value)
    provider.audience = "somebody else"
    try:
        with Admin(settings) as admin, pytest.raises(SaslAuthenticationError, match="refused the token") as raised:
            admin.list_topics()
    finally:
        provider.audience = AUDIENCE
    assert "invalid_token" in str(raised.value) and "eyJ" not in str(raised.value), "a JWT begins with eyJ"
