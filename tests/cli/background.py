"""How a shell starts a script's background job: SIGINT is ignored in it, and in what it starts."""

from __future__ import annotations

__all__ = ["AS_A_BACKGROUND_JOB"]

AS_A_BACKGROUND_JOB = ("sh", "-c", 'trap "" INT; exec "$0" "$@"')
"""What stands in front of a command and its arguments."""
