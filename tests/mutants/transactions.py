"""Rules of transactions broken on purpose, a row each, by the number of the rule in docs/semantics-transactions.md."""

from __future__ import annotations

from mutants.mutant import Mutant

__all__ = ["TRANSACTIONS"]

RULES = ("tests/coordinator/transactions",)
LOGS = ("tests/broker/test_transactional_logs.py", "tests/storage/test_transaction_index.py")
PRODUCE = ("tests/broker/test_transactional_produce.py",)
OFFSETS = ("tests/broker/test_txn_offset_commit.py",)
RESTART = ("tests/broker/test_transactions_restart.py",)

TRANSACTIONS = [
    Mutant(
        "TS3",
        "changes are taken while a record is on its way",
        "coordinator/transactions/add_partitions_to_txn.py",
        "ErrorCode.CONCURRENT_TRANSACTIONS if transaction.pending is not None else _judge(transaction, request)",
        "_judge(transaction, request)",
        tests=RULES,
    ),
    Mutant(
        "TS4",
        "a record that could not be written counts",
        "coordinator/transactions/lifecycle.py",
        "        transaction.pending = None\n        return transaction.answer(event.error)",
        "        transaction.apply(event.value)\n        transaction.pending = None\n        return transaction.answer(event.error)",
        tests=RULES,
    ),
    Mutant(
        "TI3",
        "a plain Init keeps the last epoch",
        "coordinator/transactions/init_producer_id.py",
        "producer_id, epoch + 1, NONE)",
        "producer_id, epoch + 1, epoch)",
        tests=RULES,
    ),
    Mutant(
        "TI5",
        "an Init over an open transaction does not bump the epoch",
        "coordinator/transactions/end_txn.py",
        "fresh_producer_id, bumps=True)",
        "fresh_producer_id, bumps=False)",
        tests=RULES,
    ),
    Mutant(
        "TI7",
        "epochs go on beyond the last",
        "coordinator/transactions/transaction.py",
        "return self.producer_epoch >= LAST_EPOCH",
        "return self.producer_epoch > LAST_EPOCH",
        tests=RULES,
    ),
    Mutant(
        "TE2",
        "a repeated end is fenced",
        "coordinator/transactions/end_txn.py",
        "if repeats_last or request.producer_epoch == transaction.producer_epoch - 1:",
        "if repeats_last:",
        tests=RULES,
    ),
    Mutant(
        "TR5",
        "the completion does not wait for all markers",
        "coordinator/transactions/end_txn.py",
        "return [] if transaction.unmarked else _complete(transaction, now_ms)",
        "return _complete(transaction, now_ms)",
        tests=RULES,
    ),
    Mutant(
        "TR3",
        "a decided transaction is not completed when it is loaded",
        "coordinator/transactions/lifecycle.py",
        "    if transaction.state in COMPLETED:\n        return write_markers(transaction, now_ms)\n    if transaction.state is ONGOING:",
        "    if transaction.state is ONGOING:",
        tests=RULES,
    ),
    Mutant(
        "TT1",
        "the timeout is renewed by each partition",
        "coordinator/transactions/add_partitions_to_txn.py",
        "    if begins:\n        transaction.deadline_ms",
        "    if True:\n        transaction.deadline_ms",
        tests=RULES,
    ),
    Mutant(
        "TL3",
        "a marker that is not durable decides",
        "storage/producer_state.py",
        "while ended and ended[0][1] < high_watermark:",
        "while ended:",
        tests=LOGS,
    ),
    Mutant(
        "TL5",
        "aborted transactions of later segments are not listed",
        "storage/partition_log.py",
        "            for segment in self._segments[first:]:\n                for row",
        "            for segment in self._segments[first : first + 1]:\n                for row",
        tests=LOGS,
    ),
    Mutant(
        "TL10",
        "compaction keeps a row without its marker",
        "storage/compaction.py",
        "if row.last_offset in markers:",
        "if True:",
        tests=LOGS,
    ),
    Mutant(
        "TL10",
        "recovery forgets aborted transactions",
        "storage/recovery.py",
        "        if aborted is not None and segment is not None:",
        "        if False:",
        tests=LOGS,
    ),
    Mutant(
        "TP2",
        "the coordinator is never asked",
        "broker/handlers/produce.py",
        "        unverified.append(batch)\n        return []",
        "        return self._append_transactional(production, batch, now_ms)",
        tests=PRODUCE,
    ),
    Mutant(
        "TP4",
        "a produce does not wait for the end before",
        "broker/transactional_writes.py",
        "if error is ErrorCode.CONCURRENT_TRANSACTIONS and at_ms < due.until_ms:",
        "if False:",
        tests=PRODUCE,
    ),
    Mutant(
        "TP6",
        "a new producer starts anywhere",
        "storage/producer_state.py",
        "if starts_at_zero and header.base_sequence != 0:",
        "if False:",
        tests=PRODUCE,
    ),
    Mutant(
        "TO1",
        "the group is asked before the coordinator",
        "broker/handlers/group_apis.py",
        "        return ask(producer, partitions, admitted, now_ms)",
        "        return self._ask(request, now_ms)",
        tests=OFFSETS,
    ),
    Mutant(
        "TO3",
        "transactional commits hear of stale epochs",
        "coordinator/consumer/group.py",
        "is_older = member.is_classic or transactional",
        "is_older = member.is_classic",
        tests=("tests/coordinator/consumer/test_lifecycle.py",),
    ),
    Mutant(
        "TL8",
        "a marker that failed is not written again",
        "broker/transaction_service.py",
        "            self.timers.arm(key, now_ms + RETRY_MS, MarkerRetryDue(self, effect, partition))\n",
        "",
        tests=RESTART,
    ),
]
