# SPDX-License-Identifier: Apache-2.0
"""Sphinx settings. Build with ``tox -e docs``; a warning is an error there."""

project = "Nodepool"
copyright = "Nodepool contributors, Apache License 2.0"
extensions = ["sphinx.ext.autodoc"]
autodoc_member_order = "bysource"
autodoc_typehints = "description"
html_theme = "alabaster"
html_theme_options = {"description": "Test nodes for Zuul", "page_width": "1100px"}
html_show_sourcelink = False
