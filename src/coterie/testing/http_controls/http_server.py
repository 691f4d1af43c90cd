"""The HTTP server of the test controls: JSON in and out, each connection in a thread of its own.

A problem is answered with a status and `{"error": ..., "message": ...}`: 400 for what is not allowed, 409 for what did
not happen (a wait that timed out, a fault that never fired), 404 for what there is not, 503 while the broker is down.
"""

from __future__ import annotations

import hmac
import json
import sys
import threading
import traceback
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET, AF_INET6
from types import TracebackType
from typing import Any, Self, cast
from urllib.parse import parse_qsl, unquote, urlsplit

from coterie.errors import CoterieError, IllegalStateError
from coterie.testing.http_controls.openapi import description
from coterie.testing.http_controls.operations import find
from coterie.testing.http_controls.served_broker import NoSuchFaultError, TestControls
from coterie.web.web_server import is_loopback

MOST_BYTES = 16 << 20
"""The most bytes of a body."""
IDLE_S = 300.0
"""A connection that sends nothing for so long is closed."""
STOPS_WITHIN_S = 0.1
OPENAPI = "/openapi.json"


class _ProblemError(Exception):
    def __init__(self, status: HTTPStatus, error: str, message: str) -> None:
        super().__init__(message)
        self.status, self.error, self.message = status, error, message


class ControlServer:
    """Serve the controls of a broker over HTTP, from `start` to `stop`.

    Args:
        controls: The broker and its faults.
        host: The address to listen at.
        port: The port to listen at; 0 is any that is free.
        token: What clients must send as `Authorization: Bearer TOKEN`; "" if they need nothing.

    Raises:
        CoterieError: Other machines can reach the address, and there is no token.
        OSError: It cannot listen at the address.
    """

    def __init__(self, controls: TestControls, host: str = "127.0.0.1", port: int = 0, token: str = "") -> None:
        if not token and not is_loopback(host):
            raise CoterieError(
                f"test controls at {host} could be used from other machines: everyone could stop the broker and delete "
                "its records. Listen at 127.0.0.1, or set the variable COTERIE_CONTROLS_TOKEN to a secret of your own"
            )
        self._server = _Server(host, port, controls, token)
        self._thread = threading.Thread(target=self._run, name="coterie-controls", daemon=True)

    def _run(self) -> None:
        self._server.serve_forever(poll_interval=STOPS_WITHIN_S)

    @property
    def url(self) -> str:
        """The address of the server: `http://127.0.0.1:9099`."""
        host, port = self._server.server_address[:2]
        name = host.decode() if isinstance(host, bytes | bytearray) else str(host)
        return f"http://{f'[{name}]' if ':' in name else name}:{port}"

    def start(self) -> Self:
        """Begin to answer requests, in threads."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """Close the port. Requests under way are not waited for."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.stop()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, host: str, port: int, controls: TestControls, token: str) -> None:
        self.controls = controls
        self.token = token
        self.host = host
        self.address_family = AF_INET6 if ":" in host else AF_INET
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        """Bind, without the name lookup of HTTPServer."""
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()

    def handle_error(self, _request: Any, _address: Any) -> None:
        """Say nothing about connections that were closed; all else is a mistake of ours."""
        if not isinstance(sys.exception(), OSError):
            traceback.print_exc()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "coterie"
    sys_version = ""
    timeout = IDLE_S

    @property
    def _of(self) -> _Server:
        return cast("_Server", self.server)

    def do_GET(self) -> None:
        self._answer()

    do_POST = do_DELETE = do_PUT = do_PATCH = do_HEAD = do_OPTIONS = do_GET  # noqa: N815

    def log_message(self, *_args: Any) -> None:
        """Log nothing: the log of the broker is about its groups."""

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer what is no HTTP request, as all other problems are answered."""
        self.close_connection = True
        self.request_version = self.protocol_version  # a status line and headers, whatever was sent
        status = HTTPStatus(code)
        self._write(status, _problem(status.phrase, message or explain or status.description))

    def _answer(self) -> None:
        try:
            status, value = HTTPStatus.OK, self._result()
        except _ProblemError as problem:
            status, value = problem.status, _problem(problem.error, problem.message)
        except NoSuchFaultError as error:
            status, value = HTTPStatus.NOT_FOUND, _problem("NoSuchFaultError", str(error))
        except IllegalStateError as error:
            status, value = HTTPStatus.SERVICE_UNAVAILABLE, _problem("IllegalStateError", str(error))
        except CoterieError as error:
            status, value = HTTPStatus.BAD_REQUEST, _problem(type(error).__name__, str(error))
        except AssertionError as error:
            status, value = HTTPStatus.CONFLICT, _problem(type(error).__name__, str(error))
        except OSError as error:
            if self.close_connection:  # the client has closed it
                raise
            status, value = HTTPStatus.SERVICE_UNAVAILABLE, _problem(type(error).__name__, str(error))
        except Exception as error:  # noqa: BLE001  a client gets our mistakes as answers, too
            traceback.print_exc()
            message = f"a mistake of the test controls, please report it: {error!r}"
            status, value = HTTPStatus.INTERNAL_SERVER_ERROR, _problem(type(error).__name__, message)
        self._write(status, value)

    def _write(self, status: HTTPStatus, value: Any) -> None:
        data = json.dumps(value).encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if status is HTTPStatus.UNAUTHORIZED:
            self.send_header("WWW-Authenticate", "Bearer")
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _result(self) -> Any:
        body = self._body()
        self._check_client()
        url = urlsplit(self.path)
        method = "GET" if self.command == "HEAD" else self.command
        if url.path == OPENAPI and method == "GET":
            return description()
        found = find(method, url.path)
        if isinstance(found, list):
            if found or url.path == OPENAPI:
                allowed = ", ".join(found or ["GET"])
                raise _ProblemError(
                    HTTPStatus.METHOD_NOT_ALLOWED, "MethodNotAllowed", f"{url.path} has no {method}: it has {allowed}"
                )
            raise _ProblemError(
                HTTPStatus.NOT_FOUND, "NotFound", f"there is no {url.path[:200]}: {OPENAPI} lists all operations"
            )
        operation, in_path = found
        query = dict(parse_qsl(url.query, keep_blank_values=True))
        given = self._json(body)
        if query and method != "GET":
            raise CoterieError(f"{method} takes its parameters in the body, as a JSON object, not in the query")
        path = {name: unquote(text) for name, text in in_path.items()}
        return operation.run(self._of.controls, operation.arguments(path, query, given))

    def _body(self) -> bytes:
        """Read the body, so that the next request of the connection begins behind it."""
        if "Transfer-Encoding" in self.headers:
            self.close_connection = True
            raise _ProblemError(
                HTTPStatus.LENGTH_REQUIRED, "LengthRequired", "send the body with a Content-Length, not in chunks"
            )
        text = self.headers.get("Content-Length", "0")
        if not text.isdecimal() or not text.isascii():
            self.close_connection = True
            raise CoterieError(f"Content-Length is {text[:100]!r}: it must be a number of bytes")
        if len(text) > 12 or int(text) > MOST_BYTES:
            self.close_connection = True
            raise _ProblemError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                "TooLarge",
                f"the body has {text[:30]} bytes; the most is {MOST_BYTES}",
            )
        data = self.rfile.read(int(text))
        if len(data) < int(text):
            self.close_connection = True
            raise CoterieError(f"the body has {len(data)} bytes, and Content-Length says {text}")
        return data

    def _check_client(self) -> None:
        if self._of.token:
            sent = self.headers.get("Authorization", "")
            if not hmac.compare_digest(sent.encode(), f"Bearer {self._of.token}".encode()):
                raise _ProblemError(
                    HTTPStatus.UNAUTHORIZED,
                    "Unauthorized",
                    "send the header Authorization: Bearer TOKEN with the token",
                )
            return
        host = urlsplit(f"//{self.headers.get('Host', '')}").hostname or ""
        if "Origin" in self.headers or not (is_loopback(host) or host == self._of.host):
            raise _ProblemError(
                HTTPStatus.FORBIDDEN,
                "Forbidden",
                "without a token, only programs of this machine are answered, and no pages of a browser",
            )

    def _json(self, body: bytes) -> Mapping[str, Any]:
        if not body:
            return {}
        if self.command == "GET":
            raise CoterieError("GET takes its parameters in the query, and has no body")
        try:
            given = json.loads(body, parse_constant=_no_number)
        except (ValueError, RecursionError) as error:
            raise CoterieError(f"the body is no JSON: {error}") from None
        if not isinstance(given, dict):
            raise CoterieError('the body must be a JSON object with the parameters, such as {"timeout": 10}')
        return given


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def _problem(error: str, message: str) -> dict[str, str]:
    return {"error": error, "message": message}
