"""A Kafka-compatible broker in one process: topics, logs, and the groups' coordinator behind the wire protocol.

`node.py` decides and does no I/O; `io/server.py` carries bytes, keeps the clock and waits for the disk; `broker.py` is
both as an object. Read `node.py` first, then the file in `handlers/` that answers the API you are interested in;
`cluster.py` gives each of them the services it needs.
"""
