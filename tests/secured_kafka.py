"""Apache Kafka 4.3.1 with TLS, SASL and ACLs, and the certificates that tests use.

    with SecuredKafka() as kafka:
        kafka.address_of("SASL_SSL")            # the bootstrap address of a listener
        kafka.certificates.ca                   # the file that clients verify the broker with

Listeners: PLAINTEXT, SSL (client certificates are optional), MTLS (they are required), SASL_PLAINTEXT and SASL_SSL,
each of those two with PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER (unsecured tokens). The users of `USERS` are
in PLAIN and SCRAM. EXPIRED and ELSEWHERE are like SSL with a certificate that no client should accept.

`SecuredCoterie` is Coterie's broker with the same listeners and users. The fixture `cluster` (in `conftest.py`) is both
in turn, with the properties in `SHARED`. There is one Kafka of that kind for all tests of a process, so a test needs
topics and groups of its own.
"""

from __future__ import annotations

import datetime as dt
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Self

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

import coterie
from apache_kafka import ApacheKafka, free_ports, why_not
from coterie.broker.io.clock import wall_ms

__all__ = [
    "AUTHORIZER",
    "BROKERS",
    "LISTENERS",
    "MECHANISMS",
    "REAUTH_MS",
    "SHARED",
    "USERS",
    "Certificates",
    "Cluster",
    "Leaf",
    "SecuredCoterie",
    "SecuredKafka",
    "started",
]

LISTENERS = {"SSL": "SSL", "MTLS": "SSL", "SASL_PLAINTEXT": "SASL_PLAINTEXT", "SASL_SSL": "SASL_SSL"}
"""The security protocol of each listener besides PLAINTEXT."""
BAD_LISTENERS = {"EXPIRED": "SSL", "ELSEWHERE": "SSL"}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
USERS = {"admin": "admin-secret", "alice": "alice-secret", "bob": "bob-secret", "carol": "carol-secret"}

AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin;User:ANONYMOUS",
}
REAUTH_MS = {
    "sasl_plaintext.scram-sha-512": 2_000,
    "sasl_ssl.scram-sha-256": 3_000,
}
"""How long a session lives, by listener and mechanism. By others it has no end."""
SHARED = {
    **AUTHORIZER,
    "super.users": f"{AUTHORIZER['super.users']};User:alice;User:client",
    "ssl.principal.mapping.rules": "RULE:^CN=([^,]*),.*$/$1/,DEFAULT",
    **{f"listener.name.{name}.connections.max.reauth.ms": str(ms) for name, ms in REAUTH_MS.items()},
}
"""Alice, and who has a certificate with the name `client`, may do everything. Bob and carol need ACLs."""

_MODULE = "org.apache.kafka.common.security"
_JAAS = {
    "plain": f'{_MODULE}.plain.PlainLoginModule required username="admin" password="{USERS["admin"]}" '
    + " ".join(f'user_{name}="{password}"' for name, password in USERS.items())
    + ";",
    "scram-sha-256": f"{_MODULE}.scram.ScramLoginModule required;",
    "scram-sha-512": f"{_MODULE}.scram.ScramLoginModule required;",
    "oauthbearer": f'{_MODULE}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="admin";',
}


class Leaf(NamedTuple):
    """A certificate with its key, as PEM files."""

    chain: Path
    key: Path
    both: Path
    """Key and chain in one file, as Java's `ssl.keystore.location` takes it."""


class Certificates:
    """A CA and certificates, as files in a directory. Keys are PKCS#8, which Java needs."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self._authority = trustme.CA(organization_name="Coterie")
        self.ca = directory / "ca.pem"
        self._authority.cert_pem.write_to_path(self.ca)

    def leaf(self, file: str, *hosts: str, common_name: str | None = None, has_expired: bool = False) -> Leaf:
        """Issue a certificate for some host names or addresses."""
        ends = dt.datetime.now(dt.UTC) - dt.timedelta(days=1) if has_expired else None  # noqa: TID251
        issued = self._authority.issue_cert(*hosts, common_name=common_name, not_after=ends)
        key = load_pem_private_key(issued.private_key_pem.bytes(), None)
        key_pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        chain_pem = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
        leaf = Leaf(*(self._directory / f"{file}.{kind}" for kind in ("crt", "key", "pem")))
        leaf.chain.write_bytes(chain_pem)
        leaf.key.write_bytes(key_pem)
        leaf.both.write_bytes(key_pem + chain_pem)
        return leaf


def security_properties(certificates: Certificates) -> dict[str, str]:
    """Return the properties of the listeners, without their addresses."""
    server = certificates.leaf("server", "127.0.0.1", "localhost", common_name="localhost")
    expired = certificates.leaf("expired", "127.0.0.1", "localhost", has_expired=True)
    elsewhere = certificates.leaf("elsewhere", "elsewhere.example")
    protocols = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", **LISTENERS, **BAD_LISTENERS}
    return {
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(server.both),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.ca),
        "listener.name.expired.ssl.keystore.location": str(expired.both),
        "listener.name.elsewhere.ssl.keystore.location": str(elsewhere.both),
        "listener.name.ssl.ssl.client.auth": "requested",
        "listener.name.mtls.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        **{
            f"listener.name.{listener}.{mechanism}.sasl.jaas.config": jaas
            for listener in ("sasl_plaintext", "sasl_ssl")
            for mechanism, jaas in _JAAS.items()
        },
    }


class SecuredKafka(ApacheKafka):
    """One node with a listener of each kind."""

    def __init__(self, properties: Mapping[str, str] | None = None, *, flags: Sequence[str] | None = None) -> None:
        super().__init__(properties, flags=flags)
        self._given = dict(properties or {})
        names = [*LISTENERS, *BAD_LISTENERS]
        self._ports = dict(zip(names, free_ports(len(names)), strict=True))
        self.certificates: Certificates

    def address_of(self, listener: str) -> str:
        return f"127.0.0.1:{self._listeners()[listener]}"

    def time_s(self) -> float:
        """Return the time of the broker's wall clock."""
        return time.time()  # noqa: TID251

    def _listeners(self) -> Mapping[str, int]:
        return {"PLAINTEXT": self.port, **self._ports}

    def _format_options(self) -> Sequence[str]:
        return [
            option
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
            for name, password in USERS.items()
            for option in ("--add-scram", f"{mechanism}=[name={name},password={password}]")
        ]

    def _write_properties(self) -> None:
        self.certificates = Certificates(self.home / "tls")
        self.properties |= security_properties(self.certificates)
        self.properties |= self._given
        super()._write_properties()


class SecuredCoterie:
    """A broker of ours with the listeners of `SecuredKafka`."""

    def __init__(self, properties: Mapping[str, str] | None = None) -> None:
        self._given = dict(properties or {})
        self._home = tempfile.TemporaryDirectory(prefix="secured-coterie-")
        self.certificates = Certificates(Path(self._home.name))
        listeners = ["PLAINTEXT", *LISTENERS, *BAD_LISTENERS]
        settings = {
            "listeners": ",".join(f"{name}://127.0.0.1:0" for name in listeners),
            "group.initial.rebalance.delay.ms": "0",
            **security_properties(self.certificates),
            **self._given,
        }
        self.broker = coterie.Broker(settings=settings, users=USERS)

    def __enter__(self) -> Self:
        self.broker.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.broker.stop()
        self._home.cleanup()

    def address_of(self, listener: str) -> str:
        return self.broker.bootstrap_servers_of(listener)

    def time_s(self) -> float:
        """Return the time of the broker's wall clock, which COTERIE_TEST_CLOCK may have set."""
        return wall_ms() / 1000


Cluster = SecuredKafka | SecuredCoterie
BROKERS = ("coterie", "apache kafka")


@contextmanager
def started(broker: str, properties: Mapping[str, str]) -> Iterator[Cluster]:
    """Start one of `BROKERS`; the test is skipped if the machine cannot run it."""
    if broker == "apache kafka" and (reason := why_not()) is not None:
        pytest.skip(reason)
    kind = SecuredCoterie if broker == "coterie" else SecuredKafka
    with kind(properties) as running:
        yield running
