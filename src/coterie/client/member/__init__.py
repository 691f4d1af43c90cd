"""One member of a classic consumer group, without I/O: `Membership(settings).handle(event, now_ms)` returns effects.

Knows no clock, no rng, no sockets and no records. Read `states.py` first (what a member can be doing, and what it does
about every error), then `events.py` and `effects.py` (all a driver has to know), then the file of the idea you are
interested in: finding, preparing, joining, leading, syncing, heartbeat, committing, leaving.

Names a driver uses: `Membership(MemberSettings(group_id=...))`, `.handle(event, now_ms) -> Effects`,
`.explain(now_ms)`, `.state`, `.member_id`, `.generation_id`, `.assigned`, `.subscribed`.
"""

from __future__ import annotations

from coterie.client.member.member_settings import MemberSettings
from coterie.client.member.membership import Membership

__all__ = ["MemberSettings", "Membership"]
