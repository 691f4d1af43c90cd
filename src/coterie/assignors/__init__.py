"""Who reads what: from the members' subscriptions to an assignment, pure and stateless.

Knows nothing of groups, brokers or time.
"""
