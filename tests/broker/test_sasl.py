"""Our broker says the same in each SASL dialogue as Apache Kafka 4.3.1 does; `record_sasl.py` has recorded that."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from broker import sasl_dialogues
from broker.record_sasl import RECORD, heard_from
from broker.sasl_dialogues import DIALOGUES, Talk, plain, talk_to
from coterie import Broker
from coterie.broker.broker_facts import AuthenticationFailed, ConnectionDropped
from coterie.facts import Fact
from secured_kafka import MECHANISMS, SHARED, USERS, Cluster

KAFKA: dict[str, list[Any]] = json.loads(RECORD.read_text())
GENERIC = "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256"
OTHERWISE: dict[str, tuple[list[Any], str]] = {
    "scram_that_begins_with_a_mandatory_extension": (
        [["SaslHandshake", 0, sorted(MECHANISMS)], ["SaslAuthenticate", 58, GENERIC, "", 0], "closed"],
        "RFC 5802 has a server refuse an extension that it must understand and does not",
    ),
}
"""What ours says instead, and why."""

SESSIONS = "listener.name.sasl_plaintext.scram-sha-512.connections.max.reauth.ms"
SETTINGS = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": ",".join(MECHANISMS),
    SESSIONS: SHARED[SESSIONS],
}


@pytest.fixture(scope="module")
def facts() -> list[Fact]:
    return []


@pytest.fixture(scope="module")
def broker(facts: list[Fact]) -> Iterator[Broker]:
    with Broker(settings=SETTINGS, users=USERS, on_fact=facts.append) as broker:
        yield broker


@pytest.fixture
def talk(broker: Broker) -> Iterator[Talk]:
    with talk_to(broker.bootstrap_servers) as talk:
        yield talk


@pytest.mark.real_time
@pytest.mark.parametrize("name", DIALOGUES)
def test_a_dialogue_hears_what_kafka_says(name: str, talk: Talk) -> None:
    """S2, S3, S4, S5, S6, S7, S8, S9, S10, S11, S12, S13, S14, S15, S16, S17, S18, S19, S20 and S31, S32, S33."""
    expected, _ = OTHERWISE.get(name, (KAFKA[name], ""))
    DIALOGUES[name][1](talk)
    assert talk.heard == expected


def test_every_dialogue_is_recorded_and_every_difference_is_one() -> None:
    assert set(KAFKA) == set(DIALOGUES)
    assert all(KAFKA[name] != expected for name, (expected, _) in OTHERWISE.items())


# --- what is logged ---------------------------------------------------------------------------------------------------


def test_a_failed_login_is_a_fact_without_name_and_password(talk: Talk, facts: list[Fact]) -> None:
    """S10 and S57."""
    facts.clear()
    talk.handshake("PLAIN")
    talk.authenticate(plain("alice-by-name", "alice-by-password"))
    talk.ends()
    (failed,) = [fact for fact in facts if isinstance(fact, AuthenticationFailed)]
    assert (failed.host, failed.listener, failed.mechanism) == ("127.0.0.1", "SASL_PLAINTEXT", "PLAIN")
    assert failed.why == "Authentication failed: Invalid username or password"
    assert "alice-by" not in repr(facts)
    assert not [fact for fact in facts if isinstance(fact, ConnectionDropped)], "one line is enough"


def test_a_client_without_sasl_is_told_about_in_the_log(talk: Talk, facts: list[Fact]) -> None:
    """S4: it is closed without an answer, so the log has the reason."""
    facts.clear()
    talk.works()
    (dropped,) = [fact for fact in facts if isinstance(fact, ConnectionDropped)]
    assert dropped.why == ("Metadata v12 before authentication; clients of the listener SASL_PLAINTEXT must use SASL")


def test_the_record_is_what_kafka_says(secured_kafka: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """S2, S3, S4, S5, S6, S7, S8, S9, S10, S11, S12, S13, S14, S15, S16, S17, S18, S19, S20 and S31, S32, S33."""
    monkeypatch.setattr(sasl_dialogues, "wall_ms", lambda: int(secured_kafka.time_s() * 1000))
    assert heard_from(secured_kafka.address_of("SASL_PLAINTEXT")) == KAFKA
