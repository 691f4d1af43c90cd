"""The command line: a command returns rows, one printer shows them.

Knows everything below and is known by nobody. Read `app.py` first.
"""

from __future__ import annotations

import signal

__all__ = ["main"]


def main() -> None:
    """Run the command.

    A shell starts a script's background jobs with SIGINT ignored, and Python then installs no handler. Whoever sends
    SIGINT to one of our commands wants it to stop in order, however it was started.
    """
    from coterie.cli.app import app

    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    app()
