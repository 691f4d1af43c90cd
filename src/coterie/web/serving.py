"""Everything that `coterie web` and `coterie serve --web` serve, from one set of options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from coterie.web.groups import Sampler, WatchedGroups
from coterie.web.traces import RebalanceTracer
from coterie.web.web_server import WebAddress, WebServer, check_web
from coterie.web.webhook import FindingsWebhook, check_webhook

WEB_ADDRESS = ("127.0.0.1", 9080)


@dataclass(frozen=True, slots=True)
class WebOptions:
    host: str = WEB_ADDRESS[0]
    port: int = WEB_ADDRESS[1]
    compatible: str | None = None
    """Names of another exporter, beside ours: kafka_exporter or kminion."""
    webhook: str | None = None
    traces: bool = False


class WebService:
    """The page, the metrics, the webhook and the traces of some groups.

    Everything that could be missing or wrong is checked when it is made, before a broker starts.
    """

    def __init__(self, options: WebOptions, on_problem: Callable[[str], None]) -> None:
        check_web()
        if options.webhook:
            check_webhook(options.webhook)
        self._options = options
        self._on_problem = on_problem
        self._tracer = RebalanceTracer() if options.traces else None
        self._address = WebAddress(options.host, options.port)
        self._webhook = FindingsWebhook(options.webhook, on_problem) if options.webhook else None
        self._server: WebServer | None = None
        self.url = self._address.url

    def start(self, groups: WatchedGroups, sampler: Sampler | None = None) -> None:
        """Listen."""
        from coterie.web.app import WebApp

        if self._tracer is not None:
            groups.on_rebalance.append(self._tracer.ended)
        app = WebApp(
            groups,
            sampler,
            compatible=self._options.compatible,
            on_problem=self._on_problem,
            on_findings=self._webhook.update if self._webhook is not None else None,
        )
        self._server = WebServer(app.guarded(self._address.token, self._address.host), self._address).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop()
        self._address.socket.close()
        if self._webhook is not None:
            self._webhook.close()
        if self._tracer is not None:
            self._tracer.close()
            self._tracer = None
