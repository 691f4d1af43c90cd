"""Handlers answer the requests of each API. `table.py` says which function handles which API."""
