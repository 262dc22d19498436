# SPDX-License-Identifier: Apache-2.0
"""Glance's tasks: images are made of objects in Swift (https://docs.openstack.org/api-ref/image/v2/#tasks)."""

from __future__ import annotations

from simulators.openstack.cloud import Cloud
from simulators.openstack.messages import Answer, ApiError, Json, Request, json_answer, new_id, not_found
from simulators.openstack.routing import Service


class ImageTasks:
    """Handlers that `register` adds to the image service; they work while ``image_tasks`` is on."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud
        self._tasks: dict[str, Json] = {}

    def register(self, service: Service) -> None:
        service.route("POST", "v2/tasks", "create_task", self._create)
        service.route("GET", "v2/tasks/{}", "get_task", self._get)

    def _create(self, request: Request, _values: list[str]) -> Answer:
        knobs = self.cloud.core.knobs
        if not knobs.image_tasks:
            raise ApiError(404, "The resource could not be found.")
        body = request.json()
        if body.get("type") != "import":
            raise ApiError(400, "Invalid type of task")
        task: Json = {"id": new_id(), "type": "import", "status": "processing", "input": body.get("input", {})}
        task |= {"result": None, "message": "", "schema": "/v2/schemas/task", "owner": self.cloud.core.project_id}
        self._tasks[task["id"]] = task
        self.cloud.core.after(knobs.boot_seconds, "image tasks", lambda: self._finish(task))
        return json_answer(task, 201)

    def _finish(self, task: Json) -> None:
        container, _, name = str(task["input"].get("import_from", "")).partition("/")
        data = self.cloud.objects.get(container, {}).get(name)
        failure = self.cloud.core.knobs.image_task_failure or ("" if data else f"no object {container}/{name}")
        if data is None or failure:
            task |= {"status": "failure", "message": failure}
            return
        properties = task["input"].get("image_properties", {})
        image = self.cloud.images.create({"name": properties.get("name"), "visibility": "private"})
        self.cloud.images.finish(image, data)
        task |= {"status": "success", "result": {"image_id": image["id"]}}

    def _get(self, _request: Request, values: list[str]) -> Answer:
        if values[0] not in self._tasks:
            raise not_found("Task", values[0])
        return json_answer(self._tasks[values[0]])
