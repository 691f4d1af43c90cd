"""The server of the page: what it answers, to whom, and that it changes nothing."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from coterie.diagnosis import Grade
from coterie.errors import CoterieError
from coterie.web.app import WebApp
from coterie.web.groups import WatchedGroups, from_facts
from coterie.web.web_server import WebAddress, WebServer
from web.page_groups import small_group


@contextmanager
def serving(groups: WatchedGroups, token: str = "") -> Iterator[str]:
    address = WebAddress("127.0.0.1", 0, token)
    with WebServer(WebApp(groups).guarded(token, address.host), address) as server:
        yield server.url


def _lower(headers: Any) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def ask(url: str, headers: Mapping[str, str] | None = None, method: str = "GET") -> tuple[int, Mapping[str, str], str]:
    class NoRedirects(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_: Any) -> None:
            return None

    opener = urllib.request.build_opener(NoRedirects)
    try:
        with opener.open(urllib.request.Request(url, headers=dict(headers or {}), method=method), timeout=60) as answer:
            return answer.status, _lower(answer.headers), answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, _lower(error.headers), error.read().decode()


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    groups = from_facts(small_group(), Grade.OBSERVED, "broker", title="My <groups>")
    with serving(groups) as where:
        yield where


def test_it_serves_the_page_the_groups_and_their_stories(url: str) -> None:
    status, headers, page = ask(url)
    assert status == 200 and "My &lt;groups&gt;" in page and "script-src 'self'" in headers["content-security-policy"]
    assert "Coterie.GroupPage" in ask(f"{url}/page.js")[2] and "--ink" in ask(f"{url}/page.css")[2]
    (row,) = json.loads(ask(f"{url}/api/groups")[2])["groups"]
    assert row["group"] == "billing" and row["rebalances"] == 5
    detail = json.loads(ask(f"{url}/api/groups/billing?block=0")[2])
    last = detail["rows"][-1]
    story = json.loads(ask(f"{url}/api/story/billing?at={last['at']}&number={last['number']}")[2])
    assert story["number"] == 5 and story["statements"]
    assert "coterie_group_rebalances_total" in ask(f"{url}/metrics")[2]
    assert ask(f"{url}/healthz")[2] == "ok\n"


@pytest.mark.parametrize(
    "path", ["/api/groups/none", "/api/groups/a%2Fb", "/api/story/billing?at=x&number=9", "/nothing"]
)
def test_what_is_not_there_is_not_found(url: str, path: str) -> None:
    assert ask(url + path)[0] == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_it_is_read_only(url: str, method: str) -> None:
    assert ask(f"{url}/api/groups", method=method)[0] == 405


def test_pages_of_other_sites_that_lead_here_are_refused(url: str) -> None:
    status, _, said = ask(url, {"Host": "evil.example.org"})
    assert status == 403 and "127.0.0.1" in said
    assert ask(url, {"Host": "localhost:1"})[0] == 200


def test_with_a_token_only_those_who_have_it_are_let_in() -> None:
    with serving(WatchedGroups(), "se cret/ü") as where:
        assert ask(where)[0] == ask(f"{where}/metrics")[0] == ask(f"{where}/?token=wrong")[0] == 401
        status, headers, _ = ask(f"{where}/?token=se%20cret%2F%C3%BC")
        assert status == 303 and "HttpOnly" in headers["set-cookie"] and "SameSite=strict" in headers["set-cookie"]
        cookie = headers["set-cookie"].partition(";")[0]
        assert ask(where, {"Cookie": cookie})[0] == ask(f"{where}/api/groups", {"Cookie": cookie})[0] == 200
    with serving(WatchedGroups(), "secret") as where:
        assert ask(f"{where}/metrics", {"Authorization": "Bearer secret", "Host": "page.example.org"})[0] == 200


def test_other_machines_need_a_token_and_a_taken_port_is_named() -> None:
    with pytest.raises(CoterieError, match="COTERIE_WEB_TOKEN"):
        WebAddress("0.0.0.0", 0, "")
    taken = WebAddress("127.0.0.1", 0, "")
    port = taken.socket.getsockname()[1]
    with taken.socket, pytest.raises(CoterieError, match=f"cannot listen on 127.0.0.1:{port}: .*in use"):
        WebAddress("127.0.0.1", port, "")


def test_changes_are_told_as_they_happen() -> None:
    facts = list(small_group())
    groups = WatchedGroups()
    with serving(groups) as where, urllib.request.urlopen(f"{where}/api/events", timeout=60) as events:
        assert events.headers["Content-Type"].startswith("text/event-stream")
        assert events.readline() == b"retry: 1000\n"
        groups.tell(facts[0])
        lines = iter(events.readline, b"")
        assert next(line for line in lines if line.startswith(b"data:")) == b'data: {"groups": ["billing"]}\n'
