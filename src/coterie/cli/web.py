"""`coterie web`, and the page of `coterie serve --web`: where their groups come from."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import typer

from coterie.broker.io.server import Server
from coterie.cli.diagnosis_sources import CATCH_UP_S, DiagnosisOptions, watching
from coterie.cli.options import BOOTSTRAP
from coterie.cli.output import complain
from coterie.cli.serve_log import FactLog
from coterie.diagnosis import Grade
from coterie.diagnosis.cluster_watch import ClusterWatch
from coterie.errors import CoterieError
from coterie.facts import Fact
from coterie.web.broker_samples import BrokerSampler
from coterie.web.groups import WatchedGroups
from coterie.web.serving import WebOptions, WebService

POLL_S = 0.3
SAMPLE_EVERY_S = 2.0


class BrokerPage:
    """The page of a broker in this process: its facts are observed, its groups are sampled in its own thread."""

    def __init__(self, options: WebOptions, log: FactLog) -> None:
        self._log = log
        self._groups = WatchedGroups(Grade.OBSERVED, "coordinator", title="Consumer groups of this broker")
        self._service = WebService(options, lambda problem: log.note(problem, level="warn"))
        self.url = self._service.url

    def tell(self, fact: Fact) -> None:
        """Take a fact, in the broker's thread."""
        self._log.tell(fact)
        self._groups.tell(fact)

    def start(self, server: Server, loop: asyncio.AbstractEventLoop) -> None:
        self._service.start(self._groups, BrokerSampler(server, loop))

    def stop(self) -> None:
        self._service.stop()


def web(options: WebOptions, bootstrap: str | None, config: Path | None, sets: Sequence[str]) -> None:
    """Serve the page of a cluster until a signal."""
    service = WebService(options, complain)
    source = DiagnosisOptions(bootstrap=bootstrap, config=config, sets=sets)
    stop = threading.Event()

    def stop_now(_number: int, _frame: Any) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop_now)
    groups = WatchedGroups(title=f"Consumer groups at {bootstrap or BOOTSTRAP}")
    try:
        with watching(source) as watch:
            service.start(groups)
            typer.echo(f"ready {service.url}")
            sys.stdout.flush()
            keep_watching(watch, groups, stop, complain)
    finally:
        service.stop()


def keep_watching(
    watch: ClusterWatch, groups: WatchedGroups, stop: threading.Event, on_problem: Callable[[str], None]
) -> None:
    """Read and sample a cluster until `stop`, and hand over what is known after each change."""
    problem = ""
    sampled_s = 0.0
    if not watch.catch_up(CATCH_UP_S):
        on_problem(f"__consumer_offsets was not read to its end within {CATCH_UP_S:.0f} s: the rest follows")
    while not stop.is_set():
        try:
            changed = watch.poll(POLL_S)
            if time.monotonic() - sampled_s > SAMPLE_EVERY_S:  # noqa: TID251
                changed += watch.sample()
                sampled_s = time.monotonic()  # noqa: TID251
            if changed:
                groups.offer(watch.histories())
            problem = ""
        except CoterieError as error:
            if str(error) != problem:
                problem = str(error)
                on_problem(f"the cluster could not be asked: {error}")
            stop.wait(SAMPLE_EVERY_S)
