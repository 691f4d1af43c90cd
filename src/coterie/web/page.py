"""The page: one script and one style, live from a server, or as one file with its data in it.

It needs no build step and nothing from elsewhere: the files of `assets/` are joined in their order.
"""

from __future__ import annotations

import json
from base64 import b64encode
from functools import cache
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import Any

_SCRIPTS = ("base", "colours", "history", "view", "ownership", "bands", "table", "story", "group", "groups", "main")
_SHELL = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
{head}
<title>{title}</title>
<link rel="icon" href="data:,">
{style}
</head><body>
<a class="skip" href="#main">Skip to the content</a>
<header class="top"><h1><a href="#/">{title}</a></h1><p id="status" role="status"></p>
<button id="theme" type="button">Theme: system</button></header>
<main id="main" tabindex="-1"></main>
{rest}
{script}
</body></html>
"""


@cache
def script() -> str:
    """Return the script of the page."""
    parts = [_asset(f"{name}.js") for name in _SCRIPTS]
    return "\n".join(['"use strict";', "const Coterie = {};", *parts])


@cache
def style() -> str:
    return _asset("page.css")


def _asset(name: str) -> str:
    return (files("coterie.web") / "assets" / name).read_text(encoding="utf-8")


def live_page(title: str) -> str:
    """Return the page that asks its server for data."""
    return _SHELL.format(
        title=escape(title or "Consumer groups"),
        head="",
        style='<link rel="stylesheet" href="page.css">',
        rest="",
        script='<script src="page.js"></script>',
    )


def file_page(
    title: str,
    listed: dict[str, Any],
    details: list[dict[str, Any]],
    tables: str,
    more_style: str,
    summary: str = "",
) -> str:
    """Return the page as one file. `tables` is HTML for readers without scripts, and for paper; `summary` for all.

    The policy in its head allows this one script: nothing that a client calls itself can run.
    """
    text = script()
    allowed = b64encode(sha256(text.encode()).digest()).decode()
    policy = f"default-src 'none'; script-src 'sha256-{allowed}'; style-src 'unsafe-inline'; img-src data:"
    data = json.dumps({"list": listed, "groups": details}, separators=(",", ":")).replace("<", "\\u003c")
    rest = f'<details id="tables" class="tables" open><summary>As tables</summary>{tables}</details>' if tables else ""
    return _SHELL.format(
        title=escape(title),
        head=f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        style=f"<style>{more_style}{style()}</style>",
        rest=summary + rest,
        script=f'<script type="application/json" id="data">{data}</script><script>{text}</script>',
    )
