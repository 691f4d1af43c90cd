"""The command line. A command returns rows, and `output.py` prints them.

No other package imports this one. Read `app.py` first.
"""

from __future__ import annotations

import gc
import os
import signal
import sys

__all__ = ["main"]


def main() -> None:
    """Run the command.

    A shell starts a script's background jobs with SIGINT ignored, and Python then installs no handler. A command must
    still stop cleanly on SIGINT, however it was started.
    """
    gc.set_threshold(100_000, 20, 50)  # to look at modules again and again costs a fifth of a start
    from coterie.cli.app import app, with_only

    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    wants_one = len(sys.argv) > 1 and "_COTERIE_COMPLETE" not in os.environ
    (with_only(sys.argv[1]) if wants_one else app)()
