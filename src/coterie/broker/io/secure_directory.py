"""The directory of `coterie serve --secure`: a CA, the broker's certificate, a user, and the settings for clients.

What is there stays: the CA and the user's password are made once. The broker's certificate is made at each start, for
the names that it then has. Only its owner can read the directory.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import secrets
from collections.abc import Sequence
from pathlib import Path

from coterie.broker.io.certificate_authority import CertificateAuthority, Pair
from coterie.broker.security.client_settings import ClientAccess
from coterie.errors import CoterieError
from coterie.settings.config_def import Password
from coterie.settings.sources import parse_properties

USER = "coterie"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


class SecureDirectory:
    def __init__(self, path: Path, hosts: Sequence[str], now: dt.datetime) -> None:
        """Open the directory, or make it. `hosts` are the names that clients connect to."""
        self.path = path
        self.ca_file = path / "ca.pem"
        self.key_store = path / "server.pem"
        self.users_file = path / "users.properties"
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.chmod(0o700)
            authority = self._authority(now)
            server = authority.issue(hosts[0], hosts, now)
            self._write("server.pem", server.key + server.certificate)
            if not self.users_file.exists():
                self._write("users.properties", f"{USER}={secrets.token_urlsafe(24)}\n".encode())
        except OSError as error:
            raise CoterieError(f"--secure {path}: {error.strerror}") from None

    def _authority(self, now: dt.datetime) -> CertificateAuthority:
        key_file = self.path / "ca.key"
        if self.ca_file.exists() and key_file.exists():
            try:
                return CertificateAuthority(Pair(self.ca_file.read_bytes(), key_file.read_bytes()))
            except ValueError:
                raise CoterieError(
                    f"{self.ca_file} or {key_file} is not what was written there; remove both to make a new CA"
                ) from None
        authority = CertificateAuthority.create("Coterie test CA", now)
        self._write("ca.key", authority.pair.key)
        self._write("ca.pem", authority.pair.certificate)
        return authority

    def _write(self, name: str, data: bytes) -> Path:
        """Write a file that only its owner can read; there is always the old content or the new."""
        path, new = self.path / name, self.path / f".{name}.new"
        new.unlink(missing_ok=True)
        handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        new.replace(path)
        return path

    def settings(self) -> dict[str, str]:
        """Return the settings of a broker that uses the directory."""
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.key_store),
            "coterie.users.file": str(self.users_file),
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        }

    def write_client_settings(self, bootstrap_servers: str) -> list[str]:
        """Write the settings for clients, and return lines that say where they are, without the password."""
        users = {entry.key: entry.value for entry in parse_properties(self.users_file.read_text(encoding="utf-8"))}
        user = USER if USER in users else next(iter(users), USER)
        access = ClientAccess(
            bootstrap_servers,
            "SASL_SSL",
            str(self.ca_file.resolve()),
            user,
            Password(users.get(user, "")),
        )
        java = self._write("java.properties", _properties(access.settings("java"), escapes=True))
        librdkafka = self._write("librdkafka.properties", _properties(access.settings("librdkafka"), escapes=False))
        python = self._write("python.json", f"{json.dumps(access.settings('librdkafka'), indent=2)}\n".encode())
        return [
            f"clients must use SASL_SSL. User {user}; the password is in {self.users_file}, the CA is {self.ca_file}",
            f"  Java tools:    --command-config {java}",
            f"  librdkafka:    kcat -F {librdkafka} -L",
            f"  Python:        confluent_kafka.Producer(json.load(open({str(python)!r})))",
        ]


def _properties(settings: dict[str, str], *, escapes: bool) -> bytes:
    """Return a properties file. Java's have escapes, librdkafka's have not."""
    lines = (
        f"{name}={value.replace(chr(92), chr(92) * 2) if escapes else value}\n" for name, value in settings.items()
    )
    return "".join(lines).encode()
