"""`python -m coterie.apis` prints the page about the APIs, made from the table; `make docs` writes it."""

from __future__ import annotations

import sys

from coterie.apis.api import APIS, Api

__all__ = ["page"]

HEAD = """\
# APIs

What Coterie speaks, in the versions of Apache Kafka 4.3.1. Made from `coterie.apis.api` by `make docs`.

| Key | API | Versions | Flexible from | Missing |
|---:|---|---|---|---|
"""
FOOT = """
No API throttles: there are no quotas, and `throttle_time_ms` is always 0. Trailing bytes and unknown tagged fields are
ignored. A version that is not in the table, or a body that cannot be read, closes the connection; only ApiVersions
answers a version it does not know, in the form of version 0, with UNSUPPORTED_VERSION and its own range.
"""


def page() -> str:
    return HEAD + "".join(_row(row) for row in APIS) + FOOT


def _row(api: Api) -> str:
    first, last = api.versions[0], api.versions[-1]
    versions = str(first) if first == last else f"{first}\N{EN DASH}{last}"
    flexible = str(api.flexible) if api.flexible in api.versions else "never"
    missing = [f"{what}: {why}" for what, why in api.missing.items()]
    if not api.advertised:
        missing.append("not advertised")
    link = f"[{api.name}](../src/coterie/apis/{api.module_name}.py)"
    return f"| {api.key} | {link} | {versions} | {flexible} | {'; '.join(missing)} |\n"


if __name__ == "__main__":
    sys.stdout.write(page())
