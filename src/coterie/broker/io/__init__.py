"""The I/O of a broker: event loop, sockets, clocks, scheduling of connections."""
