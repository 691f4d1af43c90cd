"""The test controls over HTTP: every operation works, and all of the Python API is reachable."""

from __future__ import annotations

import inspect
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError

import pytest
from typer.testing import CliRunner

from coterie.broker.io.server import listeners_of
from coterie.cli.app import app
from coterie.errors import CoterieError
from coterie.settings.broker_settings import BrokerSettings
from coterie.testing import BrokerClock, Fault, FaultBuilder, Faults, Group, Topic
from coterie.testing.controlled_server import ControlledServer
from coterie.testing.http_controls import ControlServer, ServedBroker, TestControls
from coterie.testing.http_controls.http_server import MOST_BYTES
from coterie.testing.http_controls.openapi import description
from coterie.testing.http_controls.operations import OPERATIONS, _function
from coterie.testing.kafka_broker import TEST_SETTINGS
from coterie.web.web_server import is_loopback
from testing.consumers import ours

SETTINGS = {**TEST_SETTINGS, "listeners": "PLAINTEXT://127.0.0.1:0"}


class Answer(NamedTuple):
    status: int
    value: Any


class Client:
    """What a test in another language has: HTTP and JSON."""

    def __init__(self, url: str, token: str = "") -> None:
        self.url = url
        self.token = token
        self.called: set[tuple[str, str]] = set()

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        self.called.add((method, path.partition("?")[0]))
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return Answer(answer.status, json.loads(answer.read()))
        except HTTPError as error:
            with error:
                return Answer(error.code, json.loads(error.read()))

    def get(self, path: str) -> Any:
        return self._well(self.ask("GET", path))

    def post(self, path: str, **body: Any) -> Any:
        return self._well(self.ask("POST", path, body))

    def delete(self, path: str) -> Any:
        return self._well(self.ask("DELETE", path))

    @staticmethod
    def _well(answer: Answer) -> Any:
        assert answer.status == 200, answer
        return answer.value


@contextmanager
def controlled(nodes: int = 1, token: str = "", **more: Any) -> Iterator[tuple[TestControls, Client]]:
    settings = BrokerSettings.of({**SETTINGS, **more})
    controls = TestControls(lambda: ServedBroker(settings, listeners_of(settings), nodes=nodes))
    controls.start()
    try:
        with ControlServer(controls, token=token) as server:
            yield controls, Client(server.url, token)
    finally:
        controls.stop()


@pytest.fixture
def client() -> Iterator[Client]:
    with controlled() as (_, client):
        yield client


@pytest.fixture(scope="module")
def shared() -> Iterator[Client]:
    """For tests that change nothing."""
    with controlled() as (_, client):
        yield client


# --- every operation --------------------------------------------------------------------------------------------------


def test_every_operation_works() -> None:
    with controlled(nodes=2) as (controls, client):
        at = client.get("/")["bootstrap_servers"]
        assert at == controls.broker.bootstrap_servers and at.count(",") == 1
        _topics_and_records(client)
        _groups(client, controls)
        _clock(client)
        _faults(client, controls)
        client.post("/restart")
        assert client.get("/topics/orders") == {"name": "orders", "partitions": 2}
        assert client.post("/reset")["bootstrap_servers"] == at
        assert client.get("/topics/orders")["partitions"] == 0 and client.get("/faults") == []
        assert client.get("/facts") == [] and client.get("/requests") == []
    patterns = {(one.method, one.pattern): one.name for one in OPERATIONS}
    worked = {
        name
        for (method, pattern), name in patterns.items()
        if any(method == used and pattern.fullmatch(path) for used, path in client.called)
    }
    assert sorted(worked) == sorted(one.name for one in OPERATIONS)


def _topics_and_records(client: Client) -> None:
    assert client.post("/topics", name="orders", partitions=2, configs={"retention.ms": 60_000}) == {
        "name": "orders",
        "partitions": 2,
    }
    given = [{"key": "k", "value": "x"}, {"value": {"base64": "/w=="}}, {"key": "gone"}]
    written = client.post("/topics/orders/records", records=given, partition=1, headers={"h": "1"}, timestamp=7)
    assert [one["offset"] for one in written] == [0, 1, 2]
    assert written[1] == {
        "topic": "orders",
        "partition": 1,
        "offset": 1,
        "key": None,
        "value": {"base64": "/w=="},
        "headers": [{"key": "h", "value": "1"}],
        "timestamp": 7,
    }
    assert client.get("/topics/orders/records") == written
    assert client.post("/topics/orders/wait-records", count=3, partition=1, timeout=60) == written
    done = ["x", {"base64": "/w=="}, None]
    assert client.post("/topics/orders/assert-processed-once", processed=done) is None
    status, problem = client.ask("POST", "/topics/orders/assert-processed-once", {"processed": ["x", "x"]})
    assert status == 409 and "processed too often: b'x'" in problem["message"]


def _groups(client: Client, controls: TestControls) -> None:
    a = ours(controls.broker, "a")
    stable = client.post("/groups/billing/wait-stable", members=1, partitions=2, timeout=60)
    assert stable["assignment"] == {"a": ["orders-0", "orders-1"]} and stable["members"][0]["client_id"] == "a"
    assert client.post("/groups/billing/wait-members", members=1)["state"] == "Stable"
    client.post("/groups/billing/wait-assigned", assignment={"a": ["orders-0", "orders-1"]})
    assert client.post("/groups/billing/wait-committed", topic="orders", partition=1, offset=3, timeout=60) == 3
    assert client.get("/groups/billing")["committed"]["orders-1"] == 3
    assert client.get("/groups") == ["billing"]
    rebalance = client.post("/groups/billing/wait-rebalance", cause="new member", timeout=60)
    assert rebalance["cause"] == "new member" and rebalance in client.get("/groups/billing/rebalances")
    joined = client.get("/requests?api=JoinGroup&group=billing")
    assert {one["api"] for one in joined} == {"JoinGroup"} and joined[-1]["body"]["group_id"] == "billing"
    assert any(fact["fact"] == "MemberJoined" for fact in client.get("/facts"))
    assert "a joined" in client.get("/story?group_id=billing")
    assert client.post("/groups/billing/wait-running", members=1, timeout=60)["state"] == "Stable"
    cut_off = client.post("/faults/cut-off", client_id="a")["number"]
    assert not client.post("/groups/billing/wait-disconnected", member="a", timeout=60)["members"][0]["is_connected"]
    assert client.delete(f"/faults/{cut_off}")["count"] > 0
    client.post("/clock/silence", member="a")
    assert client.post("/groups/billing/wait-rebalance", cause="session expired", timeout=60)["culprit"].startswith("a")
    a.stop()
    assert client.post("/groups/billing/wait-empty", timeout=60)["members"] == []


def _clock(client: Client) -> None:
    before = client.get("/clock")
    client.post("/clock/freeze")
    client.post("/clock/advance", seconds=45)
    after = client.get("/clock")
    assert after["is_frozen"] and not before["is_frozen"] and after["now_ms"] - before["now_ms"] >= 45_000
    client.post("/clock/resume")
    assert not client.get("/clock")["is_frozen"]


def _faults(client: Client, controls: TestControls) -> None:
    numbers = [
        client.post(f"/faults/{path}", api="OffsetCommit", group="nobody", **more)["number"]
        for path, more in (
            ("answer", {"error": "NOT_COORDINATOR", "times": 2}),
            ("delay", {"seconds": 0.1}),
            ("hold", {}),
            ("drop-connection", {"nth": 2}),
            ("lose-answer", {}),
            ("garble", {}),
            ("throttle", {"ms": 10}),
            ("move-coordinator-on", {"node": 2}),
            ("expire-member-on", {}),
        )
    ]
    assert [one["number"] for one in client.get("/faults") if one["is_in_force"]] == numbers
    for number in numbers[1:]:
        assert not client.post(f"/faults/{number}/abandon")["is_in_force"]
    status, problem = client.ask("DELETE", f"/faults/{numbers[0]}")
    assert status == 409 and problem["error"] == "FaultNotFiredError" and "never fired" in problem["message"]
    assert client.get(f"/faults/{numbers[0]}")["is_in_force"] is False  # it has ended all the same
    for path, given in (
        ("move-coordinator", {"group": "billing", "node": 2}),
        ("stop-node", {"node": 2}),
        ("crash", {"lose_unsynced": False}),
    ):
        begun = client.post(f"/faults/{path}", **given)
        assert client.delete(f"/faults/{begun['number']}")["count"] == 1
    full = client.post("/faults/disk-full")["number"]
    status, _ = client.ask("POST", "/topics", {"name": "more"})
    assert status == 400 and client.delete(f"/faults/{full}")["hits"]
    slow = client.post("/faults/slow-disk", seconds=0.01)["number"]
    client.post("/topics/orders/records", records=[{"value": "y"}])
    client.post(f"/faults/{slow}/wait-hit", timeout=60)
    lost = client.post("/faults/lose-answer", api="FindCoordinator", group="other", times=1)["number"]
    other = ours(controls.broker, "b", group_id="other")
    assert client.post(f"/faults/{lost}/wait-hit", count=1, timeout=60) == 1
    hit = client.get(f"/faults/{lost}")["hits"][0]
    assert hit["api"] == "FindCoordinator" and hit["groups"] == ["other"] and hit["fault"] == "lose the answer"
    client.post("/groups/other/wait-stable", timeout=60)
    other.stop()
    ended = client.delete("/faults")
    assert {one["number"]: one["count"] for one in ended}[lost] == 1
    assert not any(one["is_in_force"] for one in ended)


def test_every_wait_fault_and_move_of_the_clock_of_the_python_api_is_reachable() -> None:
    reached = {_function(step).__qualname__ for one in OPERATIONS for step in one.chain}
    by_our_own = {"Fault.begin", "Fault.end", "Fault.abandon", "BrokerClock.frozen"}
    for kind in (Group, Topic, BrokerClock, FaultBuilder, Faults, Fault):
        for name, _ in inspect.getmembers(kind, inspect.isfunction):
            if name.startswith("_") or name.endswith("_async") or name == "assert_no_rebalance":
                continue
            assert {f"{kind.__name__}.{name}"} <= reached | by_our_own


# --- the description --------------------------------------------------------------------------------------------------


def test_the_description_is_of_the_operations_that_are_routed(shared: Client) -> None:
    described = shared.get("/openapi.json")
    assert described == json.loads(json.dumps(description())) and described["openapi"] == "3.1.0"
    found = {
        (one["operationId"], method.upper(), path)
        for path, methods in described["paths"].items()
        for method, one in methods.items()
    }
    assert found == {(one.name, one.method, one.path) for one in OPERATIONS}
    for path, methods in described["paths"].items():
        for one in methods.values():
            in_path = [each["name"] for each in one.get("parameters", ()) if each["in"] == "path"]
            assert in_path == re.findall(r"{(\w+)}", path)
            assert one["summary"].endswith((".", ".)")) and set(one["responses"]) >= {"200", "400"}
    for name in re.findall(r'"#/components/schemas/(\w+)"', json.dumps(described)):
        assert "properties" in described["components"]["schemas"][name]
    wait = described["paths"]["/groups/{group_id}/wait-stable"]["post"]
    schema = wait["requestBody"]["content"]["application/json"]["schema"]
    assert schema["properties"]["members"]["type"] == ["integer", "null"] and "409" in wait["responses"]
    assert schema["properties"]["timeout"] == {
        "type": "number",
        "description": "How many seconds to wait at most.",
        "default": 30.0,
    }


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "message"),
    [
        ("GET", "/nothing", None, 404, "/openapi.json lists all operations"),
        ("PUT", "/topics", None, 405, "/topics has no PUT: it has POST"),
        ("OPTIONS", "/openapi.json", None, 405, "it has GET"),
        ("POST", "/topics", b"{", 400, "the body is no JSON"),
        ("POST", "/topics", b"[" * 100_000, 400, "the body is no JSON"),
        ("POST", "/topics", b"\xff", 400, "the body is no JSON"),
        ("POST", "/topics", b"[]", 400, "must be a JSON object"),
        ("POST", "/topics", {}, 400, "createTopic needs the parameter 'name'"),
        ("POST", "/topics", {"name": 5}, 400, "name is 5: it must be text"),
        ("POST", "/topics", {"name": "x", "partitions": True}, 400, "partitions is True: it must be a whole number"),
        ("POST", "/topics", {"name": "x", "partitions": 1e3}, 400, "must be a whole number"),
        ("POST", "/topics", {"name": "x", "partitions": 2**70}, 400, "the most is"),
        ("POST", "/topics", {"name": "x", "partition": 2}, 400, "did you mean partitions?"),
        ("POST", "/topics", {"name": "x/y"}, 400, "INVALID_TOPIC_EXCEPTION"),
        ("POST", "/topics?name=x", {"name": "x"}, 400, "in the body"),
        ("POST", "/topics/no/records", {"records": [{"value": "x"}]}, 400, "there is no such topic"),
        ("POST", "/topics/no/records", {"records": [{"valu": "x"}]}, 400, "records[0] has no 'valu'"),
        ("POST", "/topics/no/records", {"records": [{"value": {"base64": "?"}}]}, 400, "it must be base64"),
        ("GET", "/topics/no/records", b"{}", 400, "GET takes its parameters in the query"),
        ("GET", "/requests?apis=x", None, 400, "did you mean api?"),
        ("GET", "/requests?api=Offset", None, 400, "there is no API 'Offset'"),
        ("POST", "/groups/g/wait-stable", b'{"timeout": NaN}', 400, "NaN is no number of JSON"),
        ("POST", "/groups/g/wait-stable", {"timeout": -1}, 400, "from 0 to 3600"),
        ("POST", "/groups/g/wait-stable", {"timeout": 1e5}, 400, "from 0 to 3600"),
        ("POST", "/groups/g/wait-stable", {"timeout": 0}, 409, "waited 0 s for group g to be Stable"),
        ("POST", "/clock/advance", {"seconds": 1e300}, 400, "the most is"),
        ("POST", "/clock/advance", {"seconds": 0}, 400, "goes forward only"),
        ("POST", "/clock/silence", {"member": "a"}, 400, "no member 'a'"),
        ("POST", "/faults/answer", {"api": "Heartbeat", "error": "NOT"}, 400, "there is no error 'NOT'"),
        ("POST", "/faults/stop-node", {"node": 1}, 400, "the only one that runs"),
        ("GET", "/faults/x", None, 400, "number is 'x': it must be a whole number"),
        ("DELETE", "/faults/5", None, 404, "no fault 5"),
    ],
)
def test_what_is_not_allowed_is_said_in_a_sentence(
    shared: Client, method: str, path: str, body: Any, status: int, message: str
) -> None:
    answer = shared.ask(method, path, body)
    assert answer.status == status and message in answer.value["message"]
    assert "Traceback" not in answer.value["message"]
    assert shared.get("/")


@pytest.mark.parametrize(
    ("sent", "status", "message"),
    [
        (b"nonsense\r\n\r\n", b"400", b"Bad request"),
        (b"GET / HTTP/9.9\r\n\r\n", b"505", b"Invalid HTTP version"),
        (b"BREW / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"501", b"Unsupported method"),
        (b"POST /reset HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n", b"400", b"a number of bytes"),
        (
            b"POST /reset HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (MOST_BYTES + 1),
            b"413",
            b"the most is",
        ),
        (
            b"POST /reset HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            b"411",
            b"Content-Length",
        ),
        (
            b"GET / HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n",
            b"403",
            b"only programs of this machine",
        ),
        (
            b"GET / HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\nConnection: close\r\n\r\n",
            b"403",
            b"no pages of a browser",
        ),
        (b"GET / HTTP/1.1\r\nHost: localhost:1\r\nConnection: close\r\n\r\n", b"200", b"bootstrap_servers"),
        (b"HEAD / HTTP/1.1\r\nHost: [::1]:1\r\nConnection: close\r\n\r\n", b"200", b"Content-Length"),
    ],
)
def test_what_is_no_request_is_answered_too(shared: Client, sent: bytes, status: bytes, message: bytes) -> None:
    host, _, port = shared.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(sent)
        received = b""
        while data := connection.recv(65_536):  # to the end: the server closes it
            received += data
    assert received.startswith(b"HTTP/1.1 " + status) and message in received


def test_a_token_is_asked_for() -> None:
    with controlled(token="secret") as (_, client):
        assert client.get("/")
        assert client.ask("GET", "/", Origin="http://localhost").status == 200
        for token in ("", "other", "secre", "sécret"):
            status, problem = Client(client.url, token.encode().decode("latin-1")).ask("POST", "/reset")
            assert status == 401 and "Authorization: Bearer" in problem["message"]


def test_other_machines_are_kept_out_without_a_token() -> None:
    with controlled() as (controls, _):
        with pytest.raises(CoterieError, match=r"test controls at 0\.0\.0\.0 could be used from other machines"):
            ControlServer(controls, "0.0.0.0")
        ControlServer(controls, "0.0.0.0", token="secret").start().stop()
    assert all(map(is_loopback, ("127.0.0.1", "127.8.9.1", "::1", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "localhost.example.org", "")))


def test_a_wait_ends_when_what_it_waits_for_happens_and_when_the_broker_is_reset() -> None:
    answers: list[Answer] = []
    with controlled() as (controls, client):

        def wait(count: int) -> None:
            answers.append(client.ask("POST", "/topics/orders/wait-records", {"count": count, "timeout": 60}))

        def is_waited_for(server: ControlledServer) -> bool | None:
            return True if len(server.controls.waits._waiting) == 2 else None  # the other one is this

        client.post("/topics", name="orders")
        for count, then in ((1, "/topics/orders/records"), (9, "/reset")):
            waiting = threading.Thread(target=wait, args=(count,))
            waiting.start()
            controls.broker.wait("the wait to begin", is_waited_for, timeout=60)
            client.post(then, **({"records": [{"value": "x"}]} if count == 1 else {}))
            waiting.join(60)
    assert [one.status for one in answers] == [200, 503]
    assert "stopped while the test waited" in answers[1].value["message"]


def test_a_mistake_of_ours_is_answered_and_the_server_goes_on(
    client: Client, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(_controls: TestControls) -> None:
        raise KeyError("no such key")

    monkeypatch.setattr(TestControls, "about", fail)
    status, problem = client.ask("GET", "/")
    assert status == 500 and "please report it: KeyError('no such key')" in problem["message"]
    assert "Traceback" in capfd.readouterr().err  # for us
    assert client.get("/clock")


def test_a_broker_with_data_is_not_reset(tmp_path: Path) -> None:
    settings = BrokerSettings.of(SETTINGS)
    controls = TestControls(lambda: ServedBroker(settings, listeners_of(settings), data=tmp_path))
    controls.start()
    with ControlServer(controls) as server:
        status, problem = Client(server.url).ask("POST", "/reset")
    controls.stop()
    assert status == 400 and "start it without --data" in problem["message"]


# --- the command ------------------------------------------------------------------------------------------------------


def _served(*options: str, **environment: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "coterie", "serve", "--test-controls", "--controls", "127.0.0.1:0", *options]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | environment
    )


def test_the_command_serves_the_controls_and_understands_the_environment_of_kafkas_image(tmp_path: Path) -> None:
    environment = {
        "KAFKA_NODE_ID": "1",
        "KAFKA_PROCESS_ROLES": "broker,controller",
        "KAFKA_LISTENERS": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:29093",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:29093",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
        "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "3000",
        "KAFKA_NUM_PARTITIONS": "4",
        "KAFKA_LOG_DIRS": str(tmp_path / "not-made"),
        "KAFKA_HEAP_OPTS": "-Xmx1G",
        "CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw",
        "COTERIE_BOOTSTRAP_SERVERS": "of the test around",
    }
    with _served(**environment) as process:
        assert process.stdout is not None and process.stderr is not None
        try:
            ready = re.fullmatch(
                r"ready (127\.0\.0\.1:[0-9]+) controls (http://127\.0\.0\.1:[0-9]+)\n", process.stdout.readline()
            )
            assert ready is not None
            client = Client(ready[2])
            assert client.get("/")["bootstrap_servers"] == ready[1]
            client.post("/topics", name="default", partitions=-1)
            assert client.get("/topics/default")["partitions"] == 4
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
            log = process.stderr.read()
        finally:
            process.kill()
    for name in ("process.roles", "controller.quorum.voters", "offsets.topic.replication.factor", "log.dirs"):
        assert re.search(rf"{re.escape(name)}.* has no effect", log), log
    assert "group.initial" not in log and not (tmp_path / "not-made").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--controls", "0.0.0.0:0"], "could be used from other machines"),
        (["--controls", "here"], "'here' is not an address"),
        (["--memory", "--data", "x"], "contradict each other"),
        (["--nodes", "2", "--set", "listeners=A://:1,B://:2"], "no security protocol"),
    ],
)
def test_the_command_refuses_what_cannot_be(options: list[str], message: str) -> None:
    ended = CliRunner().invoke(app, ["serve", "--port", "0", "--test-controls", *options])
    assert ended.exit_code == 1 and message in ended.stderr
