# SPDX-License-Identifier: Apache-2.0
"""``/images``: each image with its builds and uploads, as the commands for images show them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from nodepool.listing.images import build_table, image_status_table, nodes_by_build, upload_table
from nodepool.listing.nodes import matches
from nodepool.listing.table import Column, Table
from nodepool.model import states
from nodepool.model.image import ImagesView
from nodepool.web.api import schemas
from nodepool.web.api.resource import ApiResource, Records, list_resource, objects_of, of_table
from nodepool.web.query import PROVIDER, Parameter, Query, state

if TYPE_CHECKING:
    from nodepool.web.snapshot import WebSnapshot

_STATE: Final = state(tuple(dict.fromkeys((*states.BUILD_STATES, *states.UPLOAD_STATES))))
_IMAGE: Final = Parameter("image", "These images: names or patterns, divided by commas.")
_BUILD: Final = schemas.thing(
    {
        "id": {**schemas.TEXT, "description": "as commands call it: `IMAGE-ID`"},
        "image": schemas.TEXT,
        "builder": schemas.OPTIONAL_TEXT,
        "formats": schemas.TEXTS,
        "state": schemas.TEXT,
        "state_time": schemas.OPTIONAL_MOMENT,
        "step": {**schemas.OPTIONAL_TEXT, "description": "what a running build does"},
        "duration": {**schemas.OPTIONAL_NUMBER, "description": "seconds"},
        "estimate": {**schemas.OPTIONAL_NUMBER, "description": "seconds that a running build may take in all"},
        "size": schemas.ANYTHING,
        "nodes": {**schemas.TEXTS, "description": "ids of the nodes that were made from it"},
    }
)
_UPLOAD: Final = schemas.thing(
    {
        "id": {**schemas.TEXT, "description": "of the build"},
        "upload_id": schemas.TEXT,
        "provider": schemas.TEXT,
        "image": schemas.TEXT,
        "external_name": schemas.OPTIONAL_TEXT,
        "external_id": schemas.OPTIONAL_TEXT,
        "state": schemas.TEXT,
        "state_time": schemas.OPTIONAL_MOMENT,
        "format": schemas.OPTIONAL_TEXT,
        "use": {**schemas.OPTIONAL_TEXT, "description": "`current`: nodes are made from it; or `rolled back`"},
        "progress": {**schemas.OPTIONAL_NUMBER, "description": "percent"},
        "speed": {**schemas.OPTIONAL_NUMBER, "description": "bytes per second"},
        "size": {**schemas.OPTIONAL_NUMBER, "description": "bytes"},
    }
)
_PROPERTIES: Final = {
    "image": schemas.TEXT,
    "paused": schemas.FLAG,
    "build_request": {"enum": ["pending", "building", None]},
    "build_requested": schemas.OPTIONAL_MOMENT,
    "builds": schemas.array(_BUILD),
    "uploads": schemas.array(_UPLOAD),
}


def image_resources() -> list[ApiResource]:
    return [
        list_resource("/images", "Images, their builds and uploads", _images, _PROPERTIES, (_IMAGE, _STATE, PROVIDER))
    ]


def _images(snapshot: WebSnapshot, query: Query) -> Records:
    names = query.names(_IMAGE)
    query.names(_STATE), query.names(PROVIDER)
    table = image_status_table(snapshot.images, snapshot.observed.now, moments=True)
    records = [row for row in table.rows if matches(names, [row[0]])]

    def with_parts(rows: Any) -> Table:
        nodes = nodes_by_build(snapshot.observed.nodes.values())
        return Table(
            [*(Column(one.header, _KEYS.get(one.key, one.key)) for one in table.columns), *_PARTS],
            [[*row, *_parts(snapshot, query, row[0], nodes)] for row in rows],
        )

    found = of_table(Table(table.columns, records), ("image",))
    orders = {_KEYS.get(key, key): order for key, order in found.orders.items()}
    return Records(records, orders, found.identity, found.default, with_parts)


#: Keys of ages in tables -> of the moments that stand there.
_KEYS: Final[Mapping[str, str]] = {"age": "state_time", "build_request_age": "build_requested"}
_PARTS: Final = (Column("Builds", "builds"), Column("Uploads", "uploads"))


def _parts(snapshot: WebSnapshot, query: Query, image: str, nodes: Mapping[str, list[str]]) -> list[Any]:
    """Builds and uploads of an image that are wanted."""
    wanted, providers = query.names(_STATE), query.names(PROVIDER)
    view, now = ImagesView({image: snapshot.images.image(image)}), snapshot.observed.now
    builds = build_table(view, now, snapshot.builders, nodes, moments=True, pauses=False)
    uploads = upload_table(view, now, snapshot.builders, moments=True)
    return [
        [row for row in _renamed(builds) if not wanted or row["state"] in wanted],
        [
            row
            for row in _renamed(uploads)
            if (not wanted or row["state"] in wanted) and matches(providers, [row["provider"]])
        ],
    ]


def _renamed(table: Table) -> list[dict[str, Any]]:
    return [{_KEYS.get(key, key): value for key, value in row.items()} for row in objects_of(table)]
