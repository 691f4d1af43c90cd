"""`coterie acls`: what it makes of its options, and what it says of mistakes. tests/client/test_acls.py runs it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

import coterie
from coterie.cli.acls import ACL
from coterie.cli.app import app

pytestmark = pytest.mark.real_time


@pytest.fixture(scope="module")
def broker() -> Iterator[coterie.Broker]:
    settings = {"authorizer.class.name": "StandardAuthorizer", "super.users": "User:ANONYMOUS"}
    with coterie.Broker(settings=settings) as running:
        yield running


def run(broker: coterie.Broker, *words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["acls", *words], env={"COTERIE_BOOTSTRAP": broker.bootstrap_servers})
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


WHO = ("--allow-principal", "User:bob")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("add", "--topic", "t"), "say who: --allow-principal User:NAME"),
        (("add", *WHO), "say what it is about: --topic, --group, --transactional-id or --cluster"),
        (("add", "--allow-principal", "bob", "--topic", "t"), "'bob' is not a principal: give its type too"),
        (("add", *WHO, "--operation", "Reed", "--topic", "t"), "--operation 'Reed': give one of All, Read, Write"),
        (("add", *WHO, "--operation", "Any", "--topic", "t"), "--operation 'Any': give one of"),
        (("add", *WHO, "--consumer", "--topic", "t"), "--consumer needs --topic and --group"),
        (("add", *WHO, "--producer", "--group", "g"), "--producer needs --topic"),
        (("add", *WHO, "--consumer", "--operation", "Read", "--topic", "t", "--group", "g"), "does not go with"),
        (("add", *WHO, "--topic", "t", "--resource-pattern-type", "match"), "an ACL is literal or prefixed"),
        (("list", "--resource-pattern-type", "some"), "give literal, prefixed, any or match"),
        (("remove", "--topic", "t", "--operation", "Read"), "say whose: --allow-principal User:NAME"),
        (("remove",), "say what it is about"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_mistake_is_one_sentence(broker: coterie.Broker, words: tuple[str, ...], says: str) -> None:
    code, printed, said = run(broker, *words)
    assert code == 1 and not printed and says in said and said.count("\n") == 1


def test_a_broker_without_an_authorizer_says_so() -> None:
    with coterie.Broker() as broker:
        code, _, said = run(broker, "list")
    assert code == 1 and "No Authorizer is configured" in said and "SECURITY_DISABLED" in said


def test_an_acl_that_exists_already_stays_one_and_a_missing_one_is_no_error(broker: coterie.Broker) -> None:
    for _ in range(2):
        assert run(broker, "add", *WHO, "--operation", "read", "--cluster")[0] == 0
    code, printed, _ = run(broker, "list", "--cluster", "-o", "json")
    rows = json.loads(printed)
    assert code == 0 and [tuple(row.values())[1:4] for row in rows] == [("kafka-cluster", "LITERAL", "User:bob")]
    assert list(rows[0]) == [column.lower().replace("-", "_") for column in ACL]
    assert run(broker, "remove", "--cluster")[0] == 0
    code, _, said = run(broker, "remove", "--cluster")
    assert code == 0 and "there were no such ACLs" in said
    assert "there are no such ACLs" in run(broker, "list", "--cluster")[2]
