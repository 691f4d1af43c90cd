"""DescribeUserScramCredentials and AlterUserScramCredentials: as Kafka answers, durable, and used at the next login."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from time import sleep
from typing import Any

import pytest

from apache_kafka import run_java
from broker.driver import World
from broker.sasl_dialogues import Talk, talk_to
from coterie import Admin, Broker, KafkaError, ScramCredentialInfo, ScramDeletion, ScramUpsertion, checked
from coterie.errors import ErrorCode, IllegalArgumentError
from coterie.protocol.apis import alter_user_scram_credentials as alter_api
from coterie.protocol.apis import describe_user_scram_credentials as describe_api
from coterie.storage import MemoryFiles
from coterie.storage.log_errors import DamagedFileError
from coterie.storage.metadata_files import SCRAM_CREDENTIALS
from secured_kafka import USERS, Cluster

RECORD = Path(__file__).with_name("kafka_scram.json")
LISTENERS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
}

Ask = Callable[[Any, Any], Any]


def upsertion(
    name: str, mechanism: int = 1, iterations: int = 4096, salt: bytes = b"salt", salted: bytes = b"x" * 32
) -> Any:
    return alter_api.Upsertion(name=name, mechanism=mechanism, iterations=iterations, salt=salt, salted_password=salted)


def altered(ask: Ask, *upsertions: Any, deletions: Any = ()) -> list[Any]:
    answer = ask(alter_api, alter_api.Request(upsertions=upsertions, deletions=deletions))
    return sorted([one.user, int(one.error), one.message] for one in answer.results)


def described(ask: Ask, *names: str, everybody: bool = False) -> Any:
    users = None if everybody else [describe_api.User(name=name) for name in names]
    answer = ask(describe_api, describe_api.Request(users=users))
    rows = [
        [
            one.user,
            int(one.error),
            one.message,
            sorted([info.mechanism, info.iterations] for info in one.credential_infos),
        ]
        for one in answer.results
    ]
    return [int(answer.error), answer.message, sorted(row for row in rows if row[0] not in USERS)]


def deletion(name: str, mechanism: int = 1) -> Any:
    return alter_api.Deletion(name=name, mechanism=mechanism)


def story(ask: Ask, repeats: int = 0) -> dict[str, Any]:
    """Return what each request is answered, in this order; users of other tests are left out.

    Kafka's controller answers before its broker has heard of a change. A question is repeated, at most
    `repeats` times, until the answer is the recorded one.
    """
    recorded = json.loads(RECORD.read_text()) if RECORD.exists() else {}

    def shown(name: str, *names: str, everybody: bool = False) -> Any:
        for _ in range(repeats):
            if described(ask, *names, everybody=everybody) == recorded.get(name):
                break
            sleep(0.05)
        return described(ask, *names, everybody=everybody)

    return {
        "nobody": shown("nobody", "u1"),
        "a first one": altered(ask, upsertion("u1")),
        "the other mechanism": altered(ask, upsertion("u1", 2, 8192)),
        "described": shown("described", "u1"),
        "twice": shown("twice", "u1", "u1", "u9"),
        "too few": altered(ask, upsertion("u2", iterations=4095)),
        "too few of the other": altered(ask, upsertion("u2", 2, iterations=4095)),
        "too many": altered(ask, upsertion("u2", iterations=16_385)),
        "the most": altered(ask, upsertion("u2", iterations=16_384)),
        "no name": altered(ask, upsertion("")),
        "no name to delete": altered(ask, deletions=[deletion("")]),
        "mechanism 0": altered(ask, upsertion("u3", 0)),
        "mechanism 3": altered(ask, upsertion("u3", 3)),
        "mechanism 3 to delete": altered(ask, deletions=[deletion("u1", 3)]),
        "twice in a request": altered(ask, upsertion("u3"), upsertion("u3", 2)),
        "added and deleted": altered(ask, upsertion("u1"), deletions=[deletion("u1", 2)]),
        "twice and wrong": altered(ask, upsertion("u3", 9), upsertion("u3", 2)),
        "one of two": altered(ask, upsertion("u4"), upsertion("u5", iterations=1)),
        "no salt": altered(ask, upsertion("u6", salt=b"", salted=b"x")),
        "deleted twice, one not there": altered(ask, deletions=[deletion("u6"), deletion("u6", 2)]),
        "everybody": shown("everybody", everybody=True),
        "an empty list": shown("an empty list"),
        "deleted": altered(ask, deletions=[deletion("u1"), deletion("u2")]),
        "deleted again": altered(ask, deletions=[deletion("u1")]),
        "nobody to delete": altered(ask, deletions=[deletion("u9")]),
        "nothing": altered(ask),
        "left": shown("left", everybody=True),
    }


def asking(talk: Talk) -> Ask:
    return lambda module, request: talk.ask(module, 0, request)


def test_the_apis_answer_as_kafka_does() -> None:
    """S52 and S53."""
    client = World().client()
    found = story(lambda module, request: client.ask(module, request, 0))
    assert found == json.loads(RECORD.read_text())


def test_a_salted_password_that_is_empty_is_refused() -> None:
    """Kafka answers UNKNOWN_SERVER_ERROR, since Java refuses such a key."""
    client = World().client()
    found = altered(lambda module, request: client.ask(module, request, 0), upsertion("u1", salted=b""))
    assert found == [["u1", 93, "The salted password must not be empty"]]


def test_the_record_is_what_kafka_says_and_kafkas_tool_changes_our_users(secured_kafka: Cluster) -> None:
    """S52, S53, S54."""
    with talk_to(secured_kafka.address_of("PLAINTEXT")) as talk:
        found = story(asking(talk), repeats=600)
        if not RECORD.exists():
            rows = ",\n".join(f" {json.dumps(name)}: {json.dumps(row)}" for name, row in found.items())
            RECORD.write_text(f"{{\n{rows}\n}}\n")
        assert found == json.loads(RECORD.read_text())
    with Broker(settings=LISTENERS) as broker:
        tool = ("kafka.admin.ConfigCommand", "--bootstrap-server", broker.bootstrap_servers, "--entity-type", "users")
        change = "SCRAM-SHA-256=[iterations=8192,password=tool-secret]"
        run_java(*tool, "--alter", "--add-config", change, "--entity-name", "carol")
        with talk_to(broker.bootstrap_servers_of("SASL_PLAINTEXT")) as login:
            assert not login.scram("carol", "tool-secret", "SCRAM-SHA-256").error
        assert "SCRAM-SHA-256=iterations=8192" in run_java(*tool, "--describe", "--entity-name", "carol")
        run_java(*tool, "--alter", "--delete-config", "SCRAM-SHA-256", "--entity-name", "carol")
        with talk_to(broker.bootstrap_servers_of("SASL_PLAINTEXT")) as login:
            assert login.scram("carol", "tool-secret", "SCRAM-SHA-256").error


# --- durable ----------------------------------------------------------------------------------------------------------


def test_a_credential_is_answered_when_it_is_durable_and_there_after_a_restart() -> None:
    files = MemoryFiles()
    world = World(files, auto=False)
    client = world.client()
    client.send(alter_api, alter_api.Request(upsertions=[upsertion("u1")]), 0)
    assert not client.answers
    assert not world.cluster.scram_credentials.by_user
    world.flush()
    assert list(world.cluster.scram_credentials.by_user) == ["u1"]
    world.stop()
    again = World(files)
    assert list(again.cluster.scram_credentials.by_user) == ["u1"]
    assert again.cluster.scram_credentials.by_user["u1"] == world.cluster.scram_credentials.by_user["u1"]


@pytest.mark.parametrize("content", [b"", b"{}", b'{"credentials": [{}]}', b'{"credentials": 1}', b"[]"])
def test_a_file_that_was_not_written_by_us_is_damage(content: bytes) -> None:
    files = MemoryFiles()
    World(files).stop()
    SCRAM_CREDENTIALS.write(files, content)
    with pytest.raises(DamagedFileError, match=r"coterie-scram-credentials\.json"):
        World(files)


# --- our admin --------------------------------------------------------------------------------------------------------


def test_an_admin_gives_and_takes_passwords(tmp_path: Path) -> None:
    """S12 and S52: a session outlives its password."""
    with Broker(tmp_path, LISTENERS) as broker, Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        login = broker.bootstrap_servers_of("SASL_PLAINTEXT")
        checked(admin.alter_user_scram_credentials([ScramUpsertion("carol", "one")]))
        checked(admin.alter_user_scram_credentials([ScramUpsertion("carol", "two", "SCRAM-SHA-512", 8_192)]))
        assert admin.describe_user_scram_credentials() == {
            "carol": [ScramCredentialInfo("SCRAM-SHA-256", 4_096), ScramCredentialInfo("SCRAM-SHA-512", 8_192)]
        }
        with talk_to(login) as talk, talk_to(login) as other:
            assert not talk.scram("carol", "one", "SCRAM-SHA-256").error
            checked(admin.alter_user_scram_credentials([ScramUpsertion("carol", "three")]))
            talk.works()
            assert talk.heard[-1] == ["Metadata", 1]
            assert other.scram("carol", "one", "SCRAM-SHA-256").error
        checked(admin.alter_user_scram_credentials([ScramDeletion("carol")]))
        results = admin.alter_user_scram_credentials(
            [ScramDeletion("carol"), ScramUpsertion("dave", "x", iterations=5)]
        )
        assert [error.code for error in results.values() if isinstance(error, KafkaError)] == [
            ErrorCode.RESOURCE_NOT_FOUND,
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
        ]
        missing = admin.describe_user_scram_credentials(["nobody"])["nobody"]
        assert isinstance(missing, KafkaError) and missing.code is ErrorCode.RESOURCE_NOT_FOUND
    assert "secret" not in (tmp_path / SCRAM_CREDENTIALS.path).read_text()


def test_an_admin_refuses_what_cannot_be_right_and_shows_no_password() -> None:
    with Broker() as broker, Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        with pytest.raises(IllegalArgumentError, match="not a SCRAM mechanism"):
            admin.alter_user_scram_credentials([ScramUpsertion("u", "p", "PLAIN")])
        with pytest.raises(IllegalArgumentError, match="twice"):
            admin.alter_user_scram_credentials([ScramUpsertion("u", "p"), ScramDeletion("u", "SCRAM-SHA-512")])
    assert "hidden-1" not in repr(ScramUpsertion("u", "hidden-1"))
