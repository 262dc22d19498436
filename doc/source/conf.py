# SPDX-License-Identifier: Apache-2.0
"""Sphinx settings. Build with ``tox -e docs``; a warning is an error there."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "extensions"))

project = "Nodepool"
copyright = "Nodepool contributors, Apache License 2.0"
extensions = [
    "sphinx.ext.autodoc",
    "code_tables",
    "command_line",
    "config_keys",
    "listing_columns",
    "log_messages",
    "metrics",
    "page_pictures",
    "reason_codes",
    "release_notes",
    "rules",
]
autodoc_member_order = "bysource"
autodoc_typehints = "description"
# Options are shown as they are typed: "--" is no dash.
smartquotes = False
# A block without a language is what a terminal shows, not Python.
highlight_language = "none"
html_theme = "furo"
html_title = "Nodepool"
html_show_sourcelink = False
html_static_path = ["static"]
html_css_files = ["tables.css", "pictures.css"]
man_pages = [
    ("reference/man/nodepool", "nodepool", "show and change what Nodepool knows", "", 1),
    ("reference/man/nodepool-launcher", "nodepool-launcher", "serve node requests of Zuul", "", 1),
    ("reference/man/nodepool-builder", "nodepool-builder", "build images and upload them to clouds", "", 1),
    ("reference/man/nodepool-web", "nodepool-web", "serve Nodepool's web pages, API and logins", "", 1),
    ("reference/man/nodepool-tls", "nodepool-tls", "make certificates for ZooKeeper", "", 1),
]
# A reference without a target is a warning, but for names in signatures and docstrings: not all of them are described.
nitpicky = True
nitpick_ignore_regex = [("py:.*", ".*")]
