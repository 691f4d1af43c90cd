"""Readers and writers of messages, generated from their annotations."""
