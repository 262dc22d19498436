# SPDX-License-Identifier: Apache-2.0
"""Images of the simulated region: those of IBM, and those that are imported out of object storage."""

from __future__ import annotations

import hashlib
import re
from fnmatch import fnmatchcase
from typing import Final

from simulators.base.messages import ApiError, Json
from simulators.base.stored_objects import StoredObject, StoredObjects
from simulators.ibmvpc.catalog import SYSTEMS
from simulators.ibmvpc.core import ACCOUNT, REGION, ZONES, IbmCore, VpcError, crn, href, not_found, zone_reference
from simulators.ibmvpc.groups import ResourceGroup, ResourceGroups
from simulators.ibmvpc.quota import VpcQuotas
from simulators.ibmvpc.resources import IMAGES, VpcResource, VpcTable, identity_of

IMAGE_NAME: Final = "ibm-debian-12-11-minimal-amd64-1"
#: Who owns the images that all may use.
_IBM: Final = "811f8abfbd32425597dc7ba40da98fa6"
#: Versions before it say who owns an image in another way.
_REMOTE: Final = "2025-06-30"
_SOURCE: Final = re.compile(r"cos://([^/]+)/([^/]+)/([^/]+\.(?:qcow2|vhd))")
_GIB: Final = 2**30


class VpcImages:
    """All of them. The caller holds the core's lock."""

    def __init__(
        self, core: IbmCore, resources: VpcTable, objects: StoredObjects, groups: ResourceGroups, quotas: VpcQuotas
    ) -> None:
        self.core = core
        self._resources = resources
        self._objects = objects
        self._groups = groups
        self._quotas = quotas
        for name, system in (
            (IMAGE_NAME, "debian-12-amd64"),
            ("ibm-ubuntu-24-04-3-minimal-amd64-1", "ubuntu-24-04-amd64"),
            ("ibm-ubuntu-24-04-3-minimal-s390x-1", "ubuntu-24-04-s390x"),
        ):
            self.add(name, groups.default, system, public=True)

    def add(
        self, name: str, group: ResourceGroup, system: str = "debian-12-amd64", public: bool = False
    ) -> VpcResource:
        """An image that is available; the caller has looked at the name."""
        identity = self.core.new_id()
        whole = crn("image", identity)
        document = {
            "allowed_use": {"api_version": "2026-10-06", "bare_metal_server": "true", "instance": "true"},
            "catalog_offering": {"managed": False},
            "created_at": self.core.stamp(),
            "crn": whole.replace(ACCOUNT, _IBM) if public else whole,
            "encryption": "none",
            "file": {"checksums": {"sha256": hashlib.sha256(name.encode()).hexdigest()}, "size": 1},
            "href": href(f"{IMAGES}/{identity}"),
            "id": identity,
            "minimum_provisioned_size": 10,
            "name": name,
            "operating_system": SYSTEMS[system],
            "resource_group": group.reference,
            "resource_type": "image",
            "status": "available",
            "status_reasons": [],
            "user_data_format": "cloud_init",
            "visibility": "public" if public else "private",
            "zones": [zone_reference(zone) for zone in ZONES],
        }
        if public:
            document["remote"] = {"account": {"id": _IBM, "resource_type": "account"}}
        return self._resources.add(VpcResource(IMAGES, self.core.number(), document))

    def create(self, body: Json) -> VpcResource:
        """Accepts a POST: an image of an object.

        :raises VpcError: it is refused.
        """
        name = self._resources.check_name(IMAGES, body.get("name"))
        source = _SOURCE.fullmatch(identity_of(body, "file", ("href",)))
        if source is None:
            text = "The Cloud Object Storage URI provided is not in the correct format."
            raise VpcError(400, "cos_scheme_uri_invalid", text, "file.href", body["file"]["href"])
        system = identity_of(body, "operating_system", ("name",))
        if system not in SYSTEMS:
            raise not_found("Operating system", system, 400)
        region, bucket, key = source.groups()
        if region != REGION:
            text = "Cloud Object Storage resource not found in the target region."
            raise VpcError(400, "cos_region_mismatch", text, "file.href", region)
        self._object(bucket, key)
        group = self._groups.of_body(body)
        self._quotas.check_image()
        image = self.add(name, group, system)
        reasons = [{"code": "image_request_in_progress", "message": "The image request is in progress."}]
        image.document |= {"status": "pending", "status_reasons": reasons, "file": {}}
        self.core.events["images begun"] += 1
        self.core.after(self.core.knobs.import_seconds, "import", lambda: self._end(image, bucket, key))
        return image

    def _object(self, bucket: str, key: str) -> StoredObject:
        try:
            return self._objects.get(bucket, key)
        except ApiError:
            text = "Cloud Object Storage resource not found."
            raise VpcError(400, "cos_not_found", text, "file.href", f"{bucket}/{key}") from None

    def _end(self, image: VpcResource, bucket: str, key: str) -> None:
        """The time of an import is over."""
        if image.status != "pending":
            return
        for rule in self.core.knobs.imports:
            if fnmatchcase(image.name, rule.name) and self.core.applies(rule, "imports"):
                self._fail(image, rule.code, rule.message)
                return
        try:
            stored = self._object(bucket, key)
        except VpcError as error:
            self._fail(image, "image_data_corrupted", error.message)
            return
        if not _is_image(stored.data, key):
            self._fail(image, "image_data_corrupted", "The image data is corrupted and cannot be used.")
            return
        checksum = hashlib.sha256(stored.data).hexdigest()
        size = max(1, -(-stored.size // _GIB))
        shown = {"checksums": {"sha256": checksum}, "size": size}
        image.document |= {"status": "available", "status_reasons": [], "file": shown}
        self.core.events["images made"] += 1

    def _fail(self, image: VpcResource, code: str, message: str) -> None:
        image.document |= {"status": "failed", "status_reasons": [{"code": code, "message": message}]}
        self.core.events["images failed"] += 1

    def change(self, image: VpcResource, body: Json) -> None:
        """Accepts a PATCH of the name.

        :raises VpcError: not in its status, of IBM, or the name is in use.
        """
        self._check_state(image)
        name = body.get("name", image.name)
        if name != image.name:
            image.document["name"] = self._resources.check_name(IMAGES, name)

    def delete(self, image: VpcResource) -> None:
        """Accepts a DELETE.

        :raises VpcError: not in its status, or of IBM.
        """
        self._check_state(image)
        if image.status == "pending":
            text = f"The import of image {image.id} is in progress."
            raise VpcError(409, "image_request_in_progress", text, "id", image.id)
        image.document["status"] = "deleting"
        self.core.after(self.core.knobs.delete_seconds, "images", lambda: self.remove(image))

    @staticmethod
    def _check_state(image: VpcResource) -> None:
        if image.document["visibility"] == "public":
            text = "The action cannot be performed on a public image."
            raise VpcError(403, "invalid_action_for_public_image", text, "id", image.id)
        if image.status == "deleting":
            raise VpcError(409, "invalid_state", f"Image {image.id} is being deleted.", "id", image.id)

    def remove(self, image: VpcResource) -> None:
        self._resources.remove(image)
        self.core.events["images deleted"] += 1


def shown_image(document: Json, version: str) -> Json:
    """As a client of that version of the API sees it."""
    if version >= _REMOTE:
        return document
    shown = {name: value for name, value in document.items() if name != "remote"}
    return {**shown, "owner_type": "provider" if "remote" in document else "user"}


def _is_image(data: bytes, key: str) -> bool:
    """Does it begin or end as its format does?"""
    return data.startswith(b"QFI\xfb") if key.endswith(".qcow2") else data[-512:].startswith(b"conectix")
