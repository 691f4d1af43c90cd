"""Findings go to a webhook when they begin and end, and a receiver that fails stops nobody."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from queue import Queue
from typing import Any

import pytest

from coterie.diagnosis import Finding, Severity
from coterie.errors import CoterieError
from coterie.web.webhook import FindingsWebhook, finding_changes

CRASH = Finding("crash", Severity.WARNING, "g", "a crashed.", "Look at its log.", 0, 1, ("a",))
STORM = Finding("autoscaler-storm", Severity.CRITICAL, "g", "Too many.", "Wait.", 0, 1)


class Receiver(HTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.got: Queue[Any] = Queue()
        self.failures = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hook?secret=1"


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        receiver = self.server
        assert isinstance(receiver, Receiver)
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        fails = receiver.failures > 0
        receiver.failures -= fails
        self.send_response(500 if fails else 204)
        self.end_headers()
        if not fails:
            receiver.got.put(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_finding_is_told_when_it_begins_and_when_it_is_over(receiver: Receiver) -> None:
    hook = FindingsWebhook(receiver.url, pytest.fail)
    hook.update([CRASH])
    hook.update([CRASH, STORM])
    hook.update([STORM])
    told = [receiver.got.get(timeout=60) for _ in range(3)]
    assert [(one["status"], one["name"]) for one in told] == [
        ("firing", "crash"),
        ("firing", "autoscaler-storm"),
        ("resolved", "crash"),
    ]
    assert told[0]["group"] == "g" and told[0]["severity"] == "warning" and told[0]["advice"]
    hook.close()


def test_it_is_tried_again_and_then_given_up_with_a_word_about_it(receiver: Receiver) -> None:
    problems: Queue[str] = Queue()
    hook = FindingsWebhook(receiver.url, problems.put, pause_s=0.001)
    receiver.failures = 2
    hook.update([CRASH])
    assert receiver.got.get(timeout=60)["name"] == "crash"
    receiver.failures = 3
    hook.update([])
    problem = problems.get(timeout=60)
    assert "did not take the finding crash" in problem and "500" in problem and "secret" not in problem
    hook.close()


def test_what_has_not_changed_is_not_told() -> None:
    known: dict[Any, Finding] = {}
    assert len(finding_changes(known, [CRASH])) == 1
    assert finding_changes(known, [CRASH]) == []


@pytest.mark.parametrize("url", ["", "ftp://host/x", "file:///etc/passwd", "http://"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(CoterieError, match="is not an address"):
        FindingsWebhook(url, pytest.fail)
