"""The coordinators of groups and of transactions, without I/O.

`runtime/` keeps groups by partition. `classic/` has the rules of classic groups, `consumer/` those of groups of the
consumer protocol (KIP-848), `offsets/` those of committed offsets, `transactions/` those of transactions.
"""
