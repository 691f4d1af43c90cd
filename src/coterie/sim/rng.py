"""All luck there is: a stream of random numbers for each concern, named, from one seed."""

from __future__ import annotations

from random import Random  # noqa: TID251  seeded; this is where a simulated world gets its rng
from uuid import UUID

__all__ = ["Random", "Rng", "fresh_ids"]


class Rng:
    """`of(name)` is the same stream for the same seed and name, whatever else was thrown, in every process."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def of(self, name: str) -> Random:
        return Random(f"{self.seed}/{name}")  # noqa: S311  text is hashed with SHA-512: no hash seed comes in


class fresh_ids:  # noqa: N801  a function that remembers
    def __init__(self, rng: Random) -> None:
        self._rng = rng

    def __call__(self) -> UUID:
        return UUID(int=self._rng.getrandbits(128), version=4)
