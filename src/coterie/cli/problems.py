"""What a command says when something foreseeable goes wrong: one message on stderr, no traceback.

`FrontPage` catches what a command raises, for all commands. Light: it is loaded for every command.
"""

from __future__ import annotations

import typer

__all__ = ["complain", "words_of"]


def complain(problem: str) -> None:
    first, *rest = problem.splitlines() or [""]
    typer.echo("\n".join([f"coterie: {first}", *(f"         {line}" for line in rest)]), err=True)


def words_of(error: Exception) -> str:
    """Return file and reason of an OSError, without errno and quotes."""
    if isinstance(error, OSError) and error.strerror:
        reason = error.strerror[:1].lower() + error.strerror[1:]
        return f"{error.filename}: {reason}" if error.filename is not None else error.strerror
    return str(error)
