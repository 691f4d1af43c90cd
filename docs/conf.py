"""How `make docs` makes HTML of these pages. Every warning is an error: a link that leads nowhere fails the build."""

from __future__ import annotations

from coterie.version import __version__

project = "Coterie"
version = release = __version__
project_copyright = ""
extensions = ["myst_parser"]
nitpicky = True

# Pages use plain Markdown only, so that they read the same in a repository's browser.
myst_heading_anchors = 4

html_theme = "furo"
html_title = "Coterie"
html_static_path = ["_static"]
html_css_files = ["wide.css"]
html_show_copyright = False
html_show_sphinx = False
html_copy_source = False
