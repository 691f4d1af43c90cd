"""The version, where every room can see it."""

from __future__ import annotations

__version__ = "0.1.0"
