"""Write reports and pictures of rebalances in plain HTML and SVG, without scripts or downloads.

It needs only facts, no broker and no client. Read `report.py` first, then `picture.py`, which draws who owned which
partition when. `designs.py` draws the comparison of the four designs.
"""

from __future__ import annotations

from coterie.web.picture import picture
from coterie.web.report import report

__all__ = ["picture", "report"]
