# SPDX-License-Identifier: Apache-2.0
"""`Links`: where values in tables lead to. Of what is not there any more there is no page, and no link."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from nodepool.web.pages.table_view import CellText
from nodepool.web.pages.templates import address

if TYPE_CHECKING:
    from nodepool.web.snapshot import WebSnapshot

#: Kind of the subject of an event -> list in which it is looked for.
_LISTS: Final = {"host": "hosts", "launcher": "launchers"}


class Links:
    """The pages of one snapshot. Methods take a value, and the row of the table that has it."""

    def __init__(self, snapshot: WebSnapshot) -> None:
        self._snapshot = snapshot
        self._seen = snapshot.observed

    @cached_property
    def providers(self) -> frozenset[str]:
        """Names of the providers that have a page."""
        absent = (one.name for launcher in self._snapshot.launchers for one in launcher.absent)
        return frozenset({*self._seen.providers, *absent, *(status.provider for status in self._seen.statuses)})

    @cached_property
    def labels(self) -> frozenset[str]:
        """Names of the labels that have a page."""
        broken = (label for status in self._seen.statuses for label in status.labels)
        wanted = (label for request in self._seen.requests.values() for label in request.node_types)
        return frozenset({*self._seen.labels, *broken, *wanted})

    def pool(self, value: Any, _row: Mapping[str, Any] | None = None) -> str | None:
        """``<provider>/<pool>``, or the provider alone."""
        text = str(value)
        for name in (text, text.partition("/")[0], text.rpartition("/")[0]):
            if name in self.providers:
                return _page("providers", name, self.providers)
        return None

    def provider(self, value: Any, _row: Mapping[str, Any] | None = None) -> str | None:
        return _page("providers", value, self.providers)

    def label(self, value: Any, _row: Mapping[str, Any] | None = None) -> str | None:
        return _page("labels", value, self.labels)

    def node(self, value: Any, _row: Mapping[str, Any] | None = None) -> str | None:
        return _page("nodes", value, self._seen.nodes)

    def request(self, value: Any, _row: Mapping[str, Any] | None = None) -> str | None:
        return _page("requests", value, self._seen.requests)

    def image(self, value: Any, _row: Mapping[str, Any] | None = None) -> str | None:
        return _page("images", value, self._snapshot.images.images)

    def tenant(self, value: Any, _row: Mapping[str, Any] | None = None) -> str | None:
        """The requests of a tenant."""
        return address("requests", tenant=str(value))

    def launcher(self, value: Any, _row: Mapping[str, Any] | None = None) -> str | None:
        """The launchers whose row has the name."""
        return address("launchers", q=str(value))

    def subject(self, value: Any, _row: Mapping[str, Any] | None = None) -> str | None:
        """What an event is about, e.g. ``node 0000000001`` or ``label gpu of cloud-1/main``."""
        kind, _, name = str(value).partition(" ")
        if kind == "label":
            return self.label(name.rpartition(" of ")[0] or name)
        pages = {"request": self.request, "node": self.node, "provider": self.pool, "pool": self.pool}
        if kind in pages:
            return pages[kind](name)
        return address(_LISTS[kind], q=name) if kind in _LISTS else None

    def labels_text(self, names: Collection[str]) -> list[CellText]:
        """Labels, each with its link."""
        return [CellText(name, self.label(name)) for name in names]

    def nodes_text(self, ids: Collection[str]) -> list[CellText]:
        """Nodes, each with its link."""
        return [CellText(node_id, self.node(node_id)) for node_id in ids]


def _page(kind: str, name: Any, known: Collection[str]) -> str | None:
    """A half of a surrogate pair, which JSON allows, cannot be in an address."""
    text = str(name)
    return address(kind, text) if text in known and text.isprintable() else None
