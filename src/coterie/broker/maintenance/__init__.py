"""Background work of a broker: flushes, log cleaning, retention, changes of the data directory, kept files."""
