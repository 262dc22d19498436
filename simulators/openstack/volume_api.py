# SPDX-License-Identifier: Apache-2.0
"""Cinder v3 (https://docs.openstack.org/api-ref/block-storage/v3/)."""

from __future__ import annotations

from simulators.openstack.cloud import Cloud
from simulators.openstack.messages import Answer, Json, Request, json_answer
from simulators.openstack.routing import Route, Service, base_url


class VolumeApi(Service):
    """Volumes and limits, below ``v3/<project id>`` or ``v3`` alone."""

    name = "volume"

    def __init__(self, cloud: Cloud) -> None:
        super().__init__(cloud)
        self.route("GET", "", "versions", self._versions, open=True)
        self.route("GET", "v3", "version", self._versions, open=True)
        self.route("GET", "v3/volumes/detail", "list_volumes", self._list)
        self.route("GET", "v3/volumes", "list_volumes", self._list)
        self.route("POST", "v3/volumes", "create_volume", self._create)
        self.route("GET", "v3/volumes/{}", "get_volume", self._get)
        self.route("DELETE", "v3/volumes/{}", "delete_volume", self._delete)
        self.route("POST", "v3/volumes/{}/metadata", "update_metadata", self._update_metadata)
        self.route("POST", "v3/volumes/{}/action", "volume_action", self._action)
        self.route("GET", "v3/limits", "limits", self._limits)
        self.route("GET", "v3/os-quota-sets/{}", "quota_set", self._quota_set)

    def find(self, method: str, parts: list[str]) -> tuple[Route, list[str]] | None:
        """The project in the path may be left out, as newer Cinders allow it."""
        if len(parts) > 1 and parts[1] == self.cloud.core.project_id:
            parts = [parts[0], *parts[2:]]
        return super().find(method, parts)

    def available(self) -> bool:
        """A setting."""
        return self.cloud.core.knobs.block_storage

    def _versions(self, request: Request, _values: list[str]) -> Answer:
        document = {
            "id": "v3.0",
            "status": "CURRENT",
            "version": "3.70",
            "min_version": "3.0",
            "updated": "2022-03-30T00:00:00Z",
            "links": [{"rel": "self", "href": f"{base_url(request)}/volume/v3/"}],
        }
        return json_answer({"versions": [document]}, 300)

    def _list(self, request: Request, _values: list[str]) -> Answer:
        volumes = self.cloud.volumes.volumes
        page, marker = volumes.page(request.query, self.cloud.core.knobs.page_limit, self.more())
        return Answer(body=volumes.list_text(page, self.links(request, marker)))

    def _create(self, request: Request, _values: list[str]) -> Answer:
        body = request.member("volume")
        name = str(body.get("name") or "")
        volume = self.cloud.volumes.create(int(body.get("size", 1)), name=name, metadata=body.get("metadata"))
        return json_answer({"volume": volume}, 202)

    def _get(self, _request: Request, values: list[str]) -> Answer:
        self.cloud.core.check_known("Volume", values[0])
        return json_answer({"volume": self.cloud.volumes.volumes.get(values[0])})

    def _delete(self, _request: Request, values: list[str]) -> Answer:
        self.cloud.core.check_known("Volume", values[0])
        self.cloud.volumes.delete(values[0])
        return Answer(202)

    def _update_metadata(self, request: Request, values: list[str]) -> Answer:
        self.cloud.core.check_known("Volume", values[0])
        volume = self.cloud.volumes.volumes.get(values[0])
        volume["metadata"] |= {str(key): str(value) for key, value in request.member("metadata").items()}
        self.cloud.volumes.volumes.changed(volume)
        return json_answer({"metadata": volume["metadata"]})

    def _action(self, request: Request, values: list[str]) -> Answer:
        volume = self.cloud.volumes.volumes.get(values[0])
        if {"os-detach", "os-force_detach"} & set(request.json()):
            self.cloud.volumes.detach(volume)
        return Answer(202)

    def _limits(self, _request: Request, _values: list[str]) -> Answer:
        absolute: Json = {
            **self.cloud.limit("maxTotalVolumes", "volumes"),
            **self.cloud.limit("maxTotalVolumeGigabytes", "gigabytes"),
            "totalVolumesUsed": len(self.cloud.volumes.volumes),
            "totalGigabytesUsed": self.cloud.volumes.used_gigabytes(),
            "maxTotalSnapshots": 10,
            "totalSnapshotsUsed": 0,
            "maxTotalBackups": 10,
            "totalBackupsUsed": 0,
            "maxTotalBackupGigabytes": 1000,
            "totalBackupGigabytesUsed": 0,
        }
        return json_answer({"limits": {"rate": [], "absolute": absolute}})

    def _quota_set(self, _request: Request, values: list[str]) -> Answer:
        quota = self.cloud.core.knobs.quota
        limits = {"id": values[0], "volumes": quota.volumes, "gigabytes": quota.gigabytes, "snapshots": 10}
        return json_answer({"quota_set": limits})
