"""The web server, in a thread of its own. It needs the extra `web`."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from coterie.errors import CoterieError
from coterie.extras import how_to_install

if TYPE_CHECKING:
    from starlette.types import ASGIApp

TOKEN = "COTERIE_WEB_TOKEN"  # noqa: S105  the name of a variable


def check_web() -> None:
    """Raise an error that says what to install, if the extra is missing."""
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ModuleNotFoundError as error:
        raise CoterieError(f"the page needs {error.name}: {how_to_install('web')}") from None


class WebAddress:
    """The address of a web server, taken at once; other machines may reach it only with a token."""

    def __init__(self, host: str, port: int, token: str | None = None) -> None:
        self.host = host
        self.token = os.environ.get(TOKEN, "") if token is None else token
        if not self.token and not is_loopback(host):
            raise CoterieError(
                f"the page at {host} could be read from other machines: it shows the groups, their members and their "
                f"hosts. Listen at 127.0.0.1, or set the variable {TOKEN} to a secret of your own"
            )
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            self.socket = socket.create_server((host, port), family=family)
        except OSError as error:
            raise CoterieError(f"the page cannot listen on {host}:{port}: {error.strerror or error}") from None

    @property
    def url(self) -> str:
        """Return its address: `http://127.0.0.1:9080`."""
        shown = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{shown}:{self.socket.getsockname()[1]}"


class WebServer:
    """Serves an application from `start` to `stop`."""

    def __init__(self, app: ASGIApp, address: WebAddress) -> None:
        self.url = address.url
        self._app = app
        self._socket = address.socket
        self._thread = threading.Thread(target=self._run, name="coterie-web", daemon=True)
        self._has_started = threading.Event()
        self._stop: Callable[[], None] | None = None
        self._failure: BaseException | None = None

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as failure:  # noqa: BLE001  raised again in the thread that started us
            self._failure = failure
        finally:
            self._has_started.set()

    async def _serve(self) -> None:
        import uvicorn

        config = uvicorn.Config(
            self._app,
            log_level="critical",
            access_log=False,
            server_header=False,
            lifespan="on",
            timeout_graceful_shutdown=1,
        )
        server = uvicorn.Server(config)

        def stop() -> None:
            server.should_exit = True

        self._stop = stop
        self._has_started.set()  # the socket listens already: who connects now is answered in a moment
        await server.serve(sockets=[self._socket])

    def start(self) -> Self:
        """Return when it listens."""
        self._thread.start()
        self._has_started.wait()
        if self._failure is not None:
            raise CoterieError(f"the page did not start: {self._failure}") from self._failure
        return self

    def stop(self) -> None:
        """Close the port and the open pages."""
        if self._stop is not None:
            self._stop()
        self._thread.join()
        self._socket.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.stop()


def is_loopback(host: str) -> bool:
    """Return whether only processes of this machine can connect to an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
