# SPDX-License-Identifier: Apache-2.0
"""All pages and what they are made with: ``/``, ``/nodes``, ... and ``/static``."""

from __future__ import annotations

from starlette.routing import BaseRoute

from nodepool.web.pages.frame import Frame
from nodepool.web.pages.overview import overview_page
from nodepool.web.site import Site
from nodepool.web.static_files import StaticFiles


def routes(site: Site) -> list[BaseRoute]:
    """Blocks for the file system, which has the templates and the files of ``/static``."""
    files = StaticFiles()
    frame = Frame(site, files)
    return [
        files.route(),
        frame.route("/", overview_page),
    ]
