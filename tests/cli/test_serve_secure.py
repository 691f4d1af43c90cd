"""`coterie serve --secure DIR`: certificates and a user are made once, and the printed settings work."""

from __future__ import annotations

import json
import signal
import stat
import subprocess
from pathlib import Path

import confluent_kafka
import pytest

from broker.peer import Serving

pytestmark = pytest.mark.real_time


def password_of(directory: Path) -> str:
    name, _, password = (directory / "users.properties").read_text().strip().partition("=")
    assert name == "coterie"
    return password


def produces(directory: Path) -> bool:
    settings = json.loads((directory / "python.json").read_text())
    producer = confluent_kafka.Producer(settings)
    producer.produce("t", b"hello")
    return producer.flush(30) == 0


def test_clients_get_in_with_the_settings_in_the_directory(tmp_path: Path) -> None:
    directory, log = tmp_path / "secure", tmp_path / "log"
    with Serving(None, "--secure", str(directory), log=log) as broker:
        address = broker.ready()
        assert produces(directory)
        broker.signal(signal.SIGHUP)
        assert produces(directory), "the files were read again"
        broker.signal()
        broker.process.wait(30)
        assert broker.process.returncode == 0
    password = password_of(directory)
    said = log.read_text()
    assert "clients must use SASL_SSL" in said and password not in said
    assert len(password) >= 32
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()} == {0o600}
    java = (directory / "java.properties").read_text()
    assert f"bootstrap.servers={address}" in java and "security.protocol=SASL_SSL" in java
    for file in ("java.properties", "librdkafka.properties", "python.json"):
        assert file in said

    authority, first = (directory / "ca.pem").read_bytes(), (directory / "server.pem").read_bytes()
    with Serving(None, "--secure", str(directory), log=log) as broker:
        broker.ready()
        assert produces(directory)
    assert (directory / "ca.pem").read_bytes() == authority
    assert (directory / "server.pem").read_bytes() != first
    assert password_of(directory) == password


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--set", "listeners=PLAINTEXT://127.0.0.1:0"], "--secure and the setting listeners contradict each other"),
        (["--advertise", "nonsense"], "is not an address"),
    ],
)
def test_what_contradicts_it_is_refused(tmp_path: Path, options: list[str], says: str) -> None:
    with Serving(None, "--secure", str(tmp_path / "secure"), *options) as broker:
        status, said = broker.ended()
    assert status == 1 and says in said


def test_a_file_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with Serving(None, "--secure", str(tmp_path / "file")) as broker:
        status, said = broker.ended()
    assert status == 1 and "--secure" in said and "Traceback" not in said


def test_unsecured_tokens_are_warned_of(tmp_path: Path) -> None:
    """S20."""
    log = tmp_path / "log"
    sets = ("--set=listeners=SASL_PLAINTEXT://127.0.0.1:0", "--set=sasl.enabled.mechanisms=OAUTHBEARER")
    with Serving(None, *sets, log=log) as broker:
        broker.ready()
    assert "accepts unsecured OAUTHBEARER tokens, which everybody can make" in log.read_text()


def test_our_own_commands_take_the_settings_in_the_directory(tmp_path: Path) -> None:
    directory = tmp_path / "secure"
    with Serving(None, "--secure", str(directory), log=tmp_path / "log") as broker:
        broker.ready()
        command = [broker.command[0], "topics", "create", "orders", "--config"]
        for number, file in enumerate(("librdkafka.properties", "java.properties")):
            command[3] = f"orders-{number}"
            done = subprocess.run([*command, str(directory / file)], capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr


def test_several_listeners_are_named_and_one_address_for_all_is_refused(tmp_path: Path) -> None:
    listeners = "--set=listeners=PLAINTEXT://127.0.0.1:0,OTHER://127.0.0.1:0"
    protocols = "--set=listener.security.protocol.map=PLAINTEXT:PLAINTEXT,OTHER:SASL_PLAINTEXT"
    more = ("--set=sasl.enabled.mechanisms=PLAIN", listeners, protocols)
    with Serving(None, *more) as broker:  # it gives --port 0
        status, said = broker.ended()
    assert status == 1 and "put the addresses into listeners" in said
