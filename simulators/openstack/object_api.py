# SPDX-License-Identifier: Apache-2.0
"""Swift (https://docs.openstack.org/api-ref/object-store/), as far as imports of images need it. Bytes are not kept.

An object may be one of segments: these are objects of their own, and a manifest names them (static large object).
"""

from __future__ import annotations

import json

from simulators.openstack.cloud import Cloud
from simulators.openstack.image_data import Upload
from simulators.openstack.messages import Answer, ApiError, Request, json_answer
from simulators.openstack.routing import Service


class ObjectApi(Service):
    """Containers and objects of one account. There only while ``image_tasks`` is on."""

    name = "object"
    webob = False

    def __init__(self, cloud: Cloud) -> None:
        super().__init__(cloud)
        container = "v1/{}/{}"
        self.route("GET", "info", "info", self._info, open=True)
        self.route("GET", container, "list_objects", self._list_objects)
        self.route("HEAD", container, "get_container", self._head_container)
        self.route("PUT", container, "create_container", self._put_container)
        for path in (f"{container}/{{}}", f"{container}/{{}}/{{}}"):
            self.route("HEAD", path, "get_object", self._head_object)
            self.route("PUT", path, "create_object", self._put_object)
            self.route("DELETE", path, "delete_object", self._delete_object)

    def available(self) -> bool:
        return self.cloud.core.knobs.image_tasks

    def _info(self, _request: Request, _values: list[str]) -> Answer:
        most = self.cloud.core.knobs.object_bytes
        return json_answer({"swift": {"max_file_size": most}, "slo": {"min_segment_size": 1}})

    def _list_objects(self, request: Request, values: list[str]) -> Answer:
        objects = self._container(values)
        prefix, marker = (request.query.get(key, [""])[0] for key in ("prefix", "marker"))
        found = [name for name in sorted(objects) if name.startswith(prefix) and name > marker]
        return json_answer([{"name": name, "bytes": objects[name].size} for name in found])

    def _head_container(self, _request: Request, values: list[str]) -> Answer:
        return Answer(204, headers={"X-Container-Object-Count": str(len(self._container(values)))})

    def _put_container(self, _request: Request, values: list[str]) -> Answer:
        self.cloud.objects.setdefault(values[1], {})
        return Answer(201)

    def _head_object(self, _request: Request, values: list[str]) -> Answer:
        self._object(values)
        # Whoever asks has made it for an image.
        return Answer(200, headers={"X-Object-Meta-X-Sdk-Autocreated": "true"})

    def _put_object(self, request: Request, values: list[str]) -> Answer:
        objects = self._container(values)
        if "multipart-manifest" in request.query:
            data = self._joined(request)
        else:
            assert isinstance(request.sink, Upload)
            data = request.sink
            data.check()
        objects["/".join(values[2:])] = data
        return Answer(201, headers={"Etag": data.md5} if data.md5 else {})

    def _joined(self, request: Request) -> Upload:
        """What a manifest makes of segments. No checksums are known of it."""
        joined = Upload(checksums=False)
        for entry in json.loads(request.body):
            _, container, *name = entry["path"].split("/")
            joined.add(self._object(["", container, *name]))
        return joined

    def _delete_object(self, _request: Request, values: list[str]) -> Answer:
        self._object(values)
        del self.cloud.objects[values[1]]["/".join(values[2:])]
        return Answer(204)

    def _container(self, values: list[str]) -> dict[str, Upload]:
        if values[1] not in self.cloud.objects:
            raise ApiError(404, "The resource could not be found.")
        return self.cloud.objects[values[1]]

    def _object(self, values: list[str]) -> Upload:
        found = self.cloud.objects.get(values[1], {}).get("/".join(values[2:]))
        if found is None:
            raise ApiError(404, "The resource could not be found.")
        return found
