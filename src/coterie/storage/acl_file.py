"""`coterie-acls.json`: the ACLs, one a line, and how often they have changed.

`coterie-durable-ends` has the number of the last change too. So a file that is gone, or an old copy, is noticed: to go
on without it would let clients do what was denied to them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from coterie.protocol.acls import (
    AccessControlEntry,
    AclBinding,
    AclOperation,
    AclPermissionType,
    AclResourceType,
    PatternType,
    ResourcePattern,
)
from coterie.storage.durable_ends import ACLS_END, DurableEnds
from coterie.storage.files import Files
from coterie.storage.metadata_files import ACLS, FIRST
from coterie.structs import DataStruct


class StoredAcls(DataStruct, frozen=True):
    """The content of the file."""

    number: int = 0
    """The number of the last change."""
    bindings: tuple[AclBinding, ...] = ()


def read_acls(files: Files, ends: DurableEnds | None = None) -> StoredAcls:
    """Read the ACLs; there are none if none was ever created. `DamagedFileError` if the file is not the last one."""
    last = ends.end_of(ACLS_END) if ends is not None else 0
    if not last and not files.exists(ACLS.path):
        return StoredAcls()
    content = ACLS.read(files)
    if content.version == FIRST:
        raise ACLS.damaged("does not begin with the line that has its checksum")
    try:
        found = decode_acls(content.payload)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ACLS.damaged(f"is not what we write: {error!r}") from None
    if found.number < last:
        raise ACLS.damaged(f"is an old copy: it has change {found.number}, and the last one was {last}")
    return found


def encode_acls(bindings: Iterable[AclBinding], number: int) -> bytes:
    rows = ",\n  ".join(json.dumps(_row(binding)) for binding in sorted(bindings))
    return f'{{"number": {number}, "acls": [\n  {rows}\n ]\n}}\n'.encode()


def decode_acls(payload: bytes) -> StoredAcls:
    content = json.loads(payload)
    return StoredAcls(int(content["number"]), tuple(map(_binding, content["acls"])))


def _row(binding: AclBinding) -> dict[str, str]:
    pattern, entry = binding.pattern, binding.entry
    return {
        "resource_type": pattern.resource_type.name,
        "name": pattern.name,
        "pattern_type": pattern.pattern_type.name,
        "principal": entry.principal,
        "host": entry.host,
        "operation": entry.operation.name,
        "permission_type": entry.permission_type.name,
    }


def _binding(row: dict[str, Any]) -> AclBinding:
    pattern = ResourcePattern(AclResourceType[row["resource_type"]], str(row["name"]), PatternType[row["pattern_type"]])
    operation, permission_type = AclOperation[row["operation"]], AclPermissionType[row["permission_type"]]
    return AclBinding(pattern, AccessControlEntry(str(row["principal"]), str(row["host"]), operation, permission_type))
