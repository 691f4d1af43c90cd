"""How `make docs` makes HTML of these pages. Every warning is an error: a link that leads nowhere fails the build."""

from __future__ import annotations

from coterie.version import __version__

project = "Coterie"
version = release = __version__
project_copyright = ""
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
nitpicky = True

# Pages use plain Markdown only, so that they read the same in a repository's browser; api.rst is made of docstrings.
myst_heading_anchors = 4
autodoc_member_order = "bysource"
default_role = "code"
nitpick_ignore_regex = [
    ("py:.*", r"(asyncio|collections|concurrent|os|re|typing|uuid)\..*"),  # Python's own
    ("py:.*", r"(Awaitable|Callable|Future|Mapping|NamedTuple|Self|TimeoutError|OSError|Unpack)"),
    ("py:.*", r"coterie\.client\.settings_kwargs\..*"),  # client-settings.md has them
    ("py:.*", r"coterie\.settings\.broker_settings\..*"),  # settings.md has them
    ("py:.*", r"coterie\.(broker|facts|ledger)\..*"),  # what a broker takes and tells has pages of its own
    ("py:.*", r"coterie\.testing\.(controlled_server\.ControlledServer|\w+\.T)"),  # what runs in the broker's thread
    ("py:.*", r"Filter|tuple\[~coterie\.testing\.groups\.Member"),
    ("py:.*", r"coterie\.client\.producer\.partition_queue\.ProducerIdAndEpoch"),  # for TransactionalSink alone
    ("py:.*", r"coterie\.protocol\.(_fast_)?records?.*\.Record"),  # compiled or not, it is coterie.Record
]

html_theme = "furo"
html_title = "Coterie"
html_static_path = ["_static"]
html_css_files = ["wide.css"]
html_show_copyright = False
html_show_sphinx = False
html_copy_source = False
