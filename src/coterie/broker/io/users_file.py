"""Reads `coterie.users.file`: a properties file with a user and a password in each line. It may change."""

from __future__ import annotations

from pathlib import Path

from coterie.broker.security.users import Users
from coterie.errors import CoterieError, MalformedError
from coterie.settings.sources import parse_properties


class UsersFile:
    def __init__(self, path: str, users: Users) -> None:
        self._path = Path(path)
        self._users = users
        self._stamp = self._look()
        self.reload()

    def _look(self) -> tuple[int, int, int] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino

    def has_changed(self) -> bool:
        """Return whether the file has changed. A file that is missing counts as unchanged."""
        stamp = self._look()
        if stamp is None or stamp == self._stamp:
            return False
        self._stamp = stamp
        return True

    def reload(self) -> None:
        """Take the users that the file has now.

        Raises:
            CoterieError: It cannot be read. The message has nothing of its content.
        """
        what = f"coterie.users.file {self._path}"
        try:
            entries = parse_properties(self._path.read_text(encoding="utf-8"))
        except OSError as error:
            raise CoterieError(f"{what}: {error.strerror}") from None
        except (UnicodeDecodeError, MalformedError):
            raise CoterieError(f"{what} is not a properties file in UTF-8") from None
        for entry in entries:
            if not entry.key or not entry.value:
                raise CoterieError(f"{what}, line {entry.line}: must be name=password")
        self._users.replace_file({entry.key: entry.value for entry in entries})
