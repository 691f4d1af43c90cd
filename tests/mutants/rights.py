"""Rights broken on purpose, a row each, by the number of the rule in docs/semantics-security.md."""

from __future__ import annotations

from mutants.mutant import Mutant

__all__ = ["RIGHTS"]

AUTHORIZER = ("tests/broker/test_authorizer.py",)
APIS = ("tests/broker/test_acl_apis.py",)
CELLS = ("tests/conformance/acls/test_rights.py",)

RIGHTS = [
    Mutant("S38", "a prefix is every name", "broker/security/authorizer.py", "self.prefixed.get(name[:length])",
           "self.prefixed.get(name) or next(iter(self.prefixed.values()))", tests=AUTHORIZER),
    Mutant("S39", "an allow wins over a deny", "broker/security/authorizer.py",
           "                    if entry.operation in (operation, _O.ALL):\n                        return False",
           "                    if entry.operation in (operation, _O.ALL) and not allowed:\n                        return False",
           tests=AUTHORIZER),
    Mutant("S40", "a deny of READ denies DESCRIBE", "broker/security/authorizer.py",
           "if entry.operation in (operation, _O.ALL):\n                        return", "if entry.operation in allowing:\n                        return",
           tests=AUTHORIZER),
    Mutant("S41", "hosts are not compared", "broker/security/authorizer.py", "(entry.host == ANY_HOST or host_text(entry.host) == host)",
           "bool(host)", tests=AUTHORIZER),
    Mutant("S42", "everyone is allowed where nobody is named", "broker/security/authorizer.py",
           "(self._allow_everyone and not has_acls)", "self._allow_everyone", tests=AUTHORIZER),
    Mutant("S43", "decisions outlive a change of ACLs", "broker/security/authorizer.py",
           "            self._acls[kind].patterns_changed()\n        self._decided.clear()", "            self._acls[kind].patterns_changed()",
           tests=AUTHORIZER),
    Mutant("S43", "a lost file of ACLs is no damage", "storage/acl_file.py", "if not last and not files.exists", "if not files.exists", tests=APIS),
    Mutant("S43", "an old copy of the ACLs is believed", "storage/acl_file.py", "if found.number < last:", "if False:", tests=APIS),
    Mutant("S43", "an ACL is in force before the disk has it", "broker/security/acl_store.py",
           "        number = self._number + 1\n", "        number = self._number + 1\n        authorizer.replace(added, removed)\n", tests=APIS),
    Mutant("S43", "the short way of a heartbeat asks for no right", "broker/handlers/quick_heartbeat.py",
           "(self._authorizer is not None and not self._may(self._meant.group_id))", "False", tests=APIS),
    Mutant("S37", "denials are not told", "broker/security/auth_helper.py", "        if logs:\n            self._deny", "        if False:\n            self._deny",
           tests=APIS),
    Mutant("S48", "principals without a type are taken", "broker/handlers/acl_apis.py", 'elif ":" not in entry.principal:', "elif False:", tests=APIS),
    Mutant("S49", "unknown fields are read", "broker/handlers/acl_apis.py", "if _UNKNOWN in numbers:", "if False:", tests=APIS),
    Mutant("S50", "MATCH finds literals alone", "protocol/acls.py",
           "return pattern.applies_to(self.name) if wanted is PatternType.MATCH else", "return", tests=AUTHORIZER),
    Mutant("S44", "absent topics have no operations", "broker/handlers/metadata.py",
           "if topic.name is not None and topic.error is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:",
           "if topic.name is not None and not topic.error:", tests=CELLS),
    Mutant("S45", "a topic is deleted without the right", "broker/handlers/topic_apis.py",
           "if topic is None or self.auth.authorize(call, AclOperation.DELETE, TOPIC, topic.name):", "if topic is None or topic.name:", tests=CELLS),
    Mutant("S45", "all groups are listed", "broker/handlers/group_apis.py",
           "if self._may(call, DESCRIBE, GROUP, one.group_id, logs=False)]", "if one.group_id]", tests=CELLS),
    Mutant("S45", "a commit needs no right on the topic", "broker/handlers/group_apis.py",
           "is_denied = name is not None and not self._may(call, READ, TOPIC, name)", "is_denied = False", tests=CELLS),
    Mutant("S45", "a commit of one topic needs no right on it", "broker/handlers/group_apis.py",
           "                and self._may(call, READ, TOPIC, topic.name)\n", "", tests=CELLS),
]  # fmt: skip
