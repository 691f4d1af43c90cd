"""Connections to a cluster: addresses, sockets, metadata, retries."""
