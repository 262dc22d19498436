# SPDX-License-Identifier: Apache-2.0
"""Glance v2 (https://docs.openstack.org/api-ref/image/v2/)."""

from __future__ import annotations

import json
from urllib.parse import urlencode

from simulators.openstack.cloud import Cloud
from simulators.openstack.collection import cut_page, page_size
from simulators.openstack.image_data import Upload
from simulators.openstack.image_imports import ImageImports
from simulators.openstack.image_tasks import ImageTasks
from simulators.openstack.messages import Answer, ApiError, Json, Request, json_answer
from simulators.openstack.routing import Service, base_url, webob_page

MOST_IMAGES = 1000


class ImageApi(Service):
    """Images and the upload of their data."""

    name = "image"

    def __init__(self, cloud: Cloud) -> None:
        super().__init__(cloud)
        self.route("GET", "", "versions", self._versions, open=True)
        self.route("GET", "versions", "versions", self._versions, open=True)
        self.route("GET", "v2/images", "list_images", self._list)
        self.route("POST", "v2/images", "create_image", self._create)
        self.route("GET", "v2/images/{}", "get_image", self._get)
        self.route("PATCH", "v2/images/{}", "update_image", self._update)
        self.route("DELETE", "v2/images/{}", "delete_image", self._delete)
        self.route("PUT", "v2/images/{}/file", "upload_image", self._upload)
        ImageTasks(cloud).register(self)
        ImageImports(cloud).register(self)

    def error(self, error: ApiError) -> Answer:
        """Glance answers errors in HTML."""
        return webob_page(error)

    def _versions(self, request: Request, _values: list[str]) -> Answer:
        links = [{"rel": "self", "href": f"{base_url(request)}/image/v2/"}]
        names = (("v2.16", "CURRENT"), ("v2.9", "SUPPORTED"), ("v2.0", "SUPPORTED"))
        return json_answer(
            {"versions": [{"id": name, "status": status, "links": links} for name, status in names]}, 300
        )

    def _list(self, request: Request, _values: list[str]) -> Answer:
        images = self.cloud.images.images
        request.query.setdefault("os_hidden", ["false"])
        if "limit" not in request.query:
            request.query["limit"] = [str(self.cloud.core.knobs.image_page_limit)]
        most = page_size(request.query, MOST_IMAGES)
        # Newest first is Glance's order.
        found = images.matching(request.query)[::-1]
        page, marker = cut_page(found, request.query, most, {entry["id"] for entry in images}, self.more())
        content: Json = {"images": page, "first": "/v2/images", "schema": "/v2/schemas/images"}
        if marker is not None:
            content["next"] = f"/v2/images?{urlencode(request.query | {'marker': [marker]}, doseq=True)}"
        return json_answer(content)

    def _create(self, request: Request, _values: list[str]) -> Answer:
        if self.cloud.core.knobs.image_tasks:
            raise ApiError(403, "You are not authorized to complete this action: use an import task.")
        image = self.cloud.images.create(request.json())
        headers = {"Location": f"{base_url(request)}/image/v2/images/{image['id']}"}
        if methods := self.cloud.core.knobs.image_imports:
            headers["OpenStack_image_import_methods"] = ",".join(methods)
        return json_answer(image, 201, **headers)

    def _get(self, _request: Request, values: list[str]) -> Answer:
        return Answer(body=self.cloud.images.images.text(self.cloud.images.images.get(values[0])))

    def _update(self, request: Request, values: list[str]) -> Answer:
        changes = json.loads(request.body or b"[]")
        if not isinstance(changes, list):
            raise ApiError(400, "Request body must be a JSON array of operation objects.")
        return json_answer(self.cloud.images.patch(values[0], changes))

    def _delete(self, _request: Request, values: list[str]) -> Answer:
        servers = self.cloud.compute.servers
        self.cloud.images.delete(values[0], any(server.image_id == values[0] and not server.gone for server in servers))
        return Answer(204)

    def _upload(self, request: Request, values: list[str]) -> Answer:
        assert isinstance(request.sink, Upload)
        self.cloud.images.finish(self.cloud.images.arrived(values[0], request.sink), request.sink)
        return Answer(204)
