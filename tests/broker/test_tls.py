"""TLS of a listener: certificates of both sides, principals, files that change, and clients that mean no good."""

from __future__ import annotations

import gc
import re
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from broker.sasl_dialogues import Talk, plain, talk_to
from coterie import Broker
from coterie.broker.broker_facts import AuthenticationFailed, ConnectionDropped, FilesReloaded, Trouble
from coterie.broker.io import server as server_module
from coterie.broker.io.tls import server_context
from coterie.errors import CoterieError
from coterie.facts import Fact
from coterie.protocol.apis import describe_cluster, find_coordinator, metadata
from coterie.settings.broker_settings import BrokerSettings
from coterie.settings.config_def import SettingsError
from secured_kafka import Certificates, Leaf

USERS = {"alice": "alice-secret", "bob": "bob-secret"}
WITHIN_S = 20


class Files:
    """A CA with the certificates of a broker and a client, and another CA."""

    def __init__(self, path: Path) -> None:
        self.certificates = Certificates(path / "ours")
        self.ca = self.certificates.ca
        self.server = self.certificates.leaf("server", "127.0.0.1", "localhost", common_name="first")
        self.client = self.certificates.leaf("client", common_name="tlsuser")
        self.foreign = Certificates(path / "theirs").leaf("client", common_name="tlsuser")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("tls"))


def settings(files: Files, **more: Any) -> dict[str, Any]:
    return {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.location": str(files.server.both),
        "ssl.truststore.location": str(files.ca),
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def wrapped(
    files: Files, leaf: Leaf | None = None, version: ssl.TLSVersion | None = None, name: str = "localhost"
) -> Callable[[socket.socket], socket.socket]:
    context = ssl.create_default_context(cafile=str(files.ca))
    context.check_hostname = name == "localhost"
    if version is not None:
        context.minimum_version = context.maximum_version = version
    if leaf is not None:
        context.load_cert_chain(leaf.chain, leaf.key)
    return lambda plain: context.wrap_socket(plain, server_hostname=name)


def principals(broker: Broker) -> list[str]:
    assert broker._server is not None
    return sorted(link.connection.principal for link in broker._server.links)


def until(condition: Callable[[], bool]) -> None:
    waiting = threading.Event()
    for _ in range(WITHIN_S * 50):
        if condition():
            return
        waiting.wait(0.02)
    raise AssertionError("it does not happen")


@contextmanager
def connected(broker: Broker, count: int) -> Iterator[list[socket.socket]]:
    """Sockets that say nothing."""
    host, _, port = broker.bootstrap_servers.rpartition(":")
    with ExitStack() as stack:
        yield [stack.enter_context(socket.create_connection((host, int(port)))) for _ in range(count)]


def is_closed(client: socket.socket) -> bool:
    client.setblocking(False)
    try:
        return client.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


# --- versions and certificates ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_both_versions_of_tls_are_served_by_any_name(files: Files, version: ssl.TLSVersion) -> None:
    """S24."""
    with Broker(settings=settings(files)) as broker:
        for name in ("localhost", "another.example"):
            with talk_to(broker.bootstrap_servers, wrap=wrapped(files, version=version, name=name)) as talk:
                talk.works()
                assert talk.heard == [["Metadata", 1]]
        assert broker.client_settings()["security.protocol"] == "SSL"


def test_one_version_alone_can_be_enabled(files: Files) -> None:
    """S24."""
    with Broker(settings=settings(files, ssl_enabled_protocols="TLSv1.3")) as broker:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            Talk(broker.bootstrap_servers, wrapped(files, version=ssl.TLSVersion.TLSv1_2))
        with talk_to(broker.bootstrap_servers, wrap=wrapped(files)) as talk:
            talk.works()


def refused(broker: Broker, wrap: Callable[[socket.socket], socket.socket]) -> ssl.SSLError:
    """With TLS 1.3 the handshake of the client has succeeded by then (S25)."""
    with pytest.raises(ssl.SSLError) as error, talk_to(broker.bootstrap_servers, wrap=wrap) as talk:
        talk.works()
    return error.value


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_certificate_of_the_client_is_required(files: Files, version: ssl.TLSVersion) -> None:
    """S24, S25, S35: who has none, or one of another CA, gets an alert."""
    facts: list[Fact] = []
    chosen = settings(files, ssl_client_auth="required")
    with Broker(settings=chosen, on_fact=facts.append) as broker:
        assert "ALERT" in str(refused(broker, wrapped(files, version=version)).reason)
        assert "ALERT" in str(refused(broker, wrapped(files, files.foreign, version)).reason)
        with talk_to(broker.bootstrap_servers, wrap=wrapped(files, files.client, version)) as talk:
            talk.works()
            (principal,) = principals(broker)
            assert re.fullmatch(r"User:CN=tlsuser,OU=Testing cert .*,O=trustme v[0-9.]+", principal)
    whys = [fact.why for fact in facts if isinstance(fact, ConnectionDropped)]
    assert any("peer did not return a certificate" in why for why in whys)
    assert any("certificate is not accepted" in why for why in whys)


def test_a_certificate_may_be_left_out_if_it_is_only_requested(files: Files) -> None:
    """S24: one that does not verify is refused all the same."""
    with Broker(settings=settings(files, ssl_client_auth="requested")) as broker:
        refused(broker, wrapped(files, files.foreign))
        with talk_to(broker.bootstrap_servers, wrap=wrapped(files)) as talk:
            talk.works()
            assert principals(broker) == ["User:ANONYMOUS"]


def test_rules_map_the_name_of_a_certificate(files: Files) -> None:
    """S36: if none matches, the connection fails."""
    chosen = settings(files, ssl_client_auth="required", ssl_principal_mapping_rules="RULE:^CN=(.*?),.*$/$1/U")
    wrap = wrapped(files, files.client)
    with Broker(settings=chosen) as broker, talk_to(broker.bootstrap_servers, wrap=wrap) as talk:
        talk.works()
        assert principals(broker) == ["User:TLSUSER"]
    chosen["ssl.principal.mapping.rules"] = "RULE:^CN=other$/other/"
    with Broker(settings=chosen) as broker, talk_to(broker.bootstrap_servers, wrap=wrap) as talk:
        talk.works()
        assert talk.heard == ["closed"]


def test_rules_that_cannot_be_read_stop_the_start(files: Files) -> None:
    """S36."""
    with (
        pytest.raises(SettingsError, match="is not a rule"),
        Broker(settings=settings(files, ssl_principal_mapping_rules="x")),
    ):
        pass


def test_with_sasl_the_user_is_who_logged_in_and_not_the_certificate(files: Files) -> None:
    """S24 and S35."""
    chosen = settings(files) | {
        "listeners": "SASL_SSL://127.0.0.1:0",
        "listener.name.sasl_ssl.ssl.client.auth": "required",
    }
    with Broker(settings=chosen, users=USERS) as broker:
        refused(broker, wrapped(files))
        with talk_to(broker.bootstrap_servers, wrap=wrapped(files, files.client)) as talk:
            talk.handshake("PLAIN")
            assert principals(broker) == ["User:ANONYMOUS"]
            talk.authenticate(plain("alice", "alice-secret"))
            talk.works()
            assert principals(broker) == ["User:alice"]


# --- several listeners ------------------------------------------------------------------------------------------------


def test_answers_name_the_endpoints_of_the_listener_they_were_asked_on(files: Files) -> None:
    """S1."""
    chosen = settings(files) | {
        "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0,LOGIN://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,LOGIN:SASL_PLAINTEXT",
        "advertised.listeners": "LOGIN://login.example:7000",
    }
    with Broker(settings=chosen, users=USERS, nodes=2) as broker:
        for listener in ("PLAINTEXT", "SSL", "LOGIN"):
            own = broker.bootstrap_servers_of(listener).split(",")
            expected = ["login.example:7000", "login.example:7001"] if listener == "LOGIN" else own
            wrap = {"wrap": wrapped(files)} if listener == "SSL" else {}
            with talk_to(own[0], **wrap) as talk:
                if listener == "LOGIN":
                    talk.handshake("PLAIN")
                    talk.authenticate(plain("alice", "alice-secret"))
                found = talk.ask(metadata, 12, metadata.Request(topics=[])).brokers
                assert [f"{one.host}:{one.port}" for one in found] == expected
                found = talk.ask(describe_cluster, 1, describe_cluster.Request()).brokers
                assert [f"{one.host}:{one.port}" for one in found] == expected
                (found,) = talk.ask(find_coordinator, 4, find_coordinator.Request(key_type=0, keys=["g"])).coordinators
                assert f"{found.host}:{found.port}" in expected
        assert broker.bootstrap_servers == broker.bootstrap_servers_of("PLAINTEXT")
        broker.stop_node(2)
        broker.start_node(2)
        with pytest.raises(CoterieError, match="no listener 'OTHER'"):
            broker.bootstrap_servers_of("OTHER")


# --- key stores -------------------------------------------------------------------------------------------------------


def test_keys_and_certificates_may_be_text(files: Files) -> None:
    """S29."""
    chosen = settings(files, ssl_client_auth="required")
    del chosen["ssl.keystore.location"], chosen["ssl.truststore.location"]
    chosen |= {
        "ssl.keystore.key": files.server.key.read_text(),
        "ssl.keystore.certificate.chain": files.server.chain.read_text(),
        "ssl.truststore.certificates": files.ca.read_text(),
    }
    with (
        Broker(settings=chosen) as broker,
        talk_to(broker.bootstrap_servers, wrap=wrapped(files, files.client)) as talk,
    ):
        talk.works()
        assert talk.heard == [["Metadata", 1]]


def test_a_key_store_may_be_pkcs12_and_a_key_may_be_encrypted(files: Files, tmp_path: Path) -> None:
    """S29."""
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.serialization import pkcs12

    key: Any = form.load_pem_private_key(files.server.key.read_bytes(), None)
    chain = x509.load_pem_x509_certificates(files.server.chain.read_bytes())
    secret = form.BestAvailableEncryption(b"store-secret")
    (tmp_path / "server.p12").write_bytes(pkcs12.serialize_key_and_certificates(b"x", key, chain[0], chain[1:], secret))
    encrypted = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, secret)
    (tmp_path / "server.pem").write_bytes(encrypted + files.server.chain.read_bytes())
    for name, password in (("server.p12", "ssl.keystore.password"), ("server.pem", "ssl.key.password")):
        chosen = settings(files) | {"ssl.keystore.location": str(tmp_path / name), password: "store-secret"}
        server_context(BrokerSettings.of(chosen))
        for wrong in ({password: "wrong-secret"}, {password: ""}):
            with pytest.raises(CoterieError, match=name) as error:
                server_context(BrokerSettings.of(chosen | wrong))
            assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "No such file"),
        (b"", "neither PEM"),
        (b"\xfe\xed\xfe\xed123", "keytool"),
        (b"-----BEGIN X", "cannot be used"),
    ],
)
def test_a_key_store_that_cannot_be_used_is_named(
    files: Files, tmp_path: Path, content: bytes | None, says: str
) -> None:
    path = tmp_path / "store"
    if content is not None:
        path.write_bytes(content)
    with (
        pytest.raises(CoterieError, match=says) as error,
        Broker(settings=settings(files) | {"ssl.keystore.location": str(path)}),
    ):
        pass
    assert str(path) in str(error.value)


# --- files that change ------------------------------------------------------------------------------------------------


def common_name(broker: Broker, files: Files) -> str:
    with talk_to(broker.bootstrap_servers, wrap=wrapped(files)) as talk:
        talk.works()
        assert isinstance(talk._socket, ssl.SSLSocket)
        found = dict(part[0] for part in talk._socket.getpeercert()["subject"])  # type: ignore[index, misc]
        return str(found["commonName"])


def test_a_certificate_is_read_again_when_its_file_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """New connections get it, and old ones go on. One that cannot be used changes nothing."""
    monkeypatch.setattr(server_module, "FILES_EVERY_S", 0.05)
    files = Files(tmp_path)
    facts: list[Fact] = []
    with Broker(settings=settings(files), on_fact=facts.append) as broker:
        with talk_to(broker.bootstrap_servers, wrap=wrapped(files)) as old:
            assert common_name(broker, files) == "first"
            files.certificates.leaf("server", "localhost", common_name="second")
            until(lambda: common_name(broker, files) == "second")
            old.works()
            assert old.heard == [["Metadata", 1]]
        files.server.both.write_text("-----BEGIN NOTHING")
        until(lambda: any(isinstance(fact, Trouble) for fact in facts))
        assert common_name(broker, files) == "second"
    assert any(isinstance(fact, FilesReloaded) for fact in facts)


def replace_file(path: Path, content: str) -> None:
    """Write a file in one step: it is read again at any time, also while it is empty."""
    new = path.with_suffix(".new")
    new.write_text(content)
    new.replace(path)


def test_users_are_read_again_when_their_file_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "FILES_EVERY_S", 0.05)
    path = tmp_path / "users.properties"
    path.write_text("carol=first\n")
    chosen = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "coterie.users.file": str(path),
    }

    def can_log_in(password: str) -> bool:
        with talk_to(broker.bootstrap_servers) as talk:
            answer = talk.scram("carol", password, "SCRAM-SHA-256")
            return answer is not None and not answer.error

    facts: list[Fact] = []
    with Broker(settings=chosen, on_fact=facts.append) as broker:
        assert can_log_in("first") and not can_log_in("second")
        replace_file(path, "carol=second\n")
        until(lambda: can_log_in("second"))
        assert not can_log_in("first")
        replace_file(path, "carol\n")
        until(lambda: any(isinstance(fact, Trouble) for fact in facts))
        assert can_log_in("second")
    assert "first" not in repr(facts) and "second" not in repr(facts)


# --- clients that mean no good ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "first",
    [
        struct.pack(">ihhih", 10, 18, 0, 1, -1),
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\xff\xff" + bytes(70_000),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc" + b"\xff" * 520,
        b"\x80\x2e\x01\x00\x02" + bytes(60),
        bytes(100_000),
    ],
    ids=["plaintext", "http", "long record", "junk hello", "ssl2", "zeros"],
)
def test_what_is_not_tls_is_closed_and_others_are_served(files: Files, first: bytes) -> None:
    """S26."""
    facts: list[Fact] = []
    with Broker(settings=settings(files), on_fact=facts.append) as broker, connected(broker, 1) as (bad,):
        bad.settimeout(WITHIN_S)
        try:
            bad.sendall(first)
            while bad.recv(1000):  # an alert
                pass
        except ConnectionError:
            pass
        with talk_to(broker.bootstrap_servers, wrap=wrapped(files)) as talk:
            talk.works()
            assert talk.heard == [["Metadata", 1]]
    (dropped,) = [fact for fact in facts if isinstance(fact, ConnectionDropped)]
    assert dropped.why.startswith("TLS on listener SSL failed")


def test_a_tls_client_at_a_listener_without_tls_is_closed(files: Files) -> None:
    """S26."""
    with Broker() as broker, pytest.raises((ssl.SSLError, ConnectionError)):
        Talk(broker.bootstrap_servers, wrapped(files))


@pytest.mark.parametrize("protocol", ["SSL", "SASL_PLAINTEXT"])
def test_who_takes_too_long_to_authenticate_is_closed(files: Files, protocol: str) -> None:
    chosen = settings(files, coterie_authentication_timeout_ms=300) | {"listeners": f"{protocol}://127.0.0.1:0"}
    with Broker(settings=chosen, users=USERS) as broker, connected(broker, 3) as silent:
        silent[0].sendall(b"\x16\x03\x01\x02\x00"[: 3 if protocol == "SSL" else 0])
        wrap = {"wrap": wrapped(files)} if protocol == "SSL" else {}
        with talk_to(broker.bootstrap_servers, **wrap) as talk:
            if protocol != "SSL":
                talk.handshake("PLAIN")
                talk.authenticate(plain("alice", "alice-secret"))
            until(lambda: all(map(is_closed, silent)))
            talk.works()  # who has authenticated may be silent
            assert talk.heard[-1] == ["Metadata", 1]


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL", "SASL_PLAINTEXT"])
def test_many_who_do_not_authenticate_make_room_for_those_who_do(files: Files, protocol: str) -> None:
    """The oldest of them is closed for each that is too many."""
    chosen = settings(files, coterie_max_unauthenticated_connections=10) | {"listeners": f"{protocol}://127.0.0.1:0"}
    with Broker(settings=chosen, users=USERS) as broker, connected(broker, 40) as silent:
        until(lambda: sum(map(is_closed, silent)) == 30)
        wrap = {"wrap": wrapped(files)} if protocol.endswith("SSL") else {}
        with talk_to(broker.bootstrap_servers, **wrap) as talk:
            if protocol.startswith("SASL"):
                talk.handshake("PLAIN")
                talk.authenticate(plain("alice", "alice-secret"))
            talk.works()
            assert talk.heard[-1] == ["Metadata", 1]
            assert broker._server is not None
            assert len(broker._server.links) <= 11


def test_many_wrong_passwords_do_not_keep_others_out() -> None:
    """And they leave nothing behind."""
    facts: list[Fact] = []
    with Broker(users=USERS, on_fact=facts.append) as broker:
        stop = threading.Event()
        tried: list[Any] = []

        def guess() -> None:
            while not stop.is_set():
                with talk_to(broker.bootstrap_servers) as talk:
                    talk.handshake("PLAIN")
                    talk.authenticate(plain("alice", f"guess-{len(tried)}"))
                    tried.append(talk.heard[-1])

        guessing = [threading.Thread(target=guess) for _ in range(8)]
        for each in guessing:
            each.start()
        until(lambda: len(tried) >= 50)
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            with talk_to(broker.bootstrap_servers) as talk:
                talk.scram(mechanism=mechanism)
                talk.works()
                assert talk.heard[-1] == ["Metadata", 1]
        stop.set()
        for each in guessing:
            each.join()
        assert all(row[1] == 58 for row in tried)
        server = broker._server
        assert server is not None
        until(lambda: not server.links)
        assert not server.limits._unauthenticated
        until(lambda: not len(server.cluster.timers) or not _waiting_failures())
    assert any(isinstance(fact, AuthenticationFailed) for fact in facts)
    assert "guess-" not in repr(facts)


def _waiting_failures() -> list[object]:
    from coterie.broker.security.sasl_server_authenticator import FailureDue

    return [one for one in gc.get_objects() if type(one) is FailureDue]  # isinstance would ask dead proxies


def test_large_answers_and_requests_go_through_tls_whole(files: Files) -> None:
    with Broker(settings=settings(files)) as broker:
        names = [metadata.Topic(name=f"absent-{number:060}") for number in range(20_000)]
        large = metadata.Request(topics=names, allow_auto_topic_creation=False)
        with talk_to(broker.bootstrap_servers, wrap=wrapped(files)) as talk:
            answer = talk.ask(metadata, 12, large)
            assert [topic.name for topic in answer.topics] == [topic.name for topic in names]
