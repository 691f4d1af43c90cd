"""The client: a member without I/O, and the consumer, producer and admin that drive the rules over sockets.

What decides is in `member/`; it knows no clock, no dice and no network. The client never imports the broker. Read
`member/__init__.py` first.
"""
