"""`python -m coterie.protocol.apis` prints the page about the APIs, made from the table; `make docs` writes it.

`python -m coterie.protocol.apis fetch 17` prints the functions that read and write that version.
"""

from __future__ import annotations

import sys

from coterie.protocol.api import APIS, Api
from coterie.protocol.codec.codec import encoding_of, most_entries
from coterie.protocol.codec.reader_source import reader_source
from coterie.protocol.codec.writer_source import writer_source

__all__ = ["main", "page", "sources"]

HEAD = """\
# APIs

What Coterie speaks, in the versions of Apache Kafka 4.3.1. Made from `coterie.protocol.api` by `make docs`.

| Key | API | Versions | Flexible from | Missing |
|---:|---|---|---|---|
"""
FOOT = """
There are no quotas, and `throttle_time_ms` is always 0. GetTelemetrySubscriptions and PushTelemetry refuse a client
that comes before its push interval is over (THROTTLING_QUOTA_EXCEEDED); no other API throttles. Trailing
bytes and unknown tagged fields are ignored. A version that is not in the table, or a body that cannot be read, closes
the connection; only ApiVersions answers a version it does not know, in the form of version 0, with UNSUPPORTED_VERSION
and its own range.
"""


def page() -> str:
    return HEAD + "".join(_row(row) for row in APIS) + FOOT


def _row(api: Api) -> str:
    first, last = api.versions[0], api.versions[-1]
    versions = str(first) if first == last else f"{first}\N{EN DASH}{last}"
    flexible = str(api.flexible) if api.flexible in api.versions else "never"
    missing = [f"{what}: {why}" for what, why in api.missing.items()]
    if not api.advertised:
        missing.append("advertised only with `coterie.client.telemetry.enable`, as Kafka does with a plugin")
    link = f"[{api.name}](../src/coterie/protocol/apis/{api.module_name}.py)"
    return f"| {api.key} | {link} | {versions} | {flexible} | {'; '.join(missing)} |\n"


def sources(api: Api, version: int) -> str:
    """Return the source of readers and writers: of `_Request`, if `Request` differs from what is on the wire."""
    written = []
    for name in ("Request", "Response"):
        message = getattr(api.module, f"_{name}", None) or getattr(api.module, name)
        encoding = encoding_of(api, version)
        written.append(f"# {api.name} {name}, version {version}\n")
        written.append(f"{reader_source(message, version, encoding, most_entries(message))}\n")
        written.append(f"{writer_source(message, version, encoding)}\n")
    return "\n".join(written).rstrip() + "\n"


def main(arguments: list[str]) -> str:
    if not arguments:
        return page()
    match arguments:
        case [name, version] if version.isdigit():
            for api in APIS:
                if name in {api.module_name, api.name} and int(version) in api.versions:
                    return sources(api, int(version))
    raise SystemExit(
        "usage: python -m coterie.protocol.apis [api version], both as in the page that it prints without them"
    )


if __name__ == "__main__":
    sys.stdout.write(main(sys.argv[1:]))
