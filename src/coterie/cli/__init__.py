"""The command line. A command returns rows, and `output.py` prints them.

No other package imports this one. Read `app.py` first.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from copy import copy
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import typer

__all__ = ["main"]


def main() -> None:
    """Run the command.

    A shell starts a script's background jobs with SIGINT ignored, and Python then installs no handler. A command must
    still stop cleanly on SIGINT, however it was started.
    """
    gc.set_threshold(100_000, 20, 50)  # to look at modules again and again costs a fifth of a start
    from coterie.cli.app import app

    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    _with_only(sys.argv[1], app)() if len(sys.argv) > 1 and "_COTERIE_COMPLETE" not in os.environ else app()


def _with_only(name: str, app: typer.Typer) -> typer.Typer:
    """Return the app with one of its commands or groups of commands; the whole app if it has none of this name.

    Typer reads the options of all commands before it runs one, which takes a fifth of the time that a broker needs to
    start.
    """
    from typer.main import get_command_name

    only = copy(app)
    only.registered_groups = [one for one in app.registered_groups if one.name == name]
    only.registered_commands = [
        one
        for one in app.registered_commands
        if (one.name or get_command_name(one.callback.__name__ if one.callback else "")) == name
    ]
    return only if only.registered_groups or only.registered_commands else app
