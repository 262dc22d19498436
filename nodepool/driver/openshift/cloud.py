# SPDX-License-Identifier: Apache-2.0
"""`ProjectCloud`: projects of one provider, and what is in them."""

from __future__ import annotations

import threading
from collections.abc import Container, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Final

from nodepool.driver.framework.cloud_errors import CloudNotFound, CloudRefused
from nodepool.driver.kubernetes import api, objects
from nodepool.driver.kubernetes.client import KubeClient
from nodepool.driver.kubernetes.cloud import WATCHED, KubeCloud
from nodepool.driver.kubernetes.errors import NotYet
from nodepool.driver.kubernetes.records import PLACE, KubeRecord, PlaceView
from nodepool.driver.openshift.projects import project_view

#: Our rights in a project come within so many seconds after it was made.
RIGHTS_SECONDS: Final = 10.0
#: With more projects than these, those that were not seen for so long are forgotten: other launchers delete some.
MANY_PROJECTS: Final = 1000
FORGOTTEN_SECONDS: Final = 3600.0


class ProjectCloud(KubeCloud):
    """Who may only ask for projects sees only those of its own, and may watch nothing in the whole cluster.

    Projects are listed, one list for all launches. Pods and secrets are watched where the account may do that; else
    each launch asks for its own.
    """

    places_path: ClassVar[str] = api.PROJECTS
    watched: ClassVar[dict[str, str]] = {kind: path for kind, path in WATCHED.items() if kind != PLACE}

    def __init__(self, provider: str, client: KubeClient) -> None:
        super().__init__(provider, client)
        # Projects do not have our labels.
        self.selector_of_places = ""
        #: Guards what follows.
        self._rights_lock = threading.Lock()
        #: When we had rights in a project last, and since when we have none in one in which we never had any.
        self._allowed_at: dict[str, float] = {}
        self._refused_since: dict[str, float] = {}

    def view_of_place(self, found: dict[str, Any]) -> PlaceView:
        return project_view(found)

    def is_ours(self, view: PlaceView, named: Container[str]) -> bool:
        # A template of the cluster may leave out the description: then the name says it.
        return super().is_ours(view, named) or (not objects.marks(view.labels) and view.name in named)

    def list_instances(self, since: str | None) -> list[KubeRecord]:
        found = super().list_instances(since)
        # Only projects in which we have rights are listed.
        self._allowed(*(record.id for record in found))
        return found

    def get_instance(self, record_id: str) -> KubeRecord:
        with self._without_rights_gone(record_id):
            found = super().get_instance(record_id)
        self._allowed(record_id)
        return found

    def delete_seen(self, record: KubeRecord) -> None:
        try:
            super().delete_seen(record)
        except CloudRefused as error:
            if error.status != 403:
                raise
            # Says whether the rights went with the project, or have not come yet.
            self.get_instance(record.id)
            # It is there: only its deletion is forbidden.
            raise

    def awaited(self, name: str, pod: str | None) -> None:
        super().awaited(name, pod)
        # One of the same name may have been there before.
        with self._rights_lock:
            self._allowed_at.pop(name, None)
            self._refused_since.pop(name, None)

    def _allowed(self, *names: str) -> None:
        """We have rights in these projects."""
        now = self.clock()
        with self._rights_lock:
            self._allowed_at.update(dict.fromkeys(names, now))
            for name in names:
                self._refused_since.pop(name, None)
            if len(self._allowed_at) > MANY_PROJECTS:
                since = now - FORGOTTEN_SECONDS
                self._allowed_at = {name: seen for name, seen in self._allowed_at.items() if seen > since}

    def _is_gone(self, name: str) -> bool:
        """Is a project gone in which we have no rights, or have they not come yet?"""
        now = self.clock()
        with self._rights_lock:
            gone = name in self._allowed_at or now - self._refused_since.setdefault(name, now) >= RIGHTS_SECONDS
            if gone:
                self._refused_since.pop(name, None)
        return gone

    @contextmanager
    def _without_rights_gone(self, name: str) -> Iterator[None]:
        """The rights in a project go with it: of one that is gone OpenShift says 403, not 404.

        So it does of a project that was made a moment ago, and in which we have no rights yet.
        """
        try:
            yield
        except CloudRefused as error:
            if error.status != 403:
                raise
            if self._is_gone(name):
                raise CloudNotFound(str(error), 404, error.said) from error
            raise NotYet(f"{error}; it is gone, or our rights have not come yet") from error
