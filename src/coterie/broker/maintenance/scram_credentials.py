"""The SCRAM credentials of users that were given by AlterUserScramCredentials, in a file of the data directory."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any

from coterie.protocol.sasl_mechanisms import HASHES, ScramCredential
from coterie.storage import DiskChange, Files, LogWriteError
from coterie.storage.metadata_files import SCRAM_CREDENTIALS

Credentials = Mapping[str, Mapping[str, ScramCredential]]
"""The SCRAM credentials of each user, by mechanism."""


class ScramCredentials:
    def __init__(self, files: Files) -> None:
        self._files = files
        self.by_user: Credentials = self._read()

    def credential_of(self, mechanism: str, user: str) -> ScramCredential | None:
        return self.by_user.get(user, {}).get(mechanism)

    def _read(self) -> Credentials:
        if not self._files.exists(SCRAM_CREDENTIALS.path):
            return {}
        content = SCRAM_CREDENTIALS.read(self._files)
        try:
            return _decode(content.payload)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise SCRAM_CREDENTIALS.damaged("is not what we write") from None

    def replace(self, credentials: Credentials) -> DiskChange[None]:
        """Store these in place of all others. They count when the disk has them."""

        def work() -> None:
            try:
                SCRAM_CREDENTIALS.write(self._files, _encode(credentials))
            except OSError as error:
                raise LogWriteError.of(f"cannot write {SCRAM_CREDENTIALS.path}", error) from error

        def take(_: None) -> None:
            self.by_user = credentials

        return DiskChange(work, take)


def _encode(credentials: Credentials) -> bytes:
    rows = [
        json.dumps(
            {
                "user": user,
                "mechanism": mechanism,
                "iterations": one.iterations,
                "salt": _text(one.salt),
                "stored_key": _text(one.stored_key),
                "server_key": _text(one.server_key),
            }
        )
        for user, of_user in sorted(credentials.items())
        for mechanism, one in sorted(of_user.items())
    ]
    lines = ",\n  ".join(rows)
    return f'{{"credentials": [\n  {lines}\n ]}}\n'.encode()


def _decode(payload: bytes) -> Credentials:
    found: dict[str, dict[str, ScramCredential]] = {}
    for row in json.loads(payload)["credentials"]:
        mechanism = row["mechanism"]
        if mechanism not in HASHES:
            raise ValueError(mechanism)
        keys = {name: _bytes(row[name]) for name in ("salt", "stored_key", "server_key")}
        found.setdefault(str(row["user"]), {})[mechanism] = ScramCredential(**keys, iterations=int(row["iterations"]))
    return found


def _text(data: bytes) -> str:
    return b64encode(data).decode()


def _bytes(text: Any) -> bytes:
    return b64decode(text, validate=True)
