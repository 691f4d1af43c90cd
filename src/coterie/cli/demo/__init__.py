"""`coterie demo`: a broker, a stream of orders, and members that join, leave, crash and are too slow.

Read `demo_steps.py` for what happens and to which group, `members.py` for the member processes, and `demo.py` for
what is checked at the end and printed.
"""
