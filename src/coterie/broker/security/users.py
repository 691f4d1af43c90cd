"""Users with their passwords: those of a JAAS line (for PLAIN), of `coterie.users.file`, and of `Broker(users=...)`.

A password is compared in constant time. SCRAM needs a credential, which is derived from the password once.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from hashlib import sha256

from coterie.protocol.sasl_mechanisms import ITERATIONS, ScramCredential, salted_password
from coterie.settings.config_def import SettingsError
from coterie.settings.jaas import parse_jaas

_PLAIN_USER = "user_"


class Users:
    def __init__(self, passwords: Mapping[str, str], fresh_salt: Callable[[], bytes] = bytes) -> None:
        """`fresh_salt` makes random bytes; users who log in by SCRAM need it."""
        self._fresh_salt = fresh_salt
        self._given = dict(passwords)
        self.replace_file({})

    def __repr__(self) -> str:
        return f"Users({', '.join(sorted(self._passwords))})"

    def __bool__(self) -> bool:
        return bool(self._passwords)

    def replace_file(self, passwords: Mapping[str, str]) -> None:
        """Take these in place of those that the file had before. Those that were given stay."""
        self._passwords = {**passwords, **self._given}
        self._credentials: dict[tuple[str, str], ScramCredential] = {}

    def has_password(self, user: str, password: str) -> bool:
        """Take the same time for a wrong password and an unknown user."""
        expected = self._passwords.get(user)
        is_equal = hmac.compare_digest(_digest(password), _digest(expected or ""))
        return is_equal and bool(expected)

    def credential_of(self, mechanism: str, user: str) -> ScramCredential | None:
        password = self._passwords.get(user)
        if not password:
            return None
        found = self._credentials.get((mechanism, user))
        if found is None:
            salt = self._fresh_salt()
            salted = salted_password(mechanism, password, salt, ITERATIONS)
            found = self._credentials[mechanism, user] = ScramCredential.of(mechanism, salted, salt, ITERATIONS)
        return found


NO_USERS = Users({})


def _digest(password: str) -> bytes:
    return sha256(password.encode("utf-8", "replace")).digest()


def plain_users(jaas: str) -> Users:
    """Return the users of a PlainLoginModule (S14); `username` is the broker's own name, and no user."""
    module = parse_jaas(jaas)
    if module.name != "PlainLoginModule":
        raise SettingsError(f"sasl.jaas.config of PLAIN names {module.name}; it must be PlainLoginModule")
    options = module.options.items()
    return Users({key.removeprefix(_PLAIN_USER): value for key, value in options if key.startswith(_PLAIN_USER)})
