"""Show groups and their rebalances: pages, reports and pictures, and the server of `coterie web`.

`app.py` has the pages and the API of the server, `metrics.py` what Prometheus reads, `webhook.py` sends findings.
`report.py` writes a report in one file; `picture.py` draws who owned which partition when, and needs only facts;
`plan_page.py` and `designs.py` show forecasts and the comparison of the four designs. Nothing is downloaded.
"""

from __future__ import annotations

from coterie.web.picture import picture
from coterie.web.report import report

__all__ = ["picture", "report"]
