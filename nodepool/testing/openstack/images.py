# SPDX-License-Identifier: Apache-2.0
"""The simulated Glance: images and their uploads; the bytes are only counted and hashed."""

from __future__ import annotations

import hashlib

from nodepool.testing.openstack.collection import Collection
from nodepool.testing.openstack.core import Core
from nodepool.testing.openstack.messages import ApiError, Json, new_id

#: Attributes that a client cannot set.
READ_ONLY = frozenset(
    {"id", "status", "size", "checksum", "owner", "created_at", "updated_at", "os_hash_value", "file"}
)


class Upload:
    """Takes the data of one image."""

    def __init__(self) -> None:
        self.size = 0
        self.md5 = hashlib.md5(usedforsecurity=False)
        self.sha512 = hashlib.sha512()

    def feed(self, data: bytes) -> None:
        self.size += len(data)
        self.md5.update(data)
        self.sha512.update(data)


class Images:
    """All of Glance's state. The caller holds the core's lock."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.images = Collection("Image", "images")

    def create(self, attributes: Json) -> Json:
        """Makes an image that waits for its data (``queued``).

        :raises ApiError: 403, an attribute that cannot be set.
        """
        if taken := sorted(READ_ONLY & set(attributes) - {"id"}):
            raise ApiError(403, f"Attribute '{taken[0]}' is read-only.")
        key = attributes.get("id") or new_id()
        image: Json = {
            "id": key,
            "name": None,
            "status": "queued",
            "visibility": "shared",
            "protected": False,
            "container_format": None,
            "disk_format": None,
            "min_disk": 0,
            "min_ram": 0,
            "size": None,
            "virtual_size": None,
            "checksum": None,
            "os_hash_algo": None,
            "os_hash_value": None,
            "os_hidden": False,
            "owner": self.core.project_id,
            "tags": [],
            "created_at": self.core.stamp(),
            "updated_at": self.core.stamp(),
            "self": f"/v2/images/{key}",
            "file": f"/v2/images/{key}/file",
            "schema": "/v2/schemas/image",
        }
        return self.images.add(image | attributes)

    def add_active(self, name: str, size: int = 1024) -> Json:
        """An image that is there from the beginning."""
        image = self.create({"name": name, "disk_format": "qcow2", "container_format": "bare", "visibility": "public"})
        upload = Upload()
        upload.feed(b"\0" * size)
        return self.finish(image["id"], upload)

    def finish(self, key: str, upload: Upload) -> Json:
        """Its data are complete: it becomes active.

        :raises ApiError: 404; 409, it has data already.
        """
        image = self.images.get(key)
        if image["status"] != "queued":
            raise ApiError(409, f"Image status transition from {image['status']} to saving is not allowed")
        image |= {
            "status": "active",
            "size": upload.size,
            "checksum": upload.md5.hexdigest(),
            "os_hash_algo": "sha512",
            "os_hash_value": upload.sha512.hexdigest(),
            "updated_at": self.core.stamp(),
        }
        self.images.changed(image)
        return image

    def patch(self, key: str, changes: list[Json]) -> Json:
        """Adds, replaces or removes attributes, as ``application/openstack-images-v2.1-json-patch`` says.

        :raises ApiError: 404; 403, an attribute that cannot be set; 400, another operation.
        """
        image = self.images.get(key)
        for change in changes:
            name = str(change.get("path", "")).removeprefix("/").replace("~1", "/").replace("~0", "~")
            if name in READ_ONLY:
                raise ApiError(403, f"Attribute '{name}' is read-only.")
            if change.get("op") in ("add", "replace"):
                image[name] = change.get("value")
            elif change.get("op") == "remove":
                image.pop(name, None)
            else:
                raise ApiError(400, f"Unable to find '{change.get('op')}' in JSON Schema change")
        self.images.changed(image)
        return image

    def delete(self, key: str) -> None:
        """Deletes it.

        :raises ApiError: 404; 403, it is protected.
        """
        if self.images.get(key)["protected"]:
            raise ApiError(403, f"Image {key} is protected and cannot be deleted.")
        self.images.remove(key)
