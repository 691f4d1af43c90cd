"""Kafka's consumer groups, whole, in Python."""

from __future__ import annotations

__version__ = "0.1.0"
