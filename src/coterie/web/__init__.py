"""Pages for a browser, made of rebalances and intervals: plain HTML and SVG, nothing to download, nothing to build.

Knows the ledger and nothing of brokers or clients: who calls it brings the facts. Read `report.py` first, then
`picture.py` for who owned what when. `designs.py` draws what history has to compare, and is loaded for that alone.
"""

from __future__ import annotations

from coterie.web.picture import picture
from coterie.web.report import report

__all__ = ["picture", "report"]
