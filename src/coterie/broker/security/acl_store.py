"""AclStore keeps the ACLs on disk, and gives the authorizer those that are durable."""

from __future__ import annotations

from collections.abc import Sequence

from coterie.broker.security.authorizer import StandardAuthorizer, parse_super_users
from coterie.protocol.acls import AclBinding
from coterie.settings.broker_settings import BrokerSettings
from coterie.storage import DiskChange, DurableEnds, Files, LogWriteError
from coterie.storage.acl_file import encode_acls, read_acls
from coterie.storage.durable_ends import ACLS_END
from coterie.storage.metadata_files import ACLS


class AclStore:
    def __init__(self, files: Files, settings: BrokerSettings, ends: DurableEnds | None = None) -> None:
        """Read the ACLs. Without `authorizer.class.name` the file is not read, and there is no authorizer."""
        self._files = files
        self._ends = ends
        self._number = 0
        self.authorizer: StandardAuthorizer | None = None
        if settings.authorizer_class_name:
            stored = read_acls(files, ends)
            self._number = stored.number
            self.authorizer = StandardAuthorizer(
                stored.bindings,
                super_users=parse_super_users(settings.super_users),
                allow_everyone=settings.allow_everyone_if_no_acl_found,
            )

    def change(self, added: Sequence[AclBinding], removed: Sequence[AclBinding]) -> DiskChange[None]:
        """Change the ACLs: they are in force when the disk has them."""
        authorizer = self.authorizer
        assert authorizer is not None, "without an authorizer there are no ACLs to change"
        number = self._number + 1
        content = encode_acls((set(authorizer.bindings) - set(removed)) | set(added), number)

        def work() -> None:
            try:
                ACLS.write(self._files, content)
            except OSError as error:
                raise LogWriteError.of(f"cannot write {ACLS.path}", error) from error
            if self._ends is not None:
                self._ends.add([(ACLS_END, number)])

        def take(_: None) -> None:
            self._number = number
            authorizer.replace(added, removed)

        return DiskChange(work, take)
