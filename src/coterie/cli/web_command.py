"""The options of the page, which `coterie web` and `coterie serve --web` share, and the command `coterie web`."""

from __future__ import annotations

from copy import copy
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coterie.cli.options import Bootstrap, CommandError, Config, Sets

if TYPE_CHECKING:
    from coterie.web.serving import WebOptions


class CompatChoice(StrEnum):
    kafka_exporter = "kafka_exporter"
    kminion = "kminion"


_ADDRESS = typer.Option(
    "--web-address",
    metavar="HOST:PORT",
    help="Address of the page. Other machines need COTERIE_WEB_TOKEN.",
    show_default="127.0.0.1:9080",
)
_COMPAT = typer.Option("--metrics-compat", help="Serve metrics under the names of this exporter, too.")
_WEBHOOK = typer.Option("--webhook", metavar="URL", help="POST findings there as JSON, when they begin and end.")
_TRACES = typer.Option("--traces", help="Send a span for each rebalance, as OTEL_EXPORTER_OTLP_ENDPOINT says.")


def _hidden(option: Any) -> Any:
    """Return an option that the help does not show: that of `coterie serve` has no room for it."""
    same = copy(option)
    same.hidden = True
    return same


WebAddress = Annotated[str | None, _ADDRESS]
MetricsCompat = Annotated[CompatChoice | None, _COMPAT]
Webhook = Annotated[str | None, _WEBHOOK]
Traces = Annotated[bool, _TRACES]
ServeWebAddress = Annotated[str | None, _hidden(_ADDRESS)]
ServeMetricsCompat = Annotated[CompatChoice | None, _hidden(_COMPAT)]
ServeWebhook = Annotated[str | None, _hidden(_WEBHOOK)]
ServeTraces = Annotated[bool, _hidden(_TRACES)]


def web_options(
    address: str | None, compat: CompatChoice | None, webhook: str | None, *, traces: bool, wanted: bool = True
) -> WebOptions | None:
    """Return the options of the page; None if no page is wanted."""
    if not wanted:
        given = {"--web-address": address, "--metrics-compat": compat, "--webhook": webhook, "--traces": traces}
        needless = [name for name, value in given.items() if value]
        if needless:
            raise CommandError(f"{needless[0]} is for the page: give --web as well")
        return None
    from coterie.cli.serve import parse_address
    from coterie.web.serving import WEB_ADDRESS, WebOptions

    host, port = WEB_ADDRESS if address is None else parse_address(address)
    return WebOptions(host, port, compat.value if compat else None, webhook, traces)


def web_command(
    bootstrap: Bootstrap = None,
    web_address: WebAddress = None,
    metrics_compat: MetricsCompat = None,
    webhook: Webhook = None,
    traces: Traces = False,
    config: Config = None,
    set_: Sets = None,
) -> None:
    """Show the groups of a cluster on a page, live, and serve /metrics.

    Works with any Kafka cluster: it reads __consumer_offsets, describes the groups now and then, joins no group and
    commits nothing. Of a Coterie broker it also reads what its coordinator recorded. The page lists the groups, worst
    first. One group is four bands on one time axis: who owned which partition, the rebalances with their stories, what
    they cost, and the lag. What a source cannot know is shown as unknown.

    When it listens it prints: ready URL. Other machines can open the page only with the token in the variable
    COTERIE_WEB_TOKEN. It needs the extra web; /metrics needs metrics, and --traces needs otel.

    Try it: coterie web --bootstrap localhost:9092

    Try it: coterie web --web-address 127.0.0.1:0 --metrics-compat kminion
    """
    from coterie.cli.web import web as run

    options = web_options(web_address, metrics_compat, webhook, traces=traces)
    assert options is not None
    run(options, bootstrap, config, set_ or ())
