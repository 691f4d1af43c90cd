"""The tables of settings: name, type, default, bounds and help of each, once. Pure; everything else is a view of them.

`broker_settings.py` and `topic_configs.py` have the broker's and the topics', `client_settings.py` those of consumer,
producer and admin. `config_def.py` is what a table is made of; `sources.py` reads files, options and the environment.
"""

from __future__ import annotations

from coterie.settings.config_def import SettingsError

__all__ = ["SettingsError"]
