"""The commands at a secured cluster: settings in a file or with --set, and no secret in what they print."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from coterie.cli.app import app
from coterie.cli.options import properties_of
from coterie.spark.pipeline.submit import kafka_options
from secured_kafka import USERS, SecuredCoterie

pytestmark = pytest.mark.real_time

WRONG = "not-her-password"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required username='alice' password='{}';"


@pytest.fixture(scope="module")
def cluster() -> Iterator[SecuredCoterie]:
    with SecuredCoterie() as running:
        yield running


@pytest.fixture(params=["java", "librdkafka", "reference"])
def config(
    cluster: SecuredCoterie, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A file as users of Java or of librdkafka have it, with the password or a reference to it."""
    monkeypatch.setenv("COTERIE_TEST_PASSWORD", USERS["alice"])
    lines = {
        "java": f"ssl.truststore.type=PEM\nssl.truststore.location={cluster.certificates.ca}\nsasl.mechanism="
        f"SCRAM-SHA-512\nsasl.jaas.config={SCRAM.format(USERS['alice'])}\n",
        "librdkafka": f"ssl.ca.location={cluster.certificates.ca}\nsasl.mechanisms=SCRAM-SHA-512\nsasl.username=alice\n"
        f"sasl.password={USERS['alice']}\n",
        "reference": f"ssl.ca.location={cluster.certificates.ca}\nsasl.mechanism=SCRAM-SHA-512\nsasl.username=alice\n"
        "sasl.password=${env:COTERIE_TEST_PASSWORD}\n",
    }
    address = cluster.address_of("SASL_SSL")
    path = tmp_path / "client.properties"
    path.write_text(f"bootstrap.servers={address}\nsecurity.protocol=SASL_SSL\n{lines[request.param]}")
    return path


def run(config: Path, *arguments: str, text: str | None = None) -> Result:
    done = CliRunner().invoke(app, [*arguments, "--config", str(config)], input=text)
    assert not [secret for secret in (*USERS.values(), WRONG) if secret in done.output]
    return done


def test_commands_log_in_with_the_settings_of_a_file(config: Path, request: pytest.FixtureRequest) -> None:
    topic = request.node.callspec.params["config"]
    for arguments, text in (
        (["topics", "create", topic], None),
        (["produce", topic], "one\ntwo\n"),
        (["topics", "list"], None),
        (["groups", "list"], None),
    ):
        done = run(config, *arguments, text=text)
        assert done.exit_code == 0, done.output
    done = run(config, "consume", topic, "--exit-at-end")
    assert done.exit_code == 0 and done.stdout.splitlines() == ["one", "two"], done.output


@pytest.mark.parametrize("config", ["librdkafka"], indirect=True)
def test_a_refused_login_is_one_line_without_the_password(config: Path) -> None:
    """S57."""
    for command in (["topics", "list"], ["consume", "t", "--exit-at-end"], ["produce", "t"]):
        done = run(config, *command, "--set", f"sasl.password={WRONG}", text="one\n")
        assert done.exit_code != 0 and "refused user 'alice' with sasl.mechanism SCRAM-SHA-512" in done.stderr
        assert "Traceback" not in done.output


@pytest.mark.parametrize("config", ["java"], indirect=True)
def test_the_pipeline_takes_the_same_file(config: Path, cluster: SecuredCoterie) -> None:
    options = kafka_options(None, ["request.timeout.ms=1"], properties_of(config))
    assert options["kafka.bootstrap.servers"] == cluster.address_of("SASL_SSL")
    assert options["kafka.sasl.mechanism"] == "SCRAM-SHA-512" and options["kafka.request.timeout.ms"] == "1"
    assert kafka_options("a:1", [], properties_of(config))["kafka.bootstrap.servers"] == "a:1"
