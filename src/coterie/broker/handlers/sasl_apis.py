"""SaslHandshake and SaslAuthenticate on a connection that needs no authentication, or has authenticated (S9)."""

from __future__ import annotations

from collections.abc import Mapping

from coterie.broker.broker_effects import Effects
from coterie.broker.calls import Call, Handler, Responses
from coterie.errors import ErrorCode
from coterie.protocol.apis import sasl_authenticate, sasl_handshake
from coterie.structs import DataStruct

__all__ = ["SaslApis"]

AFTER_AUTHENTICATION = "SaslAuthenticate request received after successful authentication"


class SaslApis(DataStruct, frozen=True, eq=False):
    responses: Responses

    def handlers(self) -> Mapping[int, Handler]:
        return {
            sasl_handshake.API.key: self._sasl_handshake,
            sasl_authenticate.API.key: self._sasl_authenticate,
        }

    def _sasl_handshake(self, call: Call, frame: bytes, at: int, now_ms: int) -> Effects:
        sasl_handshake.read_request(frame, at, call.version)
        return self.responses.answer(call, sasl_handshake.Response(error=ErrorCode.ILLEGAL_SASL_STATE), now_ms)

    def _sasl_authenticate(self, call: Call, frame: bytes, at: int, now_ms: int) -> Effects:
        sasl_authenticate.read_request(frame, at, call.version)
        refused = sasl_authenticate.Response(error=ErrorCode.ILLEGAL_SASL_STATE, message=AFTER_AUTHENTICATION)
        return self.responses.answer(call, refused, now_ms)
