# SPDX-License-Identifier: Apache-2.0
"""All pages and what they are made with: ``/``, ``/nodes``, ... and ``/static``."""

from __future__ import annotations

from functools import partial

from starlette.routing import BaseRoute

from nodepool.web.answers import StaticFiles
from nodepool.web.pages import login
from nodepool.web.pages.frame import Frame, KeptAnswers, MakePage
from nodepool.web.pages.nodes import label_page, labels_page, node_page, nodes_page, request_page, requests_page
from nodepool.web.pages.overview import overview_page
from nodepool.web.pages.providers import (
    events_page,
    hosts_page,
    image_page,
    images_page,
    launchers_page,
    provider_page,
    providers_page,
    tenants_page,
)
from nodepool.web.site import Site


def routes(site: Site, kept: KeptAnswers) -> list[BaseRoute]:
    """Blocks for the file system, which has the templates and the files of ``/static``.

    :param kept: where live parts are put that are the same for everybody.
    """
    files = StaticFiles()
    frame = Frame(site, files, kept)
    pages: list[tuple[str, MakePage]] = [
        ("/", overview_page),
        ("/requests", requests_page),
        ("/nodes", nodes_page),
        ("/providers", providers_page),
        ("/hosts", hosts_page),
        ("/labels", labels_page),
        ("/launchers", launchers_page),
        ("/images", images_page),
        ("/tenants", tenants_page),
        ("/events", events_page),
        # Names may have a "/" in them.
        ("/requests/{name:path}", partial(request_page, zuul_url=site.zuul_url)),
        ("/nodes/{name:path}", node_page),
        ("/providers/{name:path}", provider_page),
        ("/labels/{name:path}", label_page),
        ("/images/{name:path}", partial(image_page, builder_url=site.builder_url)),
    ]
    logins = [] if site.access is None else login.LoginPages(frame, site.access).routes()
    return [files.route(), *logins, *(frame.route(path, make) for path, make in pages)]
