# SPDX-License-Identifier: Apache-2.0
"""`PodCloud`: pods of one provider, in projects that are there."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from nodepool.driver.framework.cloud_errors import CloudNotFound, CloudRefused
from nodepool.driver.kubernetes import api
from nodepool.driver.kubernetes.client import KubeClient
from nodepool.driver.kubernetes.cloud import KubeCloud, Object
from nodepool.driver.kubernetes.records import POD, KubeRecord, pod_record, pod_view, told_after
from nodepool.driver.kubernetes.watch import Watch
from nodepool.driver.statemachine import metadata as tags
from nodepool.exceptions import LaunchError, NotFound

log = logging.getLogger("nodepool.driver.openshiftpods.PodCloud")


class PodCloud(KubeCloud):
    """A watch for each project. An instance is a pod, its id ``<project>-<pod>`` (OS-6).

    :param projects: their names.
    """

    watched = {}  # noqa: RUF012 - none in the whole cluster

    def __init__(self, provider: str, client: KubeClient, projects: Iterable[str]) -> None:
        super().__init__(provider, client)
        self._projects = sorted(projects, key=len, reverse=True)
        # Kinds of the watches are the projects: each is told of, and refused, by itself.
        held = (self.inventory.held,)
        self._watches = [
            Watch(client, project, api.core("pods", project), self.selector, self, held=held)
            for project in self._projects
        ]
        self._asked = set()
        #: Projects whose pods could not be listed, and that was told. Of the thread that lists.
        self._unlisted: set[str] = set()
        self.inventory.lists = False

    # -- watches --

    def listed(self, kind: str, found: list[Object], started: float) -> None:
        there = {record.id: record for item in found if (record := self._record(item)) is not None}
        for record in there.values():
            self.inventory.put(record)
        for record in self.inventory.known():
            if record.pod is not None and record.pod.place == kind and record.id not in there:
                self.inventory.remove(record.id, self.made_anew(record.id, record.uid), started)

    def changed(self, kind: str, found: Object, gone: bool) -> None:
        record = self._record(found)
        if record is None:
            return
        if not gone:
            self.inventory.put(record)
            return
        self._end(record.id, record.uid)

    def heard(self, kind: str) -> None:
        self.inventory.heard()

    def refused(self, kind: str, error: LaunchError | None) -> None:
        super().refused(f"{POD} of project {kind}", error)

    def _record(self, found: Object) -> KubeRecord | None:
        record = pod_record(pod_view(found))
        known = self.inventory.get(record.id)
        return record if known is None or record.pod is None else pod_record(told_after(known.pod, record.pod))

    # -- lists --

    def list_instances(self, since: str | None) -> list[KubeRecord]:
        found: list[KubeRecord] = []
        errors: list[LaunchError] = []
        for project in self._projects:
            try:
                items, _ = self.client.list(api.core("pods", project), self.selector)
            except CloudRefused as error:
                # One that is missing, or forbidden, must not keep the pods of the others from being seen. What it has
                # is asked for by its name, and that it is in no list proves nothing.
                errors.append(error)
                self._tell_unlisted(project, error)
                continue
            self._unlisted.discard(project)
            found += [record for item in items if (record := self._record(item)) is not None]
        if errors and len(errors) == len(self._projects):
            raise errors[0]
        return found

    def _tell_unlisted(self, project: str, error: CloudRefused) -> None:
        if project not in self._unlisted:
            self._unlisted.add(project)
            log.warning("Provider %s: pods of project %s cannot be listed: %s", self.provider, project, error)

    def get_instance(self, record_id: str) -> KubeRecord:
        for project in self._projects:
            if record_id.startswith(f"{project}-"):
                # One project's name may be the beginning of another's (OS-7).
                try:
                    answer = self.client.get(self._path(project, record_id))
                except CloudNotFound:
                    continue
                record = pod_record(pod_view(answer))
                if record.metadata.get(tags.PROVIDER_KEY) == self.provider:
                    return record
        raise NotFound(f"there is no pod {record_id} of this provider")

    def path_of(self, record: KubeRecord) -> str:
        assert record.pod is not None
        return self._path(record.pod.place, record.id)

    def _path(self, project: str, record_id: str) -> str:
        return f"{api.core('pods', project)}/{record_id.removeprefix(f'{project}-')}"
