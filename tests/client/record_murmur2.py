"""Make `data/murmur2.jsonl` again: keys and where Java's own partitioner puts them.

    .venv/bin/python tests/client/record_murmur2.py

Each line: the key in hex, its murmur2 as a signed int, its partition of 1, of 7 and of 50.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from apache_kafka import run_java

HERE = Path(__file__).parent
DATA = HERE / "data" / "murmur2.jsonl"

KEYS = [
    *(bytes(range(length)) for length in range(18)),  # every tail, with and without whole words
    *(b"\xff" * length for length in range(1, 10)),  # bytes that are negative in Java
    *(f"order-{number}".encode() for number in range(40)),
    "größer 大きい 🛒".encode(),
    b"\x00" * 64,
    bytes(range(256)) * 5,
]


def main() -> None:
    found = run_java(HERE / "Murmur2.java", *(key.hex() or "-" for key in KEYS))
    DATA.write_text(found, encoding="utf-8")
    print(f"{len(found.splitlines())} keys in {DATA.relative_to(HERE.parents[1])}")  # noqa: T201


if __name__ == "__main__":
    main()
