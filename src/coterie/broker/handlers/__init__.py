"""Handlers answer the requests of each API. `handlers()` of a class says which method handles which API."""
