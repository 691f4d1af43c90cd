"""The shipped world of both old designs, under a shorter name."""

from __future__ import annotations

from coterie.history.model_world import SESSION_MS, Actor
from coterie.history.model_world import ModelWorld as Bench

__all__ = ["SESSION_MS", "Actor", "Bench"]
