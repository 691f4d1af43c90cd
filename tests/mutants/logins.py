"""TLS and logins of the clients broken on purpose, a row each, by the number of the rule in docs/semantics-security.md."""

from __future__ import annotations

from mutants.mutant import Mutant

__all__ = ["LOGINS"]

SASL = ("tests/client/test_sasl.py",)
TLS = ("tests/client/test_tls.py",)
SETTINGS = ("tests/client/test_security_settings.py",)

LOGINS = [
    Mutant("S5", "a mechanism that is refused is used", "client/network/sasl.py", "if handshake.error:", "if False:", tests=SASL),
    Mutant("S18", "error 0 is success, whatever its bytes", "client/network/sasl.py",
           'b"" if client.is_complete and not response.auth_bytes else', 'b"" if client.is_complete else', tests=SASL),
    Mutant("S21", "a redirect carries the secret elsewhere", "client/network/oauth_tokens.py", "        return None\n\n\ndef _ask",
           "        return HTTPRedirectHandler.redirect_request(self, *_)\n\n\ndef _ask", tests=SASL),
    Mutant("S23", "a token is kept until it has expired", "client/network/oauth_tokens.py", "_KEPT = 0.8", "_KEPT = 1.0", tests=SASL),
    Mutant("S26", "an alert is taken for a frame", "client/network/connection.py", "if _small_frames().startswith(_TLS_ALERT):",
           "if False:", tests=TLS),
    Mutant("S27", "host names are not checked", "client/network/tls.py",
           "context.check_hostname = bool(settings.ssl_endpoint_identification_algorithm)", "context.check_hostname = False", tests=TLS),
    Mutant("S33", "requests are sent during a login", "client/network/in_flight_requests.py",
           "        if self._held_back is not None:\n            self._held_back.append", "        if False:\n            self._held_back.append",
           tests=SASL),
    Mutant("S33", "a login begins before earlier requests are answered", "client/network/connection.py",
           "            if self._requests.sent:\n                self._all_answered", "            if False:\n                self._all_answered", tests=SASL),
    Mutant("S55", "security that would be missing is left out", "settings/security_settings.py", "if names and not is_used:",
           "if False:", tests=SETTINGS),
    Mutant("S55", "two names of one setting may differ", "settings/config_def.py", "if first.text != found.text:", "if False:", tests=SETTINGS),
    Mutant("S57", "an endpoint's answer shows the secret", "client/network/oauth_tokens.py", ".replace(secret, HIDDEN)", "", tests=SASL),
]  # fmt: skip
