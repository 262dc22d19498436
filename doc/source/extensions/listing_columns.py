# SPDX-License-Identifier: Apache-2.0
"""The columns of the listings of ``nodepool``, made of the tables that the commands print (`nodepool.listing`).

In a page, ``.. listing-columns::`` becomes a table with a row for each listing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from nodepool.cmd import configuration
from nodepool.listing import images, nodes, pools, records, requests
from nodepool.listing.table import PEOPLE, Column, Place, Table
from nodepool.model.image import ImagesView
from nodepool.model.status import BuilderStatus
from nodepool.plan.observed import Observed

DIRECTIVE: Final = re.compile(r"^\.\. listing-columns::\n", re.MULTILINE)


def tables() -> dict[str, Table]:
    """Command -> its table, without rows."""
    no_images, no_status = ImagesView(), BuilderStatus()
    return {
        "list": nodes.node_table([], nodes.NodeFacts(), 0.0),
        "list --detail": nodes.node_table([], nodes.NodeFacts(), 0.0, detail=True),
        "request-list": requests.request_table([], 0.0),
        "label-list": pools.label_overview(Observed(now=0.0)),
        "providers": pools.provider_table([], [], 0.0),
        "providers --limits": pools.limit_table([], 0.0),
        "hosts": nodes.host_table([], 0.0),
        "launchers": records.launcher_table([], [], 0.0),
        "tenants": pools.tenant_table(Observed(now=0.0)),
        "events": records.event_table([], 0.0),
        "maintenance": records.maintenance_table([], 0.0),
        "images": images.image_table(no_images, 0.0),
        "image-list": images.upload_table(no_images, 0.0),
        "image-list --detail": images.upload_table(no_images, 0.0, no_status),
        "dib-image-list": images.build_table(no_images, 0.0),
        "dib-image-list --detail": images.build_table(no_images, 0.0, no_status, {}),
        "image-status": images.image_status_table(no_images, 0.0),
        "alien-image-list": images.alien_image_table([]),
        "info, first table": pools.provider_image_table([]),
        "info, second table": pools.provider_node_table([]),
        "check": configuration.check_table({}),
    }


def expand(text: str) -> str:
    """A page with its table."""
    return DIRECTIVE.sub(lambda _: "\n".join(_lines()) + "\n", text)


def _lines() -> Iterator[str]:
    yield from (".. list-table::", "   :header-rows: 1", "   :widths: 16 42 42", "")
    yield from _row("Command", "Output to a file or a program", "On a terminal")
    for listing, table in tables().items():
        command, comma, which = listing.partition(",")
        ranks = {key: rank for rank, key in enumerate(table.people)}
        people = sorted(table.columns, key=lambda column: ranks.get(column.key, len(ranks)))
        program = _named(column for column in table.columns if Place.TABLE in column.places)
        terminal = _named(column for column in people if Place.TERMINAL in column.places)
        wide = _named(column for column in people if PEOPLE & column.places == Place.WIDE)
        json = _named(column for column in table.columns if not column.places)
        parts = ["the same" if terminal == program else terminal]
        parts += [f"with ``-o wide`` also {wide}"] if wide else []
        parts += [f"only in JSON {json}"] if json else []
        yield from _row(f"``{command}``{comma}{which}", program, "; ".join(parts))


def _named(columns: Iterable[Column]) -> str:
    return ", ".join(f"{column.header} (``{column.key}``)" for column in columns)


def _row(first: str, *others: str) -> Iterator[str]:
    yield f"   * - {first}"
    yield from (f"     - {cell}" for cell in others)


def setup(app: Any) -> dict[str, Any]:
    """For Sphinx. The table is put into the text of a page before it is parsed."""

    def read(app: Any, page: str, source: list[str]) -> None:
        for module in (images, nodes, pools, configuration, records, requests) if DIRECTIVE.search(source[0]) else ():
            app.env.note_dependency(module.__file__)
        source[0] = expand(source[0])

    app.connect("source-read", read)
    return {"parallel_read_safe": True}
