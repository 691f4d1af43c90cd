"""What happened, told back: facts are folded into rounds with cause, culprit and cost.

Knows facts and bytes, not groups: the same fold reads facts of our broker or of any other source. Read `rounds.py`.
"""
