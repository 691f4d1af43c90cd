"""Our broker answers every API with every right as Apache Kafka 4.3.1 does: its answers were recorded."""

from __future__ import annotations

from collections import Counter

import pytest

from conformance.acls.asking import Answers
from conformance.acls.cells import PRINCIPALS, REQUESTS
from conformance.acls.compare import MEANT, differences
from conformance.acls.our_side import OurBroker
from conformance.acls.recording import RECORDED, read
from coterie.broker.broker_facts import AuthorizationDenied

WITHOUT_CELLS = {
    "api_versions": "needs no right",
    "sasl_handshake": "needs no right",
    "sasl_authenticate": "needs no right",
    "get_telemetry_subscriptions": "needs no right",
    "push_telemetry": "needs no right; what it says of a group counts with READ (test_client_telemetry.py)",
}


@pytest.fixture(scope="module")
def ours() -> OurBroker:
    broker = OurBroker()
    broker.prepare()
    return broker


@pytest.fixture(scope="module")
def our_answers(ours: OurBroker) -> Answers:
    return ours.ask_all()


def test_every_cell_is_recorded() -> None:
    recorded = read(RECORDED)
    assert list(recorded) == [request.name for request in REQUESTS], "record again: make conformance KEEP=1"
    assert all(sorted(by_user) == sorted(PRINCIPALS) for by_user in recorded.values())


def test_every_api_that_the_broker_serves_has_cells_or_needs_no_right(ours: OurBroker) -> None:
    """A new API must not be forgotten: it would be open to everybody."""
    served = {route.api.module_name for route in ours.world.node._routes.values()}
    assert served - {request.api for request in REQUESTS} == set(WITHOUT_CELLS)


def test_there_are_no_differences_but_those_that_are_meant(our_answers: Answers) -> None:
    """Rule 26, section 7 of docs/semantics-security.md, and S45: texts from inside Kafka are not compared."""
    recorded = read(RECORDED)
    found = differences(recorded, our_answers)
    unexplained = [str(one) for one in found if one.reason is None]
    cells = sum(map(len, recorded.values()))
    print(f"{cells} cells, {len(unexplained)} unexplained differences")
    assert not unexplained, "\n".join(unexplained)
    counts = Counter(dict.fromkeys(MEANT, 0))
    for one in found:
        counts[one.request] += len(one.users)
    assert counts == {request: cells for request, (cells, _) in MEANT.items()}, "only so many differences are meant"


def test_whoever_lacks_a_right_is_named_in_a_fact(ours: OurBroker, our_answers: Answers) -> None:
    """Rule S37."""
    assert our_answers
    denied = [fact for fact in ours.world.facts if isinstance(fact, AuthorizationDenied)]
    assert {fact.principal for fact in denied} == {f"User:{user}" for user in PRINCIPALS if user != "admin"} - {
        "User:everything-by-wildcards"
    }
    fact = next(fact for fact in denied if fact.request == "Fetch" and fact.principal == "User:group-read")
    assert (fact.operation, fact.resource_type, fact.host) == ("READ", "TOPIC", "10.0.0.1")
