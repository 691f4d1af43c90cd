"""The tables of settings: name, type, default, bounds and help of each, once. Pure; everything else is a view of them.

`broker_settings.py` puts the broker's table together from `group_coordinator_settings.py`, `transaction_settings.py`,
`log_settings.py` and `socket_server_settings.py`; `topic_configs.py` has the configs of topics. `client_settings.py`
has the settings of all clients and of the admin client, `security_settings.py` their TLS and SASL,
`consumer_settings.py` and `producer_settings.py` the others. `config_def.py` is what a table is made of; `sources.py`
reads files, options and the environment.
"""

from __future__ import annotations

from coterie.settings.config_def import SettingsError

__all__ = ["SettingsError"]
