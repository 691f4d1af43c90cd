"""How settings are told, whoever's they are: kinds of values, rows of a table, where values come from; pure.

Knows neither broker nor client, which have a table each. Read `setting.py` first (a row), then `kinds.py` (what a value
may be), `sources.py` (files, `--set`, keywords, and which of them count), `properties.py` (Java's files).
"""

from __future__ import annotations

from coterie.settings.kinds import Flag, Kind, Number, Ratio, Word, Words, int32, int64, text_of
from coterie.settings.properties import parse_properties
from coterie.settings.setting import Setting, SettingsError, dotted, rows_of, setting
from coterie.settings.sources import Given, Ignored, Table, from_properties, from_sets, settle

__all__ = [
    "Flag",
    "Given",
    "Ignored",
    "Kind",
    "Number",
    "Ratio",
    "Setting",
    "SettingsError",
    "Table",
    "Word",
    "Words",
    "dotted",
    "from_properties",
    "from_sets",
    "int32",
    "int64",
    "parse_properties",
    "rows_of",
    "setting",
    "settle",
    "text_of",
]
