"""Forecasts what a change will cost a consumer group, before it is made: `coterie plan`.

A group (`group_model.py`) and a change (`changes.py`) become a simulated world for each seed. `simulated_group.py` runs
the shipped broker and consumers in virtual time; records are not sent but counted (`record_flow.py`). `costs.py` has
the costs of one world and their distribution over seeds, `variants.py` compares settings and searches for better ones.
Nothing here reads a clock, a file or the network. Read `simulated_group.py` first.
"""

from __future__ import annotations

from coterie.forecast.changes import Autoscale, Change, Crashes, Deploy, Grow, InTurn, Nothing, Scale, Slow
from coterie.forecast.costs import COSTS, Spread, WorldCost, spread_of
from coterie.forecast.group_model import GroupModel, MemberModel, Origin, TopicModel, parse_group
from coterie.forecast.simulated_group import Question, simulate_group
from coterie.forecast.variants import Forecast, forecasts, variants_of

__all__ = [
    "COSTS",
    "Autoscale",
    "Change",
    "Crashes",
    "Deploy",
    "Forecast",
    "GroupModel",
    "Grow",
    "InTurn",
    "MemberModel",
    "Nothing",
    "Origin",
    "Question",
    "Scale",
    "Slow",
    "Spread",
    "TopicModel",
    "WorldCost",
    "forecasts",
    "parse_group",
    "simulate_group",
    "spread_of",
    "variants_of",
]
