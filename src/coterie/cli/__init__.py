"""The command line: a command returns rows, one printer shows them.

Knows everything below and is known by nobody. Read `app.py` first.
"""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    from coterie.cli.app import app

    app()
