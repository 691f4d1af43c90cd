"""`coterie consume`: what is printed, where it begins, when it ends, and what is committed when it does."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import coterie
from broker.peer import Peer
from coterie.cli.app import app
from coterie.cli.consume import ConsumeOptions, _settings, as_format, as_json
from coterie.errors import CoterieError
from coterie.protocol.batch import TimestampType
from coterie.protocol.records import Record
from coterie.settings.client_settings import Address

pytestmark = pytest.mark.real_time

COMMAND = str(Path(sys.executable).with_name("coterie"))
RECORD = Record("t", 1, 7, 1_000, TimestampType.CREATE_TIME, b"k", b"v\xff", (("a", b"1"), ("b", None)), 0)


@pytest.fixture(scope="module")
def broker() -> Iterator[coterie.Broker]:
    with coterie.Broker(settings={"group.initial.rebalance.delay.ms": 0}) as running:
        yield running


@pytest.fixture
def topic(request: pytest.FixtureRequest, broker: coterie.Broker) -> str:
    """Two partitions with the values 0:0 to 0:2 and 1:0 to 1:2, all of time 1000."""
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name).strip("-")
    with Peer(broker.bootstrap_servers) as peer:
        peer.create(name, 2)
        for number in range(2):
            for at in range(3):
                peer.produce(name, b"%d:%d" % (number, at), partition=number)
    return name


def consume(broker: coterie.Broker, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["consume", *arguments, "--bootstrap", broker.bootstrap_servers])


def lines(done: Result) -> list[str]:
    assert done.exit_code == 0, done.stderr
    return sorted(done.stdout.splitlines())


ALL = ["0:0", "0:1", "0:2", "1:0", "1:1", "1:2"]


def test_everything_that_is_there_and_then_it_ends(broker: coterie.Broker, topic: str) -> None:
    done = consume(broker, topic, "-e")
    assert lines(done) == ALL
    assert done.stderr == "% 6 records\n"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--from", "2"], ["0:2", "1:2"]),
        (["--from", "-1"], ["0:2", "1:2"]),
        (["--from", "-99"], ALL),
        (["--from", "@1000"], ALL),
        (["--from", "@1970-01-02"], []),
        (["--from", "end"], []),
        (["-p", "1"], ["1:0", "1:1", "1:2"]),
        (["-p", "1", "-o", "1"], ["1:1", "1:2"]),
    ],
)
def test_where_it_begins(broker: coterie.Broker, topic: str, arguments: list[str], expected: list[str]) -> None:
    assert lines(consume(broker, topic, "-e", "-q", *arguments)) == expected


def test_so_many_and_no_more(broker: coterie.Broker, topic: str) -> None:
    done = consume(broker, topic, "-c", "1", "-p", "0", "-f", r"%t %p %o %k %v %S %T%%\n")
    assert done.stdout == f"{topic} 0 0 k 0:0 3 1000%\n"
    assert done.stderr == "% 1 record\n"


def test_a_group_commits_what_was_printed_and_goes_on_there(broker: coterie.Broker, topic: str) -> None:
    first = consume(broker, topic, "-g", topic, "-c", "4")
    second = consume(broker, topic, "-g", topic, "-e")
    assert sorted([*lines(first), *lines(second)]) == ALL
    assert f"% assigned {topic}-0, {topic}-1\n" in second.stderr
    with Peer(broker.bootstrap_servers) as peer:
        assert peer.offsets_of(topic) == {(topic, 0): 3, (topic, 1): 3}


def test_it_joins_a_group_of_the_protocol_that_is_given(broker: coterie.Broker, topic: str) -> None:
    """K6: a heartbeat creates a consumer group."""
    first = consume(broker, topic, "-g", topic, "--protocol", "consumer", "-c", "4")
    second = consume(broker, topic, "-g", topic, "--protocol", "consumer", "-e")
    assert sorted([*lines(first), *lines(second)]) == ALL
    with coterie.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        (listed,) = [one for one in admin.list_groups() if one.group_id == topic]
    assert (listed.type, listed.state) == ("consumer", "Empty")
    first_rebalance, *_ = broker.rebalances(topic)
    assert (first_rebalance.group_type, first_rebalance.generation_id, len(first_rebalance.moves)) == ("consumer", 2, 2)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_orderly(broker: coterie.Broker, topic: str, number: signal.Signals) -> None:
    command = [COMMAND, "consume", topic, "-g", f"{topic}-{number}", "-b", broker.bootstrap_servers]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        got = sorted(process.stdout.readline().strip() for _ in range(6))
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
    assert got == ALL and process.returncode == 0 and "% 6 records" in said and "Traceback" not in said
    assert broker.rebalances(f"{topic}-{number}")[-1].reason == "the consumer is being closed"
    with Peer(broker.bootstrap_servers) as peer:
        assert peer.offsets_of(f"{topic}-{number}") == {(topic, 0): 3, (topic, 1): 3}


def test_who_stops_reading_is_no_error(broker: coterie.Broker, topic: str) -> None:
    """As `| head -1` does."""
    command = f"{COMMAND} consume {topic} -q -b {broker.bootstrap_servers} | head -1"
    with subprocess.Popen(["sh", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        with Peer(broker.bootstrap_servers) as peer:
            assert process.stdout is not None and process.stdout.readline()
            peer.produce(topic, b"one more, to be written to nobody")
        out, err = process.communicate(timeout=60)
    assert out == err == ""


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nowhere"], 'topic "nowhere" does not exist'),
        (["{topic}", "-p", "5"], "has no partition 5; it has 0 to 1"),
        (["{topic}", "-g", "g", "-p", "0"], "--group and --partition contradict each other"),
        (["{topic}", "-g", "g", "--from", "3"], "coterie groups reset"),
        (["{topic}", "--protocol", "consumer"], "--protocol is that of a group: give --group, too"),
        (["{topic}", "--from", "yesterday"], "beginning, end, an offset"),
        (["{topic}", "--from", "@yesterday"], "is not a time"),
        (["{topic}", "--json", "-K", ":"], "--json cannot be combined with --format"),
        (["{topic}", "-f", "%v", "-K", ":"], "--format cannot be combined with --key-delimiter"),
        (["{topic}", "-f", "%x"], '--format does not know "%x"'),
        (["{topic}", "--set", "fetch.min.byte=1"], "fetch.min.bytes"),
    ],
)
def test_what_cannot_be_is_said_in_words(broker: coterie.Broker, topic: str, arguments: list[str], says: str) -> None:
    done = consume(broker, *[one.format(topic=topic) for one in arguments])
    assert done.exit_code == 1 and done.stdout == ""
    assert done.stderr.startswith("coterie: ") and says in done.stderr


def test_formats() -> None:
    assert as_format(r"%h|%K|%s\t\x41\\")(RECORD) == b"a=1,b=|1|v\xff\tA\\"
    nothing = Record("t", 0, 0, 0)
    assert as_format("%k:%v")(nothing) == b":" and as_format("%k:%v %K %S", b"NULL")(nothing) == b"NULL:NULL -1 -1"
    for wrong in ("%", "\\", r"\q", "%z"):
        with pytest.raises(CoterieError, match="it knows"):
            as_format(wrong)


def test_json_keeps_bytes_that_are_no_text() -> None:
    assert json.loads(as_json(RECORD)) == {
        "topic": "t",
        "partition": 1,
        "offset": 7,
        "timestamp": 1_000,
        "key": "k",
        "value": {"base64": "dv8="},
        "headers": [["a", "1"], ["b", None]],
    }


def test_that_nobody_is_there_is_known_after_ten_seconds_unless_it_is_set() -> None:
    assert _settings(ConsumeOptions(["t"])).default_api_timeout_ms == 10_000
    assert _settings(ConsumeOptions(["t"], sets=["default.api.timeout.ms=70000"])).default_api_timeout_ms == 70_000


def test_a_member_says_that_no_broker_is_there_and_ends() -> None:
    nowhere = ["consume", "t", "-g", "g", "-b", "127.0.0.1:1", "--set", "default.api.timeout.ms=3000"]
    done = CliRunner().invoke(app, nowhere)
    assert done.exit_code == 1
    assert done.stderr.startswith("coterie: ") and "127.0.0.1:1" in done.stderr


def test_a_member_of_a_topic_that_is_not_there_says_what_it_waits_for(broker: coterie.Broker) -> None:
    command = [COMMAND, "consume", "not-yet", "-g", "early", "-b", broker.bootstrap_servers]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == '% topic "not-yet" does not exist yet; waiting for it\n'
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 0


def test_without_an_address_it_is_the_usual_one() -> None:
    assert _settings(ConsumeOptions(["t"])).addresses == (Address("127.0.0.1", 9092),)


def test_a_broker_that_vanishes_is_told_on_standard_error_unless_it_is_to_be_quiet() -> None:
    settings = {"group.initial.rebalance.delay.ms": 0}
    for quiet in ([], ["-q"]):
        with coterie.Broker(settings=settings) as broker:
            with Peer(broker.bootstrap_servers) as peer:
                peer.create("t", 1)
                peer.produce("t", b"here")
            command = [COMMAND, "consume", "t", "-g", "g", "-b", broker.bootstrap_servers, *quiet]
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
                assert process.stdout is not None and process.stderr is not None
                assert process.stdout.readline() == "here\n"
                broker.stop()
                if not quiet:
                    assert process.stderr.readline() == "% assigned t-0\n"
                    said = process.stderr.readline()
                    assert said.startswith("% cannot connect to 127.0.0.1:") and "connection refused" in said
                process.send_signal(signal.SIGKILL)
                if quiet:
                    assert process.stderr.read() == ""
