"""Send findings to a webhook: a JSON object for each change, when a finding is new and when it is over.

A thread of its own sends them, one after the other. If the receiver does not answer, each is tried three times; the
oldest that wait are dropped if too many do.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Sequence
from http.client import HTTPException
from typing import Any
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from coterie.diagnosis import Finding
from coterie.errors import CoterieError

MOST_WAITING = 1_000
TRIES = 3
TIMEOUT_S = 10.0
PAUSE_S = 1.0
Key = tuple[str, str, tuple[str, ...]]


def _key(finding: Finding) -> Key:
    return finding.group_id, finding.name, finding.members


def finding_changes(known: dict[Key, Finding], now: Sequence[Finding]) -> list[dict[str, Any]]:
    """Return what is new and what is over, and change `known` to what is now."""
    found = {_key(one): one for one in now}
    changes = [{"status": "firing", **one.to_json()} for key, one in found.items() if key not in known]
    changes += [{"status": "resolved", **one.to_json()} for key, one in known.items() if key not in found]
    known.clear()
    known.update(found)
    return changes


def check_webhook(url: str) -> str:
    """Return what may be shown of an address: its path may have a secret. Raises an error if it is no address."""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise CoterieError(f"--webhook {url!r} is not an address: give http://HOST/PATH or https://HOST/PATH")
    return f"{parts.scheme}://{parts.hostname}"


class FindingsWebhook:
    def __init__(self, url: str, on_problem: Callable[[str], None], *, pause_s: float = PAUSE_S) -> None:
        self._shown = check_webhook(url)
        self._url = url
        self._on_problem = on_problem
        self._pause_s = pause_s
        self._known: dict[Key, Finding] = {}
        self._waiting: deque[dict[str, Any]] = deque(maxlen=MOST_WAITING)
        self._wake = threading.Condition()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="coterie-webhook", daemon=True)
        self._thread.start()

    def update(self, findings: Sequence[Finding]) -> None:
        """Send what has changed since the last call."""
        changes = finding_changes(self._known, findings)
        with self._wake:
            self._waiting.extend(changes)
            self._wake.notify()

    def close(self) -> None:
        """Stop, without waiting for the receiver."""
        with self._wake:
            self._is_closed = True
            self._wake.notify()

    def _run(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._waiting or self._is_closed)
                if self._is_closed:
                    return
                change = self._waiting.popleft()
            self._send(change)

    def _send(self, change: dict[str, Any]) -> None:
        body = json.dumps(change).encode()
        for attempt in range(1, TRIES + 1):
            request = Request(self._url, body, {"Content-Type": "application/json"}, method="POST")  # noqa: S310
            try:
                with urlopen(request, timeout=TIMEOUT_S):  # noqa: S310  the scheme was checked
                    return
            except (URLError, HTTPException, OSError) as error:
                if attempt == TRIES:
                    self._on_problem(f"the webhook {self._shown} did not take the finding {change['name']}: {error}")
            with self._wake:
                if self._wake.wait_for(lambda: self._is_closed, self._pause_s * attempt):
                    return
