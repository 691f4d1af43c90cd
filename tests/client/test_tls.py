"""The TLS context of a client: where certificates and keys come from, and what is said of those that cannot be used.

Handshakes take place in memory. `test_secured_clusters.py` has them with brokers.
"""

from __future__ import annotations

import builtins
import re
import ssl
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)

from client.peers import HANG_UP, Peer, Run
from coterie.client.network.connection import BrokerConnection
from coterie.client.network.network_client import NetworkClient
from coterie.client.network.tls import client_context
from coterie.errors import SslAuthenticationError
from coterie.settings.client_settings import ClientSettings
from coterie.settings.config_def import SettingsError

SECRET = "of-the-key-store"


class Files(NamedTuple):
    """What a client may have, each kind as a file."""

    ca: Path
    chain: Path
    key: Path
    encrypted_key: Path
    store: Path
    trust: Path
    server: ssl.SSLContext


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    home = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    client, broker = authority.issue_cert("client.example"), authority.issue_cert("broker.example")
    found = Files(
        ca=home / "ca.pem",
        chain=home / "client.crt",
        key=home / "client.key",
        encrypted_key=home / "encrypted.key",
        store=home / "client.p12",
        trust=home / "trust.p12",
        server=ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER),
    )
    authority.cert_pem.write_to_path(found.ca)
    client.cert_chain_pems[0].write_to_path(found.chain)
    key: Any = load_pem_private_key(client.private_key_pem.bytes(), None)
    form, encryption = PrivateFormat.PKCS8, BestAvailableEncryption(SECRET.encode())
    found.key.write_bytes(key.private_bytes(Encoding.PEM, form, NoEncryption()))
    found.encrypted_key.write_bytes(key.private_bytes(Encoding.PEM, form, encryption))
    certificate = x509.load_pem_x509_certificate(client.cert_chain_pems[0].bytes())
    found.store.write_bytes(pkcs12.serialize_key_and_certificates(b"me", key, certificate, None, encryption))
    root = pkcs12.PKCS12Certificate(x509.load_pem_x509_certificate(authority.cert_pem.bytes()), b"ca")
    found.trust.write_bytes(pkcs12.serialize_java_truststore([root], encryption))
    broker.configure_cert(found.server)
    authority.configure_trust(found.server)
    found.server.verify_mode = ssl.CERT_REQUIRED
    return found


def context_of(settings: Mapping[str, object]) -> ssl.SSLContext:
    return client_context(ClientSettings.of({"security.protocol": "SSL", **settings}))


def shake_hands(context: ssl.SSLContext, server: ssl.SSLContext, host: str = "broker.example") -> bytes | None:
    """Return the client's certificate as the server sees it; an error is that of the side that refuses."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = context.wrap_bio(down, up, server_hostname=host)
    theirs = server.wrap_bio(up, down, server_side=True)
    waiting = [ours, theirs]
    while waiting:
        for side in list(waiting):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            waiting.remove(side)
    return theirs.getpeercert(binary_form=True)


@pytest.mark.parametrize(
    "names",
    [
        {"ssl.ca.location": "ca", "ssl.certificate.location": "chain", "ssl.key.location": "key"},
        {"ssl_cafile": "ca", "ssl_certfile": "chain", "ssl_keyfile": "encrypted_key", "ssl_password": SECRET},
        {"ssl.truststore.location": "ca", "ssl.truststore.type": "PEM", "ssl.keystore.location": "chain + key"},
        {
            "ssl.truststore.location": "trust",
            "ssl.truststore.password": SECRET,
            "ssl.keystore.location": "store",
            "ssl.keystore.password": SECRET,
        },
        {"ssl.ca.location": "ca", "ssl.keystore.location": "store", "ssl.key.password": SECRET},
        {"ssl.ca.pem": "text of ca", "ssl.certificate.pem": "text of chain", "ssl.key.pem": "text of key"},
        {
            "ssl.truststore.certificates": "text of ca",
            "ssl.keystore.certificate.chain": "text of chain",
            "ssl.keystore.key": "text of encrypted_key",
            "ssl.key.password": SECRET,
        },
    ],
    ids=["librdkafka", "kafka-python", "java pem", "java pkcs12", "librdkafka pkcs12", "librdkafka text", "java text"],
)
def test_certificates_and_keys_come_from_files_text_and_stores(
    files: Files, names: dict[str, str], tmp_path: Path
) -> None:
    """S29 and S30."""
    both = tmp_path / "both.pem"
    both.write_bytes(files.key.read_bytes() + files.chain.read_bytes())
    paths = {name: str(path) for name, path in files._asdict().items() if isinstance(path, Path)}
    texts = {f"text of {name}": Path(path).read_text() for name, path in paths.items() if "p12" not in path}
    known = {**paths, **texts, "chain + key": str(both)}
    context = context_of({name: known.get(value, value) for name, value in names.items()})
    assert shake_hands(context, files.server) == ssl.PEM_cert_to_DER_cert(files.chain.read_text())


def test_a_directory_of_cas_is_taken_as_openssl_names_its_files(files: Files, tmp_path: Path) -> None:
    named = subprocess.run(
        ["openssl", "x509", "-hash", "-noout", "-in", files.ca], capture_output=True, text=True, check=True
    )
    (tmp_path / f"{named.stdout.strip()}.0").write_bytes(files.ca.read_bytes())
    context = context_of({"ssl.ca.location": tmp_path, **own(files)})
    assert shake_hands(context, files.server)


def own(files: Files) -> dict[str, object]:
    return {"ssl.certificate.location": files.chain, "ssl.key.location": files.key}


def test_without_a_ca_the_systems_are_used(files: Files) -> None:
    """S28."""
    assert context_of({}).cert_store_stats() == ssl.create_default_context().cert_store_stats()
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(context_of(own(files)), files.server)


def test_the_host_name_is_checked_unless_that_is_turned_off(files: Files) -> None:
    """S27."""
    trusting = {"ssl.ca.location": files.ca, **own(files)}
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shake_hands(context_of(trusting), files.server, "elsewhere.example")
    careless = context_of({**trusting, "ssl.endpoint.identification.algorithm": ""})
    assert shake_hands(careless, files.server, "elsewhere.example")
    blind = context_of({"enable.ssl.certificate.verification": False, **own(files)})
    assert shake_hands(blind, files.server, "elsewhere.example")


def test_versions_of_tls_and_cipher_suites_are_chosen(files: Files) -> None:
    """S24: TLS 1.2 and 1.3, unless told otherwise."""
    assert context_of({}).minimum_version is ssl.TLSVersion.TLSv1_2
    assert context_of({"ssl.enabled.protocols": "TLSv1.3"}).minimum_version is ssl.TLSVersion.TLSv1_3
    old = context_of({"ssl.enabled.protocols": "TLSv1.2", "ssl.cipher.suites": "ECDHE-ECDSA-AES256-GCM-SHA384"})
    assert old.maximum_version is ssl.TLSVersion.TLSv1_2
    assert "ECDHE-ECDSA-AES256-GCM-SHA384" in {each["name"] for each in old.get_ciphers()}


def test_a_context_of_the_user_is_taken_as_it_is() -> None:
    given = ssl.create_default_context()
    assert context_of({"ssl_context": given}) is given


def test_without_tls_there_is_no_context() -> None:
    assert NetworkClient(ClientSettings.of({"bootstrap.servers": "localhost:9092"}))._context is None


@pytest.mark.parametrize(
    ("names", "says"),
    [
        ({"ssl.ca.location": "/nowhere/ca.pem"}, "ssl.ca.location = '/nowhere/ca.pem' cannot be read: No such file"),
        ({"ssl.ca.location": "key"}, "ssl.ca.location has no certificate that can be read"),
        ({"ssl.ca.pem": "junk"}, "ssl.truststore.certificates has no certificate that can be read"),
        ({"ssl.truststore.location": "jks"}, "ssl.truststore.location is a JKS file, which cannot be read: convert it"),
        ({"ssl.keystore.location": "jks"}, "keytool -importkeystore"),
        ({"ssl.truststore.location": "trust", "ssl.truststore.password": "x"}, "is ssl.truststore.password right?"),
        ({"ssl.keystore.location": "store"}, "is ssl.keystore.password right?"),
        ({"ssl.keystore.location": "trust", "ssl.keystore.password": SECRET}, "must have a private key"),
        ({"ssl.certificate.location": "chain"}, "ssl.certificate.location must have a private key and its certificate"),
        (
            {"ssl.certificate.location": "chain", "ssl.key.location": "encrypted_key"},
            "ssl.key.location and ssl.certificate.location: the key is encrypted, so that it needs ssl.key.password",
        ),
        (
            {"ssl.certificate.location": "chain", "ssl.key.location": "encrypted_key", "ssl.key.password": "x"},
            "the key cannot be decrypted; is ssl.key.password right?",
        ),
        ({"ssl.certificate.location": "chain", "ssl.key.location": "other_key"}, "does not belong to the certificate"),
        ({"ssl.cipher.suites": "TLS_NO_SUCH"}, "ssl.cipher.suites has no suite that OpenSSL knows"),
    ],
)
def test_what_cannot_be_used_is_said_with_the_setting_and_without_secrets(
    files: Files, names: dict[str, str], says: str, tmp_path: Path
) -> None:
    """S29 and S57."""
    jks, other_key = tmp_path / "store.jks", tmp_path / "other.key"
    jks.write_bytes(b"\xfe\xed\xfe\xed" + bytes(20))
    trustme.CA().issue_cert("x.example").private_key_pem.write_to_path(other_key)
    known = {name: str(path) for name, path in files._asdict().items()} | {"jks": str(jks), "other_key": str(other_key)}
    with pytest.raises(SettingsError, match=re.escape(says)) as refused:
        context_of({name: known.get(value, value) for name, value in names.items()})
    assert len(str(refused.value).splitlines()) == 1
    assert SECRET not in str(refused.value) and "PRIVATE KEY---" not in str(refused.value)


def test_a_missing_library_is_named_with_the_extra(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    """PEM needs the standard library alone."""
    real_import = builtins.__import__

    def without_cryptography(name: str, *more: Any, **how: Any) -> Any:
        if name.startswith("cryptography"):
            raise ImportError(name)
        return real_import(name, *more, **how)

    monkeypatch.setattr(builtins, "__import__", without_cryptography)
    with pytest.raises(SettingsError, match=r"ssl.keystore.location is a PKCS12 file, .*cryptography.*\[tls\]"):
        context_of({"ssl.ca.location": files.ca, "ssl.keystore.location": files.store})
    assert shake_hands(context_of({"ssl.ca.location": files.ca, **own(files)}), files.server)


@pytest.mark.real_time
def test_an_alert_of_tls_where_an_answer_was_due_is_recognised(run: Run) -> None:
    """S26: these are the bytes that Kafka sends; as a frame they would have 352 518 912 bytes."""

    async def story() -> None:
        async with Peer(lambda _: [bytes.fromhex("15030300020250"), HANG_UP], handshakes=False) as peer:
            for given in ({}, {"coterie.max.response.bytes": 2**31 - 1}):
                with pytest.raises(
                    SslAuthenticationError, match=r"security\.protocol is PLAINTEXT: set it to SSL"
                ) as raised:
                    await BrokerConnection.open("127.0.0.1", peer.port, peer.settings(**given))
                assert not raised.value.retriable

    run(story())
