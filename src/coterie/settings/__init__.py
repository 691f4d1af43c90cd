"""How settings are told, whoever's they are: kinds of values, rows of a table, where values come from; pure.

Knows neither broker nor client, which have a table each. Read `setting.py` first (a row), then `kinds.py` (what a value
may be), `sources.py` (files, `--set`, keywords, and which of them count), `sources.py` (Java's files).
"""

from __future__ import annotations

from coterie.settings.setting import SettingsError

__all__ = ["SettingsError"]
