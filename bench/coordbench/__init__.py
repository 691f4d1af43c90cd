"""coordbench: measure a Kafka group coordinator from outside, over the wire protocol. Any broker will do.

It knows nothing of the target but a bootstrap address and, for CPU and memory, a process id. One thread, one epoll, one
request in flight per connection. Every member has its own connection and has really joined and synced. Every reply is
checked; an error reply is never a success, and a target that misbehaves makes the program exit with 1.

Frames that are sent often are encoded once; per request only the correlation id (and, when a rebalance changes it, the
generation id) is patched. Replies seen to be right once are compared as bytes from then on, so that checking costs the
generator little. README.md says what is measured and how to read it; start with `scenarios.py`.
"""
