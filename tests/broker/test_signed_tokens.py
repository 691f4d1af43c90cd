"""OAUTHBEARER with tokens that are signed: keys of a JWKS, issuer, audience and times (S21)."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from broker.sasl_dialogues import bearer, talk_to, unsecured
from coterie import Broker
from coterie.broker.broker_facts import Trouble
from coterie.broker.io import jwks as jwks_module
from coterie.broker.io import server as server_module
from coterie.broker.io.clock import wall_ms
from coterie.broker.security.signed_tokens import SignedTokens, read_jwks
from coterie.errors import CoterieError, MalformedError
from coterie.facts import Fact
from coterie.settings.broker_settings import BrokerSettings

RSA = rsa.generate_private_key(65537, 2048)
EC = ec.generate_private_key(ec.SECP256R1())
OTHER = ec.generate_private_key(ec.SECP256R1())
NOW_MS = 1_800_000_000_000
NOW_S = NOW_MS // 1000
CLAIMS = {"sub": "alice", "iat": NOW_S - 10, "exp": NOW_S + 100, "iss": "https://issuer", "aud": "kafka"}


def text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def number(value: int) -> str:
    return text(value.to_bytes((value.bit_length() + 7) // 8, "big"))


def row(key: Any, key_id: str) -> dict[str, str]:
    numbers = key.public_key().public_numbers()
    if key is RSA:
        return {"kty": "RSA", "kid": key_id, "use": "sig", "n": number(numbers.n), "e": number(numbers.e)}
    point = {"x": text(numbers.x.to_bytes(32, "big")), "y": text(numbers.y.to_bytes(32, "big"))}
    return {"kty": "EC", "kid": key_id, "crv": "P-256", **point}


def jwks(*rows: dict[str, str]) -> bytes:
    return json.dumps({"keys": list(rows)}).encode()


def signed(key: Any = EC, claims: dict[str, Any] | None = None, **header: Any) -> str:
    algorithm = "RS256" if key is RSA else "ES256"
    head = {"alg": algorithm, "kid": "rsa" if key is RSA else "ec", **header}
    content = ".".join(text(json.dumps(part).encode()) for part in (head, CLAIMS if claims is None else claims))
    if key is RSA:
        signature = RSA.sign(content.encode(), padding.PKCS1v15(), hashes.SHA256())
    else:
        r, s = decode_dss_signature(key.sign(content.encode(), ec.ECDSA(hashes.SHA256())))
        signature = r.to_bytes(32, "big") + s.to_bytes(32, "big")
    return f"{content}.{text(signature)}"


def tokens(**settings: Any) -> SignedTokens:
    made = SignedTokens(BrokerSettings.of({f"sasl.oauthbearer.{name}": value for name, value in settings.items()}))
    made.keys = read_jwks(jwks(row(RSA, "rsa"), row(EC, "ec")))
    return made


@pytest.mark.parametrize("key", [RSA, EC], ids=["RS256", "ES256"])
def test_a_token_that_is_signed_is_accepted_until_it_expires(key: Any) -> None:
    """S21."""
    assert tokens().validate(signed(key), NOW_MS) == ("alice", (NOW_S + 100) * 1000)


@pytest.mark.parametrize(
    "token",
    [
        "",
        "a.b",
        "a.b.c",
        unsecured(CLAIMS),
        signed(EC, alg="none"),
        signed(EC, alg="HS256"),
        signed(EC, alg="RS256"),
        signed(RSA, alg="ES256"),
        signed(OTHER),
        signed(EC, kid="rsa"),
        signed(EC, kid="unknown"),
        signed(EC, crit=["x"]),
        signed(EC, alg=["ES256"]),
        signed(EC)[:-4],
        signed(EC).replace(".", "..", 1),
        signed(EC, CLAIMS | {"sub": ""}),
        signed(EC, {"sub": "alice", "iat": NOW_S}),
        signed(EC, {"sub": "alice", "exp": NOW_S + 100}),
        signed(EC, CLAIMS | {"exp": "soon"}),
        signed(EC, CLAIMS | {"exp": NOW_S - 31}),
        signed(EC, CLAIMS | {"nbf": NOW_S + 31}),
    ],
)
def test_other_tokens_are_refused(token: str) -> None:
    """S21."""
    assert tokens().validate(token, NOW_MS) is None


def test_clocks_may_differ_a_little() -> None:
    """S21: `sasl.oauthbearer.clock.skew.seconds`."""
    late = signed(EC, CLAIMS | {"exp": NOW_S - 20})
    assert tokens().validate(late, NOW_MS)
    assert not tokens(**{"clock.skew.seconds": 10}).validate(late, NOW_MS)


@pytest.mark.parametrize(
    ("settings", "is_accepted"),
    [
        ({"expected.issuer": "https://issuer"}, True),
        ({"expected.issuer": "https://other"}, False),
        ({"expected.audience": "other,kafka"}, True),
        ({"expected.audience": "other"}, False),
    ],
)
def test_issuer_and_audience_are_those_that_are_expected(settings: dict[str, str], *, is_accepted: bool) -> None:
    """S21."""
    assert bool(tokens(**settings).validate(signed(), NOW_MS)) == is_accepted
    several = signed(EC, CLAIMS | {"aud": ["kafka", "more"]})
    assert bool(tokens(**settings).validate(several, NOW_MS)) == is_accepted
    bare = signed(EC, {name: value for name, value in CLAIMS.items() if name not in {"aud", "iss"}})
    assert not tokens(**settings).validate(bare, NOW_MS)


def test_another_claim_may_have_the_name() -> None:
    made = tokens(**{"sub.claim.name": "preferred_username"})
    assert made.validate(signed(EC, CLAIMS | {"preferred_username": "al"}), NOW_MS) == ("al", (NOW_S + 100) * 1000)
    assert made.validate(signed(), NOW_MS) is None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b'{"keys": 1}',
        jwks(),
        jwks({"kty": "oct", "k": "AAAA"}),
        jwks({"kty": "RSA"}),
        jwks({"use": "enc"}),
    ],
)
def test_what_is_no_jwks_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedError):
        read_jwks(data)


# --- a broker with an endpoint ----------------------------------------------------------------------------------------


@pytest.fixture
def endpoint() -> Iterator[tuple[str, list[bytes]]]:
    """Answers with the last of a list."""
    answers = [jwks(row(EC, "ec"))]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if answers[-1] else 500)
            self.end_headers()
            self.wfile.write(answers[-1])

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/jwks", answers
    server.shutdown()
    thread.join()
    server.server_close()


def now_claims() -> dict[str, Any]:
    now_s = wall_ms() // 1000
    return CLAIMS | {"iat": now_s - 10, "exp": now_s + 100}


def settings(url: str) -> dict[str, str]:
    return {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.sasl_plaintext.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": url,
        "sasl.oauthbearer.expected.issuer": "https://issuer",
    }


def logs_in(broker: Broker, token: str) -> bool:
    with talk_to(broker.bootstrap_servers) as talk:
        talk.handshake("OAUTHBEARER")
        answer = talk.authenticate(bearer(token))
        return not answer.error and not answer.auth_bytes


def test_a_broker_takes_tokens_of_its_issuer_alone(endpoint: tuple[str, list[bytes]]) -> None:
    """S18 and S21."""
    with Broker(settings=settings(endpoint[0])) as broker:
        assert logs_in(broker, signed(EC, now_claims()))
        assert not logs_in(broker, signed(OTHER, now_claims()))
        assert not logs_in(broker, signed(EC, now_claims() | {"iss": "https://other"}))
        assert not logs_in(broker, unsecured())


@pytest.mark.real_time
def test_keys_that_the_issuer_has_changed_are_fetched(
    endpoint: tuple[str, list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """S21: a token with an unknown key has them fetched; an endpoint that fails changes nothing."""
    monkeypatch.setattr(server_module, "FILES_EVERY_S", 0.05)
    monkeypatch.setattr(jwks_module, "LEAST_PAUSE_MS", 100)
    url, answers = endpoint
    facts: list[Fact] = []
    with Broker(settings=settings(url), on_fact=facts.append) as broker:
        answers.append(jwks(row(OTHER, "other")))
        _until(lambda: logs_in(broker, signed(OTHER, now_claims(), kid="other")))
        assert not logs_in(broker, signed(EC, now_claims()))
        answers.append(b"")
        _until(lambda: not logs_in(broker, signed(EC, now_claims())) and any(isinstance(one, Trouble) for one in facts))
        assert logs_in(broker, signed(OTHER, now_claims(), kid="other"))


def _until(condition: Any) -> None:
    waiting = threading.Event()
    for _ in range(500):
        if condition():
            return
        waiting.wait(0.04)
    raise AssertionError("it does not happen")


@pytest.mark.parametrize("url", ["ftp://localhost/x", "file:///nowhere/at/all", "http://127.0.0.1:1/jwks"])
def test_a_broker_whose_keys_cannot_be_fetched_does_not_start(url: str) -> None:
    with pytest.raises(CoterieError, match=r"jwks|keys of tokens"), Broker(settings=settings(url)):
        pass


def test_keys_may_be_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "jwks.json").write_bytes(jwks(row(RSA, "rsa")))
    with Broker(settings=settings((tmp_path / "jwks.json").as_uri())) as broker:
        assert logs_in(broker, signed(RSA, now_claims()))


def test_to_verify_tokens_without_keys_is_refused() -> None:
    handler = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
    chosen = settings("") | {"sasl.server.callback.handler.class": handler}
    chosen.pop("listener.name.sasl_plaintext.oauthbearer.sasl.oauthbearer.jwks.endpoint.url")
    with pytest.raises(CoterieError, match="has no keys"):
        Broker(settings=chosen)
