"""Authentication and authorization: TLS and SASL of a listener, credentials, principals and ACLs. No I/O.

Sockets and TLS contexts are in `broker/io/`. SASL mechanisms are in `protocol/sasl_mechanisms.py`.
"""
