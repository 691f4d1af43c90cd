"""The main job end to end, on embedded parts: a broker, a stream of orders, members that come, go, die and dawdle.

Read `plot.py` for what happens, `stage.py` for what it happens on, `member.py` for a member (a process of its own, so
that it can be killed), `promises.py` for what is checked at the end, `show.py` for what is printed.
"""
