# SPDX-License-Identifier: Apache-2.0
"""`ProjectCloud`: projects of one provider, and what is in them."""

from __future__ import annotations

from collections.abc import Container, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from nodepool.driver.framework.cloud_errors import CloudNotFound, CloudRefused
from nodepool.driver.kubernetes import api, objects
from nodepool.driver.kubernetes.client import KubeClient
from nodepool.driver.kubernetes.cloud import WATCHED, KubeCloud
from nodepool.driver.kubernetes.records import PLACE, KubeRecord, PlaceView
from nodepool.driver.openshift.projects import project_view


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

    def view_of_place(self, found: dict[str, Any]) -> PlaceView:
        return project_view(found)

    def is_ours(self, view: PlaceView, named: Container[str]) -> bool:
        # A template of the cluster may leave out the description: then the name says it.
        return super().is_ours(view, named) or (not objects.marks(view.labels) and view.name in named)

    def get_instance(self, record_id: str) -> KubeRecord:
        with _without_rights_gone():
            return super().get_instance(record_id)

    def delete_instance(self, record_id: str) -> None:
        with _without_rights_gone():
            super().delete_instance(record_id)


@contextmanager
def _without_rights_gone() -> Iterator[None]:
    """The rights in a project go with it: of one that is gone OpenShift says 403, not 404.

    So it does of a project that was made a moment ago. The search for leaks finds that one.
    """
    try:
        yield
    except CloudRefused as error:
        if error.status != 403:
            raise
        raise CloudNotFound(str(error), 404, error.said) from error
