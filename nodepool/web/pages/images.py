# SPDX-License-Identifier: Apache-2.0
"""``/images`` and ``/images/<name>``: builds and uploads, and how far they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from nodepool.listing import table as listing_table
from nodepool.listing.images import build_request_state, build_table, nodes_by_build, upload_table
from nodepool.listing.table import Column, Table
from nodepool.listing.times import since
from nodepool.model import states
from nodepool.model.image import ImagesView
from nodepool.web.changed_records import RecordKind
from nodepool.web.pages.change_buttons import of_image
from nodepool.web.pages.details import fact
from nodepool.web.pages.frame import Page, PageError
from nodepool.web.pages.links import Links
from nodepool.web.pages.lists import ListSubject, list_of_table
from nodepool.web.pages.table_view import Link, TableView, table_view
from nodepool.web.pages.templates import address

if TYPE_CHECKING:
    from starlette.requests import Request

    from nodepool.web.snapshot import WebSnapshot

_SUBJECT: Final = ListSubject(
    "Images", (RecordKind.IMAGES,), lambda links: {"image": links.image}, "No image is there."
)
#: Rows of each table of one image.
MOST_ROWS: Final = 200


def images_page(request: Request, snapshot: WebSnapshot) -> Page:
    """The list of images."""
    table = image_overview(snapshot.images, snapshot.observed.now)
    return list_of_table(request, _SUBJECT, table, Links(snapshot))


def image_overview(images: ImagesView, now: float) -> Table:
    """A row for each image."""
    columns = (
        Column("Image", "image"),
        Column("State", "state", style=listing_table.state),
        Column("Newest build", "newest", since(now)),
        Column("Ready builds", "ready"),
        Column("Building", "building"),
        Column("Uploading", "uploading"),
        Column("Failed uploads", "failed", priority=2),
        Column("Build request", "request", priority=1),
    )
    rows: list[list[Any]] = []
    for image in images.images.values():
        ready = image.ready_builds()
        uploads = [upload.state for build in image.builds.values() for upload in build.all_uploads()]
        building = len(image.builds_in(states.BUILDING))
        state = "paused" if image.paused else states.BUILDING if building else states.READY if ready else None
        rows.append(
            [
                *(image.name, state, ready[0].time or None if ready else None, len(ready), building),
                *(uploads.count(states.UPLOADING), uploads.count(states.FAILED), build_request_state(image)),
            ]
        )
    return Table(columns, sorted(rows, key=lambda row: row[0]))


def image_page(request: Request, snapshot: WebSnapshot, builder_url: str | None = None) -> Page:
    """One image: its builds with what they do just now, and its uploads with their progress.

    :param builder_url: see `nodepool.web.site.Site`; builds lead to their logs there.
    """
    name, now = request.path_params["name"], snapshot.observed.now
    image = snapshot.images.images.get(name)
    if image is None:
        raise PageError(404, f"There is no image {name}.", (RecordKind.IMAGES,))
    links, only = Links(snapshot), ImagesView({name: image})
    nodes = nodes_by_build(snapshot.observed.nodes.values())
    values = {
        "facts": [
            fact("Paused", "yes" if image.paused else "no"),
            fact("Build request", build_request_state(image)),
        ],
        "tables": [
            _view("Builds", build_table(only, now, snapshot.builders, nodes), links, partial(_log, builder_url)),
            _view("Uploads", upload_table(only, now, snapshot.builders), links),
        ],
    }
    return Page("image.html", f"Image {name}", values, (RecordKind.IMAGES,), of_image(name, paused=image.paused))


def _view(caption: str, table: Table, links: Links, log: Link | None = None) -> TableView:
    """The newest first; states have their colours."""
    columns = [
        replace(column, style=listing_table.state) if column.key == "state" else column
        for column in table.columns
        if column.key != "image"
    ]
    kept = [number for number, column in enumerate(table.columns) if column.key != "image"]
    rows = [[row[number] for number in kept] for row in table.rows[: -MOST_ROWS - 1 : -1]]
    shown = {"provider": links.provider, "nodes": links.node, **({} if log is None else {"id": log})}
    return table_view(caption, Table(columns, rows), shown)


def _log(builder_url: str | None, build: Any, row: Mapping[str, Any]) -> str | None:
    """Where the log of a build is."""
    if builder_url is None or not row["builder"]:
        return None
    return f"{builder_url.format(quote(row['builder']))}/{address('logs', build)}"
