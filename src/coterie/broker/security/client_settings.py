"""The settings that a client needs for a listener, in the names of each kind of client: to paste, and for tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from coterie.settings.config_def import Password
from coterie.structs import DataStruct

_NO_PASSWORD = Password("")
Names = Literal["librdkafka", "java", "kafka-python"]

_MODULE = "org.apache.kafka.common.security"


class ClientAccess(DataStruct, frozen=True):
    """The way a client connects: address, security protocol and credentials."""

    bootstrap_servers: str
    protocol: str
    ca_file: str | None = None
    user: str | None = None
    password: Password = _NO_PASSWORD
    mechanism: str = "SCRAM-SHA-256"

    def settings(self, names: Names) -> dict[str, str]:
        """Return the settings under the names of a client."""
        return {"librdkafka": self._librdkafka, "java": self._java, "kafka-python": self._kafka_python}[names]()

    def _librdkafka(self) -> dict[str, str]:
        return {
            "bootstrap.servers": self.bootstrap_servers,
            "security.protocol": self.protocol,
            **self._if_sasl(
                {
                    "sasl.mechanism": self.mechanism,
                    "sasl.username": self.user or "",
                    "sasl.password": self.password.value,
                }
            ),
            **self._if_tls({"ssl.ca.location": self.ca_file or ""}),
        }

    def _java(self) -> dict[str, str]:
        kind = "plain.PlainLoginModule" if self.mechanism == "PLAIN" else "scram.ScramLoginModule"
        options = f'username="{_quoted(self.user or "")}" password="{_quoted(self.password.value)}"'
        return {
            "bootstrap.servers": self.bootstrap_servers,
            "security.protocol": self.protocol,
            **self._if_sasl(
                {"sasl.mechanism": self.mechanism, "sasl.jaas.config": f"{_MODULE}.{kind} required {options};"}
            ),
            **self._if_tls({"ssl.truststore.type": "PEM", "ssl.truststore.location": self.ca_file or ""}),
        }

    def _kafka_python(self) -> dict[str, str]:
        return {
            "bootstrap_servers": self.bootstrap_servers,
            "security_protocol": self.protocol,
            **self._if_sasl(
                {
                    "sasl_mechanism": self.mechanism,
                    "sasl_plain_username": self.user or "",
                    "sasl_plain_password": self.password.value,
                }
            ),
            **self._if_tls({"ssl_cafile": self.ca_file or ""}),
        }

    def _if_sasl(self, settings: Mapping[str, str]) -> Mapping[str, str]:
        return settings if self.protocol.startswith("SASL") else {}

    def _if_tls(self, settings: Mapping[str, str]) -> Mapping[str, str]:
        return settings if self.protocol.endswith("SSL") and self.ca_file else {}


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
