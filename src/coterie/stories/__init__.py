"""The scenario language: a group driven step by step under a clock of its own, as methods or as a text grid.

Used by the tests and by whatever else plays groups. Read `story.py` first.
"""
