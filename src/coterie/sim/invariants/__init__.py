"""What must hold in every world, a file each. An invariant looks where what it speaks of changes; `sample` is for what
is costly and looked at now and then, `ended` for what is demanded once everything has healed.
"""

from __future__ import annotations

from coterie.sim.invariants.acknowledged import AcknowledgedIsKept
from coterie.sim.invariants.at_least_once import EveryRecordIsProcessed
from coterie.sim.invariants.causes import RebalancesHaveCauses
from coterie.sim.invariants.committed import CommitsAreKept
from coterie.sim.invariants.cooperative import CooperativeMembersKeepReading
from coterie.sim.invariants.durable import OnlyDurableIsRead
from coterie.sim.invariants.expiry import WhatIsReadStays
from coterie.sim.invariants.fenced import FencedStaysFenced
from coterie.sim.invariants.generations import OldGenerationsAreRefused
from coterie.sim.invariants.growth import NothingGrows
from coterie.sim.invariants.held_bytes import HeldBytesAreCounted
from coterie.sim.invariants.listeners import ListenersAreToldInTurn
from coterie.sim.invariants.mistakes import NoMistakes
from coterie.sim.invariants.one_owner import OneOwner
from coterie.sim.invariants.order import RecordsComeInOrder
from coterie.sim.invariants.owners_commit import OnlyOwnersCommit
from coterie.sim.invariants.parked import NobodyIsForgotten
from coterie.sim.invariants.places import ProducersFindTheirPlace
from coterie.sim.invariants.replayed import ReplayIsTheSame
from coterie.sim.invariants.sessions import SilentMembersGo
from coterie.sim.invariants.times import TimesAreTheWallClocks

__all__ = ["INVARIANTS"]

INVARIANTS = (
    OneOwner,
    AcknowledgedIsKept,
    OnlyDurableIsRead,
    CommitsAreKept,
    WhatIsReadStays,
    EveryRecordIsProcessed,
    RecordsComeInOrder,
    OnlyOwnersCommit,
    FencedStaysFenced,
    OldGenerationsAreRefused,
    SilentMembersGo,
    NobodyIsForgotten,
    RebalancesHaveCauses,
    ProducersFindTheirPlace,
    ReplayIsTheSame,
    CooperativeMembersKeepReading,
    ListenersAreToldInTurn,
    NothingGrows,
    TimesAreTheWallClocks,
    HeldBytesAreCounted,
    NoMistakes,
)
