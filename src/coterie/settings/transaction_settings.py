"""The settings of the transaction coordinator."""

from __future__ import annotations

from dataclasses import dataclass

from coterie.settings.config_def import Flag, Settings, int32, setting
from coterie.settings.group_coordinator_settings import SMALLEST_SEGMENT

TRANSACTIONS = "Transactions"


@dataclass(frozen=True, kw_only=True)
class TransactionSettings(Settings):
    """The settings that the transaction coordinator uses."""

    transaction_max_timeout_ms: int = setting(
        TRANSACTIONS, 900_000, int32(1), "The longest transaction timeout that a producer may ask for."
    )
    transactional_id_expiration_ms: int = setting(
        TRANSACTIONS,
        604_800_000,
        int32(1),
        "How long a transactional id is kept after its last change, unless it has an open transaction.",
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = setting(
        TRANSACTIONS, 10_000, int32(1), "How often the broker looks for transactions that have timed out."
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = setting(
        TRANSACTIONS, 3_600_000, int32(1), "How often the broker looks for transactional ids that have expired."
    )
    transaction_partition_verification_enable: bool = setting(
        TRANSACTIONS,
        True,
        Flag(),
        "Whether Produce up to version 11 asks the coordinator if a partition is in the transaction.",
    )
    transaction_state_log_num_partitions: int = setting(
        TRANSACTIONS,
        50,
        int32(1),
        "How many partitions __transaction_state has. It cannot be changed once the topic exists.",
    )
    transaction_state_log_segment_bytes: int = setting(
        TRANSACTIONS, 104_857_600, int32(SMALLEST_SEGMENT), "The size of a segment of __transaction_state."
    )
    add_partitions_to_txn_retry_backoff_ms: int = setting(
        TRANSACTIONS,
        20,
        int32(1),
        "How long the broker waits before it adds a partition again, if the transaction before is still being ended.",
    )
    add_partitions_to_txn_retry_backoff_max_ms: int = setting(
        TRANSACTIONS, 100, int32(0), "How long the broker tries this before it answers CONCURRENT_TRANSACTIONS."
    )
