# SPDX-License-Identifier: Apache-2.0
"""The simulated Glance: images, from their record to their deletion."""

from __future__ import annotations

from simulators.openstack.collection import Collection
from simulators.openstack.core import Core
from simulators.openstack.image_data import Upload, expect
from simulators.openstack.messages import ApiError, Json, new_id

#: Attributes that a client cannot set.
READ_ONLY = frozenset(
    {"id", "status", "size", "checksum", "owner", "created_at", "updated_at", "os_hash_value", "file"}
)


class Images:
    """All of Glance's state. The caller holds the core's lock."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.images = Collection("Image", "images")

    def create(self, attributes: Json) -> Json:
        """Makes an image that waits for its data (``queued``).

        :raises ApiError: 403, an attribute that cannot be set; 413, a quota.
        """
        limit = self.core.knobs.quota.images
        if 0 <= limit <= len(self.images):
            raise ApiError(413, f"Project {self.core.project_id} is over a limit for image_count_total: {limit}.")
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
        return self.finish(image, upload)

    # -- data --

    def expect(self, key: str, status: str, length: int | None) -> Upload:
        """Data of an image begin to come; it has a status meanwhile, and is ``queued`` again when they do not arrive.

        :param length: in bytes; None = the client does not say.
        """
        image = self.images.get(key) if key in self.images else None
        if image is None or image["status"] != "queued":
            # What comes is read, and refused by whom it is meant for.
            return Upload(checksums=False)
        self._set(image, status=status)
        name = str(image["name"])

        def wait_again() -> None:
            with self.core.lock:
                self._set(image, status="queued")

        return expect(self.core, name, self._over_quota(length or 0), wait_again)

    def arrived(self, key: str, upload: Upload) -> Json:
        """Data have come; returns the image that they are for.

        :raises BrokenOff: the connection breaks off.
        :raises ApiError: 404; 409, it is not waiting for data; 413, a quota; what the settings say.
        """
        image = self.images.get(key)
        if image["status"] not in ("saving", "uploading"):
            raise ApiError(409, f"Image status transition from {image['status']} to saving is not allowed")
        upload.check()
        refused = self._over_quota(upload.size)
        if refused is not None:
            raise refused
        return image

    def finish(self, image: Json, upload: Upload) -> Json:
        """It becomes active with its data."""
        upload.keep()
        self._set(
            image,
            status="active",
            size=upload.size,
            virtual_size=upload.virtual_size,
            checksum=upload.md5,
            os_hash_algo="sha512" if upload.sha512 else None,
            os_hash_value=upload.sha512,
        )
        return image

    def _over_quota(self, more: int) -> ApiError | None:
        limit = self.core.knobs.quota.image_bytes
        left = limit - sum(image["size"] or 0 for image in self.images)
        if limit < 0 or more <= left:
            return None
        return ApiError(
            413, f"The upload of {more} bytes exceeds the quota of the project, of which {max(0, left)} bytes are left."
        )

    def _set(self, image: Json, **attributes: object) -> None:
        image |= attributes
        image["updated_at"] = self.core.stamp()
        self.images.changed(image)

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

    def delete(self, key: str, in_use: bool = False) -> None:
        """Deletes it.

        :param in_use: there are servers that it booted.

        :raises ApiError: 404; 403, it is protected; 409, it is in use.
        """
        if in_use and self.core.knobs.image_deletion_needs_no_servers:
            raise ApiError(409, f"Image {key} could not be deleted because it is in use.")
        if self.images.get(key)["protected"]:
            raise ApiError(403, f"Image {key} is protected and cannot be deleted.")
        self.images.remove(key)
