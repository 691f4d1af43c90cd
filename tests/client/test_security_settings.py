"""The security settings of clients: names of several libraries for one thing, contradictions, references, secrets."""

from __future__ import annotations

import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from coterie.settings.client_settings import AdminSettings, ClientSettings
from coterie.settings.config_def import Password, SettingsError
from coterie.settings.consumer_settings import ConsumerSettings
from coterie.settings.producer_settings import ProducerSettings
from coterie.settings.sasl_credentials import SaslCredentials, TokenEndpoint, UnsecuredToken

SECRET = "s3cr3t-of-alice"
MODULE = "org.apache.kafka.common.security"
JAAS = f'{MODULE}.plain.PlainLoginModule required username="alice" password="{SECRET}";'
LOGIN = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
TOKENS = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
URL = "https://login.example/token"
ENDPOINT = {"sasl.oauthbearer.token.endpoint.url": URL}
ID_AND_SECRET = {
    "sasl.oauthbearer.client.credentials.client.id": "app",
    "sasl.oauthbearer.client.credentials.client.secret": SECRET,
}


def credentials(given: Mapping[str, object]) -> SaslCredentials:
    found = ClientSettings.of(given).credentials
    assert found is not None
    return found


@pytest.mark.parametrize(
    "given",
    [
        {**LOGIN, "sasl.jaas.config": JAAS},
        {**LOGIN, "sasl.username": "alice", "sasl.password": SECRET},
        {
            "security.protocol": "sasl_ssl",
            "sasl.mechanisms": "plain",
            "sasl.username": "alice",
            "sasl.password": SECRET,
        },
        {
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "PLAIN",
            "sasl_plain_username": "alice",
            "sasl_plain_password": SECRET,
        },
        {**LOGIN, "sasl.jaas.config": JAAS, "sasl.username": "alice", "sasl_plain_password": SECRET},
        {**LOGIN, "sasl.jaas.config": f"kafkashaded.{JAAS.replace('plain.Plain', 'scram.Scram')}"},
        {**LOGIN, "sasl.username": "alice", "sasl.password": Password(SECRET)},
    ],
    ids=["java", "librdkafka", "any case", "kafka-python", "all of them", "another package and module", "a Password"],
)
def test_user_and_password_are_given_by_the_names_of_any_library(given: dict[str, object]) -> None:
    """S55 and S56."""
    assert credentials(given) == SaslCredentials("PLAIN", "alice", Password(SECRET))


def test_certificates_are_given_by_the_names_of_librdkafka_and_kafka_python() -> None:
    """S55."""
    names = {
        "ssl_cafile": "a",
        "ssl_certfile": "b",
        "ssl_keyfile": "c",
        "ssl_password": "d",
        "ssl_check_hostname": False,
    }
    settings = ClientSettings.of({"security.protocol": "SSL", **names})
    assert (settings.ssl_ca_location, settings.ssl_certificate_location, settings.ssl_key_location) == ("a", "b", "c")
    assert settings.ssl_key_password == Password("d") and settings.ssl_endpoint_identification_algorithm == ""
    texts = {"ssl.ca.pem": "a", "ssl.certificate.pem": "b", "ssl.key.pem": "c"}
    settings = ClientSettings.of({"security.protocol": "SSL", **texts})
    assert settings.ssl_truststore_certificates == Password("a") and settings.ssl_keystore_key == Password("c")


@pytest.mark.parametrize(("text", "is_on"), [("https", True), ("HTTPS", True), ("", False), ("none", False)])
def test_the_check_of_the_host_name_is_turned_off_by_an_empty_text_or_none(text: str, is_on: bool) -> None:
    """S27."""
    settings = ClientSettings.of({"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": text})
    assert bool(settings.ssl_endpoint_identification_algorithm) is is_on


def test_an_address_may_have_the_protocol_before_it_if_it_agrees() -> None:
    given = {"security.protocol": "SSL", "bootstrap.servers": "SSL://a:1,ssl://b:2,c:3"}
    assert [str(each) for each in ClientSettings.of(given).addresses] == ["a:1", "b:2", "c:3"]


# --- tokens -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "more",
    [
        {**ENDPOINT, **ID_AND_SECRET, "sasl.oauthbearer.scope": "kafka"},
        {
            **ENDPOINT,
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": "app",
            "sasl.oauthbearer.client.secret": SECRET,
            "sasl.oauthbearer.scope": "kafka",
        },
        {
            **ENDPOINT,
            "sasl.login.callback.handler.class": f"{MODULE}.oauthbearer.OAuthBearerLoginCallbackHandler",
            "sasl.jaas.config": f"{MODULE}.oauthbearer.OAuthBearerLoginModule required clientId='app' "
            f"clientSecret='{SECRET}' scope='kafka';",
        },
    ],
    ids=["KIP-1139", "librdkafka", "jaas"],
)
def test_a_token_endpoint_is_given_by_the_names_of_java_and_librdkafka(more: dict[str, object]) -> None:
    """S21 and S55."""
    assert credentials({**TOKENS, **more}).token == TokenEndpoint(
        URL, "app", Password(SECRET), "kafka", is_urlencoded=False
    )


def test_extensions_are_those_of_jaas_and_of_librdkafka() -> None:
    """S17 and S58."""
    jaas = (
        f"{MODULE}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub='alice' extension_a='1';"
    )
    found = credentials({**TOKENS, "sasl.jaas.config": jaas, "sasl.oauthbearer.extensions": "b=2, c=x=y"})
    assert found.token == UnsecuredToken({"sub": "alice"}, 3600)
    assert found.extensions == {"a": "1", "b": "2", "c": "x=y"}


class Provider:
    def token(self) -> str:
        return SECRET


@pytest.mark.parametrize("name", ["oauth_cb", "sasl_oauth_token_provider"])
@pytest.mark.parametrize("value", [lambda _: SECRET, Provider(), "some.module:function"])
def test_a_token_callback_is_a_function_an_object_or_a_name(name: str, value: object) -> None:
    """S23."""
    assert credentials({**TOKENS, name: value}).token is value


# --- what cannot be ---------------------------------------------------------------------------------------------------

TLS = {"security.protocol": "SSL"}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"sasl.username": "a"}, "sasl.username is given, and security.protocol is PLAINTEXT, the default: set"),
        ({**TLS, "sasl.mechanism": "PLAIN"}, "set security.protocol to SASL_SSL or SASL_PLAINTEXT, or leave it out"),
        ({"ssl.ca.location": "x", "ssl_keyfile": "y"}, "ssl.ca.location and ssl.key.location are given, and security"),
        ({"security.protocol": "TLS"}, "must be PLAINTEXT or SSL or SASL_PLAINTEXT or SASL_SSL"),
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism is GSSAPI, Java's default, which is not supported: give"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}, "sasl.mechanism is GSSAPI, which is not"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "AWS_MSK_IAM"}, "sasl.mechanism=OAUTHBEARER and a token"),
        ({**LOGIN}, "sasl.username and sasl.password are missing"),
        ({**LOGIN, "sasl.username": "a"}, "sasl.password is missing"),
        ({**LOGIN, "sasl.username": "a", "sasl.password": ""}, "sasl.password is missing"),
        ({**LOGIN, "sasl.username": "a", "sasl.password": "\udc80"}, "characters that UTF-8 cannot encode"),
        (
            {**LOGIN, "sasl.jaas.config": JAAS, "sasl.username": "bob"},
            "sasl.username and sasl.jaas.config give the user",
        ),
        (
            {**LOGIN, "sasl.jaas.config": JAAS, "sasl.password": "x"},
            "sasl.password and sasl.jaas.config give the password",
        ),
        (
            {**LOGIN, "sasl.username": "a", "sasl_plain_username": "b"},
            "sasl.username (settings) and sasl.plain.username (settings) are the same setting",
        ),
        (
            {**LOGIN, "sasl.mechanisms": "OAUTHBEARER"},
            "sasl.mechanism (settings) and sasl.mechanisms (settings) are the same setting",
        ),
        ({**LOGIN, "sasl.jaas.config": JAAS[:-1]}, "does not end with a semicolon"),
        ({**LOGIN, "sasl.jaas.config": f"{MODULE}.Krb5LoginModule required;"}, "Kerberos is not supported"),
        ({**TOKENS, "sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;"}, "For MSK IAM give"),
        (
            {**TOKENS, "sasl.jaas.config": JAAS},
            "sasl.jaas.config has PlainLoginModule, and sasl.mechanism is OAUTHBEARER",
        ),
        ({**TOKENS}, "nothing says where tokens come from: give sasl.oauth.token.provider"),
        ({**TOKENS, **ENDPOINT}, "needs a client id and secret"),
        ({**TOKENS, **ID_AND_SECRET}, "sasl.oauthbearer.token.endpoint.url is missing"),
        ({**TOKENS, **ENDPOINT, **ID_AND_SECRET, "oauth_cb": Provider()}, "tokens come from one place"),
        ({**TOKENS, "oauth_cb": Provider(), "sasl.username": "a"}, "sasl.username is for PLAIN and SCRAM"),
        ({**LOGIN, "sasl.jaas.config": JAAS, **ENDPOINT}, "is for OAUTHBEARER, and sasl.mechanism is PLAIN"),
        ({**TOKENS, "sasl.oauthbearer.token.endpoint.url": "login", **ID_AND_SECRET}, "must begin with https://"),
        ({**TOKENS, "oauth_cb": 5}, "oauth.cb = [hidden] (settings): must be a function"),
        ({**TOKENS, "sasl.login.callback.handler.class": "com.example.Mine"}, "there is no JVM to load a class into"),
        (
            {**TLS, "ssl.ca.location": "x", "ssl.ca.pem": "y"},
            "ssl.ca.location and ssl.truststore.certificates are given",
        ),
        ({**TLS, "ssl.certfile": "x", "ssl.keystore.location": "y"}, "the client's certificate comes from one place"),
        ({**TLS, "ssl.key.location": "x"}, "ssl.key.location is given without ssl.certificate.location"),
        ({**TLS, "ssl.certificate.pem": "x"}, "ssl.keystore.certificate.chain is given without ssl.keystore.key"),
        ({**TLS, "ssl.enabled.protocols": "TLSv1"}, "TLSv1.2, TLSv1.3"),
        ({**TLS, "ssl.endpoint.identification.algorithm": "ldap"}, "https, or empty (none) for no check"),
        ({**TLS, "ssl_context": "x"}, "must be an ssl.SSLContext"),
        ({**TLS, "bootstrap.servers": "SASL_SSL://a:1"}, "set security.protocol to SASL_SSL, or leave SASL_SSL:// out"),
        ({**TLS, "bootstrap.servers": "https://a:1"}, "must be host:port"),
        ({"sasl.kerberos.service.name": "kafka"}, "GSSAPI (Kerberos) is not supported"),
        ({"sasl.pasword": SECRET}, "did you mean sasl.password?"),
    ],
)
def test_a_contradiction_is_one_sentence_that_says_what_to_do(given: dict[str, object], says: str) -> None:
    """S55 to S57: security that was meant and would be missing is refused."""
    with pytest.raises(SettingsError, match=re.escape(says)) as refused:
        ClientSettings.of(given)
    assert len(str(refused.value).splitlines()) == 1 and SECRET not in str(refused.value)


# --- references -------------------------------------------------------------------------------------------------------


def test_a_value_may_be_a_reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COTERIE_TEST_USER", "alice")
    (tmp_path / "password").write_text(f"{SECRET}\n")
    (tmp_path / "all.properties").write_text(f"other=1\nthe.password = {SECRET}\n")
    for reference in (f"${{file:{tmp_path}/password}}", f"${{file:{tmp_path}/all.properties:the.password}}"):
        found = credentials({**LOGIN, "sasl.username": "${env:COTERIE_TEST_USER}", "sasl.password": reference})
        assert (found.username, found.password.value) == ("alice", SECRET)
        text = f"security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.jaas.config={JAAS.replace(SECRET, reference)}"
        loaded = AdminSettings.load(text).credentials
        assert loaded is not None and loaded.password.value == SECRET


def test_what_a_reference_gives_is_not_followed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COTERIE_TEST_A", "${env:COTERIE_TEST_B}")
    found = credentials({**LOGIN, "sasl.username": "a", "sasl.password": "${env:COTERIE_TEST_A}"})
    assert found.password.value == "${env:COTERIE_TEST_B}"


@pytest.mark.parametrize(
    ("reference", "says"),
    [
        ("${env:COTERIE_NOT_THERE}", "names a variable that the environment of this process does not have"),
        ("${file:/nowhere/at-all}", "${file:/nowhere/at-all} cannot be read: No such file or directory"),
        ("${file:PATH/keys:absent}", "names a key that the properties file does not have"),
        ("${file:PATH/binary}", "cannot be read: it is not UTF-8 text"),
    ],
)
def test_a_reference_that_leads_nowhere_is_an_error(reference: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text(f"present={SECRET}\n")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(SettingsError, match=re.escape(says)) as refused:
        ClientSettings.of({**LOGIN, "sasl.password": reference.replace("PATH", str(tmp_path))})
    assert str(refused.value).startswith("sasl.password (settings): ") and SECRET not in str(refused.value)


JAVA_FILE = f"""
security.protocol=SASL_SSL
sasl.mechanism=SCRAM-SHA-512
sasl.jaas.config={MODULE}.scram.ScramLoginModule required \\
  username="alice" \\
  password="{SECRET}";
ssl.truststore.type=PEM
ssl.truststore.location=/ca.pem
"""
LIBRDKAFKA_FILE = f"""
# as kcat has it
security.protocol = SASL_SSL
sasl.mechanisms=SCRAM-SHA-512
sasl.username=alice
sasl.password={SECRET}
ssl.ca.location=/ca.pem
"""


@pytest.mark.parametrize("text", [JAVA_FILE, LIBRDKAFKA_FILE])
def test_a_file_may_have_the_names_of_java_or_of_librdkafka(text: str) -> None:
    loaded = AdminSettings.load(text)
    assert loaded.credentials == SaslCredentials("SCRAM-SHA-512", "alice", Password(SECRET))
    assert "/ca.pem" in {loaded.ssl_ca_location, loaded.ssl_truststore_location}


# --- secrets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [ClientSettings, ConsumerSettings, ProducerSettings, AdminSettings])
def test_no_secret_is_in_a_repr_and_pickling_keeps_it(kind: type[ClientSettings]) -> None:
    """S57."""
    given: dict[str, Any] = {**LOGIN, "sasl.jaas.config": JAAS, "ssl.ca.pem": SECRET, "ssl.key.password": SECRET}
    settings = kind.of(given)
    shown = f"{settings!r} {settings} {settings.credentials!r} {settings.given} {settings.ignored}"
    assert SECRET not in shown and "[hidden]" in shown
    again = pickle.loads(pickle.dumps(settings))
    assert again == settings and hash(again) == hash(settings)
    assert again.credentials is not None and again.credentials.password.value == SECRET
    endpoint = kind.of({**TOKENS, **ENDPOINT, **ID_AND_SECRET})
    assert SECRET not in f"{endpoint!r} {endpoint.credentials!r}"


def test_settings_that_are_not_a_mapping_are_not_shown() -> None:
    with pytest.raises(SettingsError, match="settings are a mapping, not list") as refused:
        ClientSettings.of_arguments([("sasl.password", SECRET)], {})  # type: ignore[arg-type]
    assert SECRET not in str(refused.value)
