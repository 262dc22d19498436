# SPDX-License-Identifier: Apache-2.0
"""Glance's interoperable import (https://docs.openstack.org/api-ref/image/v2/#interoperable-image-import).

Data go to the staging area, then an import makes an image of them, maybe in another format.
"""

from __future__ import annotations

from simulators.openstack.cloud import Cloud
from simulators.openstack.image_data import Upload
from simulators.openstack.messages import Answer, ApiError, Json, Request, json_answer, new_id
from simulators.openstack.routing import Service

METHOD = "glance-direct"


class ImageImports:
    """Handlers that `register` adds to the image service; they work while ``image_imports`` has `METHOD`."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud
        #: By the id of the image.
        self._staged: dict[str, Upload] = {}
        self._tasks: dict[str, list[Json]] = {}

    def register(self, service: Service) -> None:
        service.route("GET", "v2/info/import", "import_info", self._info)
        service.route("PUT", "v2/images/{}/stage", "stage_image", self._stage)
        service.route("POST", "v2/images/{}/import", "import_image", self._import)
        service.route("GET", "v2/images/{}/tasks", "list_image_tasks", self._list_tasks)

    def _info(self, _request: Request, _values: list[str]) -> Answer:
        methods = list(self.cloud.core.knobs.image_imports)
        return json_answer({"import-methods": {"description": "", "type": "array", "value": methods}})

    def _stage(self, request: Request, values: list[str]) -> Answer:
        assert isinstance(request.sink, Upload)
        self._check_method(METHOD)
        self.cloud.images.arrived(values[0], request.sink)
        request.sink.keep()
        self._staged[values[0]] = request.sink
        return Answer(204)

    def _import(self, request: Request, values: list[str]) -> Answer:
        knobs = self.cloud.core.knobs
        self._check_method(str(request.member("method").get("name")))
        image = self.cloud.images.images.get(values[0])
        if image["status"] != "uploading" or values[0] not in self._staged:
            raise ApiError(409, f"Only images with status 'uploading' can be imported, not '{image['status']}'.")
        self._set(image, status="importing", os_glance_failed_import="", os_glance_importing_to_stores="store")
        task: Json = {"id": new_id(), "type": "api_image_import", "status": "processing", "message": ""}
        self._tasks.setdefault(values[0], []).append(task)
        self.cloud.core.after(knobs.image_import_seconds, "image imports", lambda: self._finish(image, task))
        return Answer(202)

    def _finish(self, image: Json, task: Json) -> None:
        knobs = self.cloud.core.knobs
        data = self._staged.pop(image["id"])
        if image["id"] not in self.cloud.images.images:
            return
        if knobs.image_import_failure:
            task |= {"status": "failure", "message": knobs.image_import_failure}
            self._set(image, os_glance_failed_import="store", os_glance_importing_to_stores="")
            return
        task["status"] = "success"
        self._set(image, os_glance_importing_to_stores="")
        self.cloud.images.finish(image, data)
        if knobs.image_conversion:
            # Other bytes: raw ones, as a rule.
            changed = {"disk_format": knobs.image_conversion, "size": data.virtual_size, "checksum": "0" * 32}
            self._set(image, **changed, os_hash_algo=None, os_hash_value=None)

    def _list_tasks(self, _request: Request, values: list[str]) -> Answer:
        return json_answer({"tasks": self._tasks.get(values[0], [])})

    def _check_method(self, method: str) -> None:
        if method not in self.cloud.core.knobs.image_imports:
            raise ApiError(404, f"The import method {method} is not available at this site.")

    def _set(self, image: Json, **attributes: object) -> None:
        image |= attributes
        self.cloud.images.images.changed(image)
