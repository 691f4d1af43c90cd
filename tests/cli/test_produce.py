from __future__ import annotations

import errno
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import coterie
from broker.peer import Peer
from cli.background import AS_A_BACKGROUND_JOB
from coterie.cli.app import app
from coterie.cli.produce import DEFAULTS, InputError, InputRecord, parse_record, read_json, split_lines
from coterie.protocol.batch import Compression, batches
from coterie.protocol.records import BatchRecord, records
from coterie.settings.client_settings import Address
from coterie.settings.producer_settings import ProducerSettings

COMMAND = str(Path(sys.executable).with_name("coterie"))


@pytest.fixture(scope="module")
def broker() -> Iterator[coterie.Broker]:
    with coterie.Broker() as running:
        yield running


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    wanted = request.node.name.removeprefix("test_")
    return "".join(letter if letter.isalnum() else "-" for letter in wanted).strip("-")[:80]


def produce(broker: coterie.Broker, *arguments: str, stdin: str | bytes = b"") -> Result:
    command = ["produce", *arguments, "--bootstrap", broker.bootstrap_servers]
    return CliRunner().invoke(app, command, input=stdin)


def read(broker: coterie.Broker, topic: str) -> list[BatchRecord]:
    with Peer(broker.bootstrap_servers) as peer:
        data = peer.fetch(topic, 0).records or b""
    return [record for at, header in batches(data) for record in records(data, header, at)]


def test_lines_of_standard_input_become_records(broker: coterie.Broker, topic: str) -> None:
    done = produce(broker, topic, stdin="one\ntwo\n\nthree")
    assert done.exit_code == 0, done.stderr
    assert done.stdout == "" and done.stderr.startswith(f"4 records delivered to {topic} in ")
    assert [record.value for record in read(broker, topic)] == [b"one", b"two", b"", b"three"]
    assert {record.key for record in read(broker, topic)} == {None}


def test_keys_headers_files_compression_and_count(broker: coterie.Broker, topic: str, tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    first.write_bytes(b"k1:v:1\nk2:v2\n")
    second.write_bytes(b"no key\n:empty key\nnever\n")
    done = produce(
        broker, topic, str(first), str(second), "-K", ":", "-H", "a=b=c", "-H", "alone", "-z", "gzip", "-c", "4"
    )
    assert done.exit_code == 0, done.stderr
    found = read(broker, topic)
    assert [(record.key, record.value) for record in found] == [
        (b"k1", b"v:1"),
        (b"k2", b"v2"),
        (None, b"no key"),
        (b"", b"empty key"),
    ]
    assert [list(record.headers) for record in found] == [[("a", b"b=c"), ("alone", None)]] * 4
    with Peer(broker.bootstrap_servers) as peer:
        data = peer.fetch(topic, 0).records or b""
    assert {header.compression for _, header in batches(data)} == {Compression.GZIP}


def test_json_lines_say_everything(broker: coterie.Broker, topic: str) -> None:
    lines = """
        {"key": "k", "value": "text", "headers": {"a": "b"}, "partition": 0, "timestamp": 1700000000000}
        {"value": {"of": [1, null]}, "headers": [["twice", "1"], ["twice", "2"]]}
        {"key": {"base64": "AAH/"}}
    """
    done = produce(broker, topic, "--json", stdin=lines)
    assert done.exit_code == 0, done.stderr
    first, second, third = read(broker, topic)
    assert (first.key, first.value, first.timestamp) == (b"k", b"text", 1_700_000_000_000)
    assert (second.value, list(second.headers)) == (b'{"of":[1,null]}', [("twice", b"1"), ("twice", b"2")])
    assert (third.key, third.value) == (b"\x00\x01\xff", None)


def test_what_was_read_before_a_bad_line_is_delivered(broker: coterie.Broker, topic: str) -> None:
    done = produce(broker, topic, "--json", stdin='{"value": "good"}\n{"valeu": "bad"}\n')
    assert done.exit_code == 1
    assert "line 2: unknown field 'valeu'; a record can have key, value, headers, partition, timestamp" in done.stderr
    assert f"1 record delivered to {topic}" in done.stderr
    assert [record.value for record in read(broker, topic)] == [b"good"]


def test_what_was_read_before_the_input_failed_is_delivered(
    broker: coterie.Broker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(source: Iterable[bytes]) -> Iterator[bytes]:
        yield from source
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("coterie.cli.produce._lines", failing)
    (tmp_path / "orders").write_bytes(b"good\n")
    done = produce(broker, topic, str(tmp_path / "orders"))
    assert done.exit_code == 1
    assert "Input/output error" in done.stderr and f"1 record delivered to {topic}" in done.stderr
    assert [record.value for record in read(broker, topic)] == [b"good"]


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ([1], "a record must be a JSON object"),
        ({"partition": -1}, "partition must be a whole number of at least 0, not -1"),
        ({"timestamp": "now"}, 'timestamp must be a whole number of at least -1, not "now"'),
        ({"headers": 1}, "headers must be a JSON object, or a list of"),
        ({"key": {"base64": "?"}}, "the base64 text cannot be decoded"),
        ({"value": "a\ud800"}, r"\\ud800 is only half of a character"),
        ({"value": ["\udfff"]}, r"\\udfff is only half of a character"),
        ({"headers": {"\ud800": "v"}}, r"\\ud800 is only half of a character"),
    ],
)
def test_json_that_is_no_record_is_refused(said: object, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        parse_record(said)


def test_json_that_is_nested_too_deeply_is_refused() -> None:
    with pytest.raises(InputError, match="line 1: the JSON is nested too deeply"):
        list(read_json([b"[" * 100_000]))


def test_what_consume_prints_as_json_can_be_produced_again(broker: coterie.Broker, topic: str) -> None:
    """A record without a timestamp has -1, and stays without."""
    lines = """
        {"key": "k", "value": "text", "headers": [["h", null]], "timestamp": 1700000000000}
        {"key": {"base64": "AAH/"}, "timestamp": -1}
    """
    assert produce(broker, topic, "--json", stdin=lines).exit_code == 0
    command = ["consume", topic, "--json", "-e", "--bootstrap", broker.bootstrap_servers]
    printed = CliRunner().invoke(app, command).stdout
    assert '"topic"' in printed and '"offset"' in printed
    done = produce(broker, f"{topic}-copy", "--json", stdin=printed)
    assert done.exit_code == 0, done.stderr
    assert read(broker, f"{topic}-copy") == read(broker, topic)


def test_empty_values_are_tombstones_if_so_wished() -> None:
    lines = [b"k\t\n", b"\tv\n"]
    assert list(split_lines(lines, r"\t", empty_is_null=True)) == [InputRecord(b"k", None), InputRecord(None, b"v")]
    assert list(split_lines(lines, r"\t", empty_is_null=False)) == [InputRecord(b"k", b""), InputRecord(b"", b"v")]


def test_a_partition_that_is_not_there_is_said_and_ends_with_1(broker: coterie.Broker, topic: str) -> None:
    done = produce(broker, topic, "-p", "9", stdin="x\n")
    assert done.exit_code == 1
    assert "it has 1 partitions, numbered from 0" in done.stderr


def test_what_could_not_be_delivered_is_counted_and_ends_with_1(broker: coterie.Broker, topic: str) -> None:
    with coterie.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        from coterie.client.admin import NewTopic

        admin.create_topics([NewTopic(topic, 1, configs={"max.message.bytes": "200"})])
    done = produce(broker, topic, stdin="small\n" + "x" * 300 + "\nsmall\n")
    assert done.exit_code == 1
    assert "max.message.bytes allows 200" in done.stderr
    assert f"2 records delivered to {topic} in" in done.stderr and "; 1 failed" in done.stderr
    assert [record.value for record in read(broker, topic)] == [b"small", b"small"]


def test_an_unknown_setting_is_refused_with_the_nearest(broker: coterie.Broker) -> None:
    done = produce(broker, "t", "--set", "linger.s=5", stdin="x\n")
    assert done.exit_code == 1
    assert "linger.ms" in done.stderr


@pytest.mark.real_time
@pytest.mark.parametrize("started", [(), AS_A_BACKGROUND_JOB])
def test_an_interrupt_delivers_what_was_read(broker: coterie.Broker, topic: str, started: tuple[str, ...]) -> None:
    """Standard input stays open, as a terminal does. The first line fills a batch, the second would wait for more."""
    lingering = ["--set", "linger.ms=60000", "--set", "batch.size=100"]
    with (
        Peer(broker.bootstrap_servers) as peer,
        subprocess.Popen(
            [*started, COMMAND, "produce", topic, "-b", broker.bootstrap_servers, *lingering],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as running,
    ):
        peer.create(topic)
        assert running.stdin is not None and running.stderr is not None
        running.stdin.write(b"x" * 100 + b"\ntwo\n")
        running.stdin.flush()
        while not peer.fetch(topic, 0, max_wait_ms=100, min_bytes=1).records:
            assert running.poll() is None
        running.send_signal(signal.SIGINT)
        assert b"interrupted" in running.stderr.readline()
        assert running.stderr.readline().startswith(f"2 records delivered to {topic}".encode())
        assert running.wait(60) == 130
    assert [record.value for record in read(broker, topic)] == [b"x" * 100, b"two"]


@pytest.mark.real_time
def test_progress_is_shown_to_a_terminal_after_a_second(broker: coterie.Broker, topic: str) -> None:
    ours, theirs = pty.openpty()
    command = [COMMAND, "produce", topic, "-b", broker.bootstrap_servers]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=theirs) as running:
        os.close(theirs)
        assert running.stdin is not None
        said = b""
        while b"delivered," not in said:
            running.stdin.write(b"line\n" * 100)
            running.stdin.flush()
            os.set_blocking(ours, False)
            try:
                said += os.read(ours, 10_000)
            except BlockingIOError:
                continue
        running.stdin.close()
        assert running.wait(60) == 0
    os.close(ours)
    assert b"records/s" in said


def test_without_an_address_it_is_the_usual_one() -> None:
    assert ProducerSettings.load(defaults=DEFAULTS).addresses == (Address("127.0.0.1", 9092),)


def test_a_cluster_that_is_not_there_is_told_before_the_time_is_up() -> None:
    done = CliRunner().invoke(app, ["produce", "t", "-b", "127.0.0.1:1", "--set", "max.block.ms=200"], input=b"a\n")
    assert done.exit_code == 1
    assert done.stderr.startswith("% cannot connect to 127.0.0.1:1 (bootstrap): ")
    assert done.stderr.count("% ") == 1 and "coterie: sending to topic 't'" in done.stderr
