# SPDX-License-Identifier: Apache-2.0
"""A list of resources of one kind, as JSON objects: filters, pages, and text that is made once per change."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from simulators.openstack.messages import ApiError, Json, not_found

#: Query arguments that are no filters.
CONTROLS = frozenset({"limit", "marker", "fields", "sort_key", "sort_dir", "page_reverse", "all_tenants", "sort"})


class Collection:
    """Resources by id, oldest first.

    :param what: the kind in errors, for example ``Network``.
    :param plural: the key in lists, for example ``networks``.
    """

    def __init__(self, what: str, plural: str) -> None:
        self.what = what
        self.plural = plural
        self._entries: dict[str, Json] = {}
        self._texts: dict[str, bytes] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Json]:
        return iter(list(self._entries.values()))

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def add(self, entry: Json) -> Json:
        """Adds it under its ``id``."""
        self._entries[entry["id"]] = entry
        return entry

    def get(self, key: str) -> Json:
        """The entry of this id.

        :raises ApiError: 404.
        """
        try:
            return self._entries[key]
        except KeyError:
            raise not_found(self.what, key) from None

    def named(self, name: str) -> Json:
        """The first entry of this name or id.

        :raises ApiError: 404.
        """
        found = next((entry for entry in self if name in (entry["id"], entry.get("name"))), None)
        if found is None:
            raise not_found(self.what, name)
        return found

    def remove(self, key: str) -> Json:
        """Removes and returns it.

        :raises ApiError: 404.
        """
        entry = self.get(key)
        del self._entries[key]
        self._texts.pop(key, None)
        return entry

    def changed(self, entry: Json) -> None:
        """Must follow each change of an entry."""
        self._texts.pop(entry["id"], None)

    def text(self, entry: Json) -> bytes:
        """The entry as JSON."""
        key = entry["id"]
        if key not in self._texts:
            self._texts[key] = json.dumps(entry).encode()
        return self._texts[key]

    def matching(self, query: dict[str, list[str]]) -> list[Json]:
        """Entries whose attributes have one of the values; unknown attributes are no filter."""
        filters = {name: values for name, values in query.items() if name not in CONTROLS}
        return [entry for entry in self if all(_matches(entry, name, values) for name, values in filters.items())]

    def page(self, query: dict[str, list[str]], most: int, more: bool = False) -> tuple[list[Json], str | None]:
        """See `cut_page`."""
        return cut_page(self.matching(query), query, most, {entry["id"] for entry in self}, more)

    def list_text(
        self, entries: Iterable[Json], links: list[Json] | None = None, fields: list[str] | None = None
    ) -> bytes:
        """``{"<plural>": [...]}``, with ``<plural>_links`` where there are any."""
        if fields:
            texts = [json.dumps({name: entry.get(name) for name in fields}).encode() for entry in entries]
        else:
            texts = [self.text(entry) for entry in entries]
        return list_body(self.plural, texts, links)


def list_body(plural: str, texts: Iterable[bytes], links: list[Json] | None = None) -> bytes:
    """A list answer of Nova, Neutron or Cinder from finished entries."""
    tail = b"]"
    if links is not None:
        tail += b', "%s_links": %s' % (plural.encode(), json.dumps(links).encode())
    return b'{"%s": [' % plural.encode() + b", ".join(texts) + tail + b"}"


def cut_page(
    entries: list[Json], query: dict[str, list[str]], most: int, known: set[str], more: bool = False
) -> tuple[list[Json], str | None]:
    """The page that ``limit`` and ``marker`` ask for, and the marker of the next page, if any.

    :param more: there is a next page, if only an empty one.
    :raises ApiError: 400, a bad limit or marker.
    """
    limit = page_size(query, most)
    if marker := query.get("marker"):
        if marker[0] not in known:
            raise ApiError(400, f"marker [{marker[0]}] not found")
        ids = [entry["id"] for entry in entries]
        entries = entries[ids.index(marker[0]) + 1 :] if marker[0] in ids else []
    page = entries[:limit]
    return page, page[-1]["id"] if page and (more or len(entries) > limit) else None


def page_size(query: dict[str, list[str]], most: int) -> int:
    """``limit``, at most ``most``.

    :raises ApiError: 400, it is no number.
    """
    text = query.get("limit", [""])[0]
    if not text:
        return most
    if not text.isdigit():
        raise ApiError(400, f"Invalid input for query parameters limit. Value: {text}.")
    return min(int(text), most)


def _matches(entry: Json, name: str, values: list[str]) -> bool:
    if name not in entry:
        return True
    value = entry[name]
    if name == "fixed_ips":
        pairs = {f"{key}={text}" for address in value for key, text in address.items()}
        return any(wanted in pairs for wanted in values)
    if isinstance(value, bool):
        return any((wanted.lower() in ("true", "1")) is value for wanted in values)
    return any(str("" if value is None else value) == wanted for wanted in values)
