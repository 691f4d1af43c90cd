"""One file per API, all there is about its versions: requests and responses to bytes and back, for broker and client.

Knows nothing of connections, topics or the rules of groups; group APIs are reshaped into the words of
`coterie.protocol.messages`. Every API file has `read_request(frame, at, version, ...)`, `write_response(reply,
version)` for the broker, and `write_request`, `read_response` for the client. Read `protocol/api.py` first (the table),
then `heartbeat.py` for a small API on the hot path or `create_topics.py` for one that is all data, then
`protocol/codec/fields.py` for how data is declared.
"""

from __future__ import annotations

from coterie.protocol.api import APIS, FIRST_FLEXIBLE, Api, by_key

__all__ = ["APIS", "FIRST_FLEXIBLE", "Api", "by_key"]
