"""The command that installs an extra of this package. Coterie is on no package index, so a clone or a wheel is used."""

from __future__ import annotations

import json
from urllib.parse import unquote, urlsplit


def how_to_install(extra: str) -> str:
    """Return the command that installs `extra`. It names the clone or wheel of this installation if pip recorded it."""
    source, is_editable = _source()
    if source is None:
        return f"pip install 'PATH[{extra}]', where PATH is a clone of Coterie or its wheel"
    return f"pip install {'-e ' if is_editable else ''}'{source}[{extra}]'"


def _source() -> tuple[str | None, bool]:
    """Return what pip recorded about this installation (PEP 610)."""
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        recorded = json.loads(distribution("coterie").read_text("direct_url.json") or "{}")
        url = urlsplit(recorded.get("url", ""))
        is_editable = bool(recorded.get("dir_info", {}).get("editable", False))
    except (PackageNotFoundError, ValueError, AttributeError):
        return None, False
    return (unquote(url.path) if url.scheme == "file" else None), is_editable
