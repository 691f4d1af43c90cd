"""One member of a consumer group, without I/O: `Membership(settings).handle(event, now_ms)` returns effects.

`Membership` is of the classic protocol, `ConsumerMembership` of that of KIP-848 (`consumer_protocol/`).

Read `states.py` first (the states of a member, and its reaction to each error), then `events.py` and `effects.py` (the
interface of a driver), then the file of the request.

Names a driver uses: `Membership(MemberSettings(group_id=...))`, `.handle(event, now_ms) -> Effects`,
`.explain(now_ms)`, `.state`, `.member_id`, `.generation_id`, `.assigned`, `.subscribed`.
"""

from __future__ import annotations

from coterie.client.member.consumer_protocol import ConsumerMembership
from coterie.client.member.member import MemberSettings
from coterie.client.member.membership import Membership

__all__ = ["ConsumerMembership", "MemberSettings", "Membership"]
