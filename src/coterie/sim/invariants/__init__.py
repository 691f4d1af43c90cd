"""The invariants of every simulated run. An invariant checks where its subject changes; `sample` has the expensive
checks, which run now and then, and `ended` those that must hold when all faults are repaired.
"""

from __future__ import annotations

from coterie.sim.invariants.acknowledged_records import (
    AcknowledgedIsKept,
    EveryRecordIsProcessed,
    OnlyDurableIsRead,
    ProducersFindTheirPlace,
    RecordsComeInOrder,
)
from coterie.sim.invariants.broker_state import (
    HeldBytesAreCounted,
    NoMistakes,
    NothingGrows,
    ReplayIsTheSame,
    TimesAreTheWallClocks,
)
from coterie.sim.invariants.committed_offsets import CommitsAreKept, OnlyOwnersCommit, WhatIsReadStays
from coterie.sim.invariants.consumer_groups import (
    EpochsAreChecked,
    EpochsHaveCauses,
    EpochsNeverGoBack,
    OneHolder,
)
from coterie.sim.invariants.memberships import (
    AssignmentsAreTheStoredOnes,
    CooperativeMembersKeepReading,
    FencedStaysFenced,
    ListenersAreCalledInTurn,
    OldGenerationsAreRefused,
    OneOwner,
)
from coterie.sim.invariants.requests import NobodyIsForgotten, RebalancesHaveCauses, SilentMembersGo
from coterie.sim.invariants.transaction_outcomes import DecisionsStand, FencedWritesNothing, TransactionsEnd
from coterie.sim.invariants.transactional_offsets import OffsetsGoWithOutput
from coterie.sim.invariants.transactional_records import (
    AbortedIsNeverRead,
    NothingIsReadBeforeItsMarker,
    TransactionsAreWhole,
)

__all__ = ["INVARIANTS"]

INVARIANTS = (
    OneOwner,
    AssignmentsAreTheStoredOnes,
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
    ListenersAreCalledInTurn,
    OneHolder,
    EpochsNeverGoBack,
    EpochsHaveCauses,
    EpochsAreChecked,
    NothingGrows,
    TimesAreTheWallClocks,
    HeldBytesAreCounted,
    AbortedIsNeverRead,
    NothingIsReadBeforeItsMarker,
    TransactionsAreWhole,
    OffsetsGoWithOutput,
    DecisionsStand,
    FencedWritesNothing,
    TransactionsEnd,
    NoMistakes,
)
