# SPDX-License-Identifier: Apache-2.0
"""``/events``: the rows of ``nodepool events``. New ones are sent by ``/events/stream`` (`nodepool.web.stream`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nodepool.listing.records import event_table, is_about
from nodepool.plan.attention import merged
from nodepool.web.api import schemas
from nodepool.web.api.resource import ApiResource, Records, list_resource, of_table
from nodepool.web.query import SINCE, SUBJECT, Query

if TYPE_CHECKING:
    from nodepool.web.snapshot import WebSnapshot

_PROPERTIES: Final = {
    "at": schemas.MOMENT,
    "subject": {**schemas.TEXT, "description": "kind and name"},
    "what": schemas.TEXT,
    "text": {**schemas.TEXT, "description": "the cause"},
    "code": schemas.TEXT,
    "actor": {**schemas.TEXT, "description": "launchers that saw it"},
    "count": {**schemas.COUNT, "description": "subjects; `subject` is the last one"},
}


def event_resources() -> list[ApiResource]:
    return [list_resource("/events", "What happened, the oldest first", _events, _PROPERTIES, (SINCE, SUBJECT))]


def _events(snapshot: WebSnapshot, query: Query) -> Records:
    seen, about = snapshot.observed, query.given.get(SUBJECT.name)
    events = (event for event in seen.events if about is None or is_about(event, about))
    table = event_table(merged(events, query.since(seen.now)), seen.now)
    return of_table(table, ("at", "subject", "what", "code", "text"))
