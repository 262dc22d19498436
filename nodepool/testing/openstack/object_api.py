# SPDX-License-Identifier: Apache-2.0
"""Swift (https://docs.openstack.org/api-ref/object-store/), as far as imports of images need it. Bytes are not kept."""

from __future__ import annotations

from nodepool.testing.openstack.cloud import Cloud
from nodepool.testing.openstack.image_data import Upload
from nodepool.testing.openstack.messages import Answer, ApiError, Request, json_answer
from nodepool.testing.openstack.routing import Service

MAX_FILE_SIZE = 5 * 1024**3


class ObjectApi(Service):
    """Containers and objects of one account. There only while ``image_tasks`` is on."""

    name = "object"

    def __init__(self, cloud: Cloud) -> None:
        super().__init__(cloud)
        account = "v1/{}"
        self.route("GET", "info", "info", self._info, open=True)
        self.route("HEAD", f"{account}/{{}}", "get_container", self._head_container)
        self.route("PUT", f"{account}/{{}}", "create_container", self._put_container)
        self.route("HEAD", f"{account}/{{}}/{{}}", "get_object", self._head_object)
        self.route("PUT", f"{account}/{{}}/{{}}", "create_object", self._put_object)
        self.route("DELETE", f"{account}/{{}}/{{}}", "delete_object", self._delete_object)

    def available(self) -> bool:
        return self.cloud.core.knobs.image_tasks

    def _info(self, _request: Request, _values: list[str]) -> Answer:
        return json_answer({"swift": {"max_file_size": MAX_FILE_SIZE}, "slo": {"min_segment_size": 1}})

    def _head_container(self, _request: Request, values: list[str]) -> Answer:
        if values[1] not in self.cloud.objects:
            raise ApiError(404, "The resource could not be found.")
        return Answer(204, headers={"X-Container-Object-Count": str(len(self.cloud.objects[values[1]]))})

    def _put_container(self, _request: Request, values: list[str]) -> Answer:
        self.cloud.objects.setdefault(values[1], {})
        return Answer(201)

    def _head_object(self, _request: Request, values: list[str]) -> Answer:
        self._object(values)
        return Answer(200)

    def _put_object(self, request: Request, values: list[str]) -> Answer:
        assert isinstance(request.sink, Upload)
        if values[1] not in self.cloud.objects:
            raise ApiError(404, "The resource could not be found.")
        request.sink.check()
        self.cloud.objects[values[1]][values[2]] = request.sink
        return Answer(201, headers={"Etag": request.sink.md5} if request.sink.md5 else {})

    def _delete_object(self, _request: Request, values: list[str]) -> Answer:
        self._object(values)
        del self.cloud.objects[values[1]][values[2]]
        return Answer(204)

    def _object(self, values: list[str]) -> Upload:
        found = self.cloud.objects.get(values[1], {}).get(values[2])
        if found is None:
            raise ApiError(404, "The resource could not be found.")
        return found
