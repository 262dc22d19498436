# SPDX-License-Identifier: Apache-2.0
"""Resources of the simulated project, by their path, and what lists show of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256

from simulators.base.messages import Json
from simulators.gce.errors import not_found
from simulators.gce.links import link, path_of


@dataclass
class ProjectResource:
    """One resource.

    :param document: as GET shows it.
    :param listed: lists show it.
    """

    project: str
    scope: str
    collection: str
    name: str
    document: Json
    listed: bool = True

    @property
    def path(self) -> str:
        return path_of(self.project, self.scope, self.collection, self.name)

    @property
    def link(self) -> str:
        return link(self.path)

    def set_labels(self, labels: dict[str, str]) -> None:
        """Changes them, and the fingerprint with them."""
        if labels:
            self.document["labels"] = dict(labels)
        else:
            self.document.pop("labels", None)
        self.document["labelFingerprint"] = fingerprint(repr(sorted(labels.items())))


def fingerprint(content: str) -> str:
    """A text that changes with the content, in the form that Google has."""
    from base64 import b64encode

    return b64encode(sha256(content.encode()).digest()[:8]).decode()


class ProjectResources:
    """All resources, in the order of their making.

    :param stamp: the time as Google writes it.
    """

    def __init__(self, stamp: Callable[[], str]) -> None:
        self._stamp = stamp
        self._number = 7_000_000_000_000_000_000
        self._all: dict[str, dict[str, ProjectResource]] = {}

    def new_id(self) -> str:
        """A number that nothing had before."""
        self._number += 7
        return str(self._number)

    def add(self, resource: ProjectResource, labels: dict[str, str] | None = None) -> ProjectResource:
        """Takes it, and gives its document what every resource has; the caller has looked whether there is one."""
        kind = resource.collection[:-2] if resource.collection.endswith("sses") else resource.collection[:-1]
        head: Json = {
            "kind": f"compute#{kind}",
            "id": self.new_id(),
            "creationTimestamp": self._stamp(),
            "name": resource.name,
        }
        place, _, where = resource.scope.partition("/")
        tail: Json = {place[:-1]: link(f"projects/{resource.project}/{place}/{where}")} if where else {}
        resource.document = {**head, **resource.document, **tail, "selfLink": resource.link}
        resource.set_labels(labels or {})
        self._all.setdefault(resource.collection, {})[resource.path] = resource
        return resource

    def find(self, path: str) -> ProjectResource | None:
        """The resource of a path."""
        parts = path.split("/")
        return self._all.get(parts[-2], {}).get(path) if len(parts) > 2 else None

    def get(self, path: str) -> ProjectResource:
        """The same.

        :raises ApiError: 404.
        """
        found = self.find(path)
        if found is None:
            raise not_found(path)
        return found

    def remove(self, resource: ProjectResource) -> None:
        self._all[resource.collection].pop(resource.path, None)

    def of(self, collection: str) -> Iterator[ProjectResource]:
        """All of a kind."""
        return iter(list(self._all.get(collection, {}).values()))

    def count(self, collection: str) -> int:
        return len(self._all.get(collection, {}))
