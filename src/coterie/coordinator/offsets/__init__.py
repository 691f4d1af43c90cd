"""Committed offsets: the rules of OffsetCommit, OffsetFetch, OffsetDelete and of their expiry."""
