"""The pages and the API of the web server: read only, JSON, and server-sent events. It needs the extra `web`.

`/` is the page; `/api/groups` all groups, worst first; `/api/groups/NAME` one of them; `/api/story/NAME` one rebalance
with its evidence; `/api/events` says which groups have changed; `/metrics` is for Prometheus.
"""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import quote, urlsplit

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from coterie.diagnosis import Finding
from coterie.errors import CoterieError
from coterie.web.groups import Sampler, WatchedGroups
from coterie.web.metrics import MetricsPage
from coterie.web.page import live_page, script, style
from coterie.web.web_server import is_loopback

TAKE_EVERY_S = 0.2
"""How often facts are looked at: a rebalance is on the page within a second."""
SAMPLE_EVERY_S = 2.0
FIND_EVERY_S = 5.0
"""How often findings are sent on."""
HEARTBEAT_S = 15.0
MOST_LISTENERS = 100
COOKIE = "coterie_token"
_SAFE = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


class ChangeFeed:
    """Sends the names of changed groups to every open page. A slow reader gets the names together, later."""

    def __init__(self) -> None:
        self._listeners: dict[asyncio.Event, set[str]] = {}

    def publish(self, changed: set[str]) -> None:
        """Add the names of changed groups to what each open page gets next."""
        for event, names in self._listeners.items():
            names.update(changed)
            event.set()

    @property
    def is_full(self) -> bool:
        """Return whether as many pages are open as may be."""
        return len(self._listeners) >= MOST_LISTENERS

    async def listen(self) -> AsyncIterator[str]:
        """Yield server-sent events for one page, until it is closed."""
        event = asyncio.Event()
        names = self._listeners[event] = set()
        try:
            yield "retry: 1000\n\n"
            while True:
                try:
                    await asyncio.wait_for(event.wait(), HEARTBEAT_S)
                except TimeoutError:
                    yield ": still here\n\n"
                    continue
                event.clear()
                changed = json.dumps({"groups": sorted(names)})
                names.clear()
                yield f"event: change\ndata: {changed}\n\n"
        finally:
            del self._listeners[event]


class WebApp:
    """The application. All of it runs in the thread of its server."""

    def __init__(
        self,
        groups: WatchedGroups,
        sampler: Sampler | None = None,
        *,
        compatible: str | None = None,
        on_problem: Callable[[str], None] = lambda _problem: None,
        on_findings: Callable[[Sequence[Finding]], None] | None = None,
    ) -> None:
        """`on_findings` is called every few seconds with the findings of all groups."""
        self._groups = groups
        self._sampler = sampler
        self._on_problem = on_problem
        self._on_findings = on_findings
        self._changes = ChangeFeed()
        self._metrics = _metrics_of(groups, compatible)

    def guarded(self, token: str = "", host: str = "127.0.0.1") -> ASGIApp:
        """Return what a server runs."""
        routes = [
            Route("/", self._page),
            Route("/page.js", self._script),
            Route("/page.css", self._style),
            Route("/api/groups", self._all_groups),
            Route("/api/groups/{name:path}", self._one_group),
            Route("/api/story/{name:path}", self._story),
            Route("/api/events", self._events),
            Route("/metrics", self._metrics_page),
            Route("/healthz", self._healthy),
        ]
        return _Guard(Starlette(routes=routes, lifespan=self._lifespan), token, host)

    @asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(self._keep_taking())]
        if self._sampler is not None:
            tasks.append(asyncio.create_task(self._keep_sampling(self._sampler)))
        if self._on_findings is not None:
            tasks.append(asyncio.create_task(self._keep_finding(self._on_findings)))
        yield
        for task in tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _keep_taking(self) -> None:
        while True:
            self._take()
            await asyncio.sleep(TAKE_EVERY_S)

    def _take(self) -> None:
        changed = self._groups.take()
        if changed:
            self._changes.publish(changed)

    async def _keep_sampling(self, sample: Sampler) -> None:
        problem = ""
        while True:
            try:
                self._changes.publish(self._groups.add_samples(await sample()))
                problem = ""
            except Exception as error:  # noqa: BLE001  a page that cannot sample shows the rest
                if str(error) != problem:
                    problem = str(error)
                    self._on_problem(f"groups could not be sampled: {error or type(error).__name__}")
            await asyncio.sleep(SAMPLE_EVERY_S)

    async def _keep_finding(self, tell: Callable[[Sequence[Finding]], None]) -> None:
        while True:
            self._take()
            tell(self._groups.findings())
            await asyncio.sleep(FIND_EVERY_S)

    # --- what is answered ---------------------------------------------------------------------------------------------

    async def _page(self, _request: Request) -> Response:
        return Response(live_page(self._groups.title), media_type="text/html; charset=utf-8")

    async def _script(self, _request: Request) -> Response:
        return Response(script(), media_type="text/javascript; charset=utf-8")

    async def _style(self, _request: Request) -> Response:
        return Response(style(), media_type="text/css; charset=utf-8")

    async def _all_groups(self, _request: Request) -> Response:
        self._take()
        return JSONResponse(self._groups.list())

    async def _one_group(self, request: Request) -> Response:
        self._take()
        name = request.path_params["name"]
        block, since_ms, lag_since_ms = (_number(request, option) for option in ("block", "since_ms", "lag_since_ms"))
        found = self._groups.detail(name, block=block, since_ms=since_ms, lag_since_ms=lag_since_ms)
        return JSONResponse(found) if found is not None else _missing(f"there is no group {name!r}")

    async def _story(self, request: Request) -> Response:
        name, at_ms, number = request.path_params["name"], _number(request, "at"), _number(request, "number")
        found = self._groups.story(name, at_ms, number)
        return JSONResponse(found) if found is not None else _missing(f"{name!r} has no rebalance {number} at {at_ms}")

    async def _events(self, _request: Request) -> Response:
        if self._changes.is_full:
            return PlainTextResponse(f"{MOST_LISTENERS} pages are open: close one\n", 503)
        return StreamingResponse(self._changes.listen(), media_type="text/event-stream")

    async def _metrics_page(self, request: Request) -> Response:
        if isinstance(self._metrics, CoterieError):
            return PlainTextResponse(f"{self._metrics}\n", 501)
        self._take()
        body, content_type = self._metrics.write(request.headers.get("accept", ""))
        return Response(body, headers={"Content-Type": content_type})

    async def _healthy(self, _request: Request) -> Response:
        return PlainTextResponse("ok\n")


def _metrics_of(groups: WatchedGroups, compatible: str | None) -> MetricsPage | CoterieError:
    """Return the page of metrics or, unless they were asked for, what is missing for it."""
    try:
        return MetricsPage(groups, compatible)
    except CoterieError as error:
        if compatible is not None:
            raise
        return error


def _number(request: Request, name: str) -> int:
    text = request.query_params.get(name, "0")
    return int(text) if text.lstrip("-").isdigit() and len(text) < 20 else 0


def _missing(what: str) -> Response:
    return JSONResponse({"error": what}, 404)


class _Guard:
    """Lets in who has the token. Without a token, only programs of this machine that asked for this machine.

    The second check keeps out pages of other sites, whose names can be made to lead here.
    """

    def __init__(self, app: ASGIApp, token: str, host: str) -> None:
        self._app = app
        self._token = token
        self._host = host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        refused = self._with_token(request) if self._token else self._without(request)

        async def send_safely(message: Any) -> None:
            if message["type"] == "http.response.start":
                headers = {name.encode(): value.encode() for name, value in _SAFE.items()}
                message["headers"] = [*message.get("headers", []), *headers.items()]
            await send(message)

        await (self._app if refused is None else refused)(scope, receive, send_safely)

    def _without(self, request: Request) -> Response | None:
        host = urlsplit(f"//{request.headers.get('host', '')}").hostname or ""
        if is_loopback(host) or host == self._host:
            return None
        return PlainTextResponse("this page is for programs of its own machine: open it as http://127.0.0.1\n", 403)

    def _with_token(self, request: Request) -> Response | None:
        sent = request.headers.get("authorization", "").removeprefix("Bearer ")
        if self._is_right(sent) or self._is_right(request.cookies.get(COOKIE, "")):
            return None
        if request.url.path == "/" and self._is_right(request.query_params.get("token", "")):
            welcome = RedirectResponse("/", 303)
            welcome.set_cookie(COOKIE, quote(self._token, safe=""), httponly=True, samesite="strict")
            return welcome
        answer = "give the token: open /?token=TOKEN, or send the header Authorization: Bearer TOKEN\n"
        return PlainTextResponse(answer, 401, {"WWW-Authenticate": "Bearer"})

    def _is_right(self, sent: str) -> bool:
        known = (self._token, quote(self._token, safe=""))
        return any(hmac.compare_digest(sent.encode(), one.encode()) for one in known)
