# SPDX-License-Identifier: Apache-2.0
"""Images: how they are made of an object that was uploaded, and which one is the newest of a family."""

from __future__ import annotations

import io
import tarfile
import zlib
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from simulators.base.messages import Json
from simulators.gce.errors import already_exists, invalid, operation_error
from simulators.gce.instance_spec import check_name, read_labels
from simulators.gce.links import GLOBAL, PROJECT, path_of
from simulators.gce.operations import ProjectOperation
from simulators.gce.resources import ProjectResource

if TYPE_CHECKING:
    from simulators.gce.cloud import Project

#: The only file that an archive with a disk has.
DISK_FILE: Final = "disk.raw"
#: So much of an archive is read to see what it holds.
_HEAD_BYTES: Final = 64 * 1024
GIB: Final = 1024**3
#: Hosts of Cloud Storage as sources of images; a client that has the simulator's address as the endpoint names that.
_STORAGES: Final = ("storage.googleapis.com", "storage.cloud.google.com", "127.0.0.1", "localhost", "::1")


class ProjectImages:
    """All images: those of the project, and those of others that everybody may use."""

    def __init__(self, cloud: Project) -> None:
        self.cloud = cloud
        #: Path of an image -> bucket and name of the object that it was made of, and its generation.
        self.sources: dict[str, tuple[str, str]] = {}

    def add(
        self,
        name: str,
        family: str = "",
        labels: dict[str, str] | None = None,
        size_gb: int = 10,
        project: str = PROJECT,
    ) -> ProjectResource:
        """An image that can be used at once."""
        document: Json = {
            "sourceType": "RAW",
            "status": "READY",
            "archiveSizeBytes": str(512 * 1024 * 1024),
            "diskSizeGb": str(size_gb),
            "architecture": "X86_64",
            "storageLocations": ["us"],
        }
        if family:
            document["family"] = family
        image = ProjectResource(project, GLOBAL, "images", name, document)
        return self.cloud.resources.add(image, read_labels(labels, "labels"))

    def newest(self, project: str, family: str) -> ProjectResource | None:
        """The newest image of a family that can be used."""
        found = [
            image
            for image in self.cloud.resources.of("images")
            if image.project == project
            and image.document.get("family") == family
            and image.document["status"] == "READY"
            and not image.document.get("deprecated")
        ]
        return found[-1] if found else None

    def insert(self, body: Json, request_id: str) -> ProjectOperation:
        """Accepts an order for an image of the project.

        :raises ApiError: it is refused.
        """
        cloud, core = self.cloud, self.cloud.core
        name = check_name(body)
        path = path_of(PROJECT, GLOBAL, "images", name)
        if cloud.resources.find(path) is not None:
            raise already_exists(path)
        labels = read_labels(body.get("labels"), "resource.labels")
        source = (body.get("rawDisk") or {}).get("source", "")
        bucket, key = _object_of(source)
        content = cloud.objects.content(bucket, key)
        if content is None:
            raise invalid("resource.rawDisk.source", source, "The referenced object does not exist.")
        document = {key: value for key, value in body.items() if key not in ("name", "labels")}
        document |= {"status": "PENDING", "sourceType": "RAW", "diskSizeGb": "0", "archiveSizeBytes": str(len(content))}
        image = cloud.resources.add(ProjectResource(PROJECT, GLOBAL, "images", name, document), labels)
        self.sources[path] = (bucket, key)
        operation = cloud.operations.begin("insert", image, request_id)
        cloud.operations.run(operation)
        core.events["images made"] += 1
        core.after(core.knobs.image_seconds, "image", lambda: self._finish(image, operation, content))
        return operation

    def _finish(self, image: ProjectResource, operation: ProjectOperation, content: bytes) -> None:
        if self.cloud.resources.find(image.path) is not image:
            return
        fault, size = look_at(content, self.cloud.core.knobs.disk_unit_bytes)
        if fault:
            self.cloud.resources.remove(image)
            self.cloud.core.events["images failed"] += 1
            self.cloud.operations.end(operation, operation_error("INVALID_USAGE", fault))
            return
        image.document |= {"status": "READY", "diskSizeGb": str(max(1, -(-size // GIB))), "architecture": "X86_64"}
        self.cloud.operations.end(operation)

    def delete(self, image: ProjectResource, request_id: str) -> ProjectOperation:
        """Accepts a DELETE."""
        cloud, core = self.cloud, self.cloud.core
        operation = cloud.operations.begin("delete", image, request_id)
        cloud.operations.run(operation)
        image.document["status"] = "DELETING"

        def end() -> None:
            cloud.resources.remove(image)
            cloud.operations.end(operation)

        core.after(core.knobs.image_seconds, "image", end)
        return operation


def _object_of(source: str) -> tuple[str, str]:
    """Bucket and name of ``https://storage.googleapis.com/B/O``, or of a like address; two empty texts: it is none."""
    parts = urlsplit(source)
    if parts.scheme == "gs":
        return parts.netloc, unquote(parts.path[1:])
    if parts.hostname not in _STORAGES:
        return "", ""
    bucket, _, key = parts.path[1:].partition("/")
    return bucket, unquote(key)


def look_at(content: bytes, unit: int) -> tuple[str, int]:
    """What is wrong with an archive ("" = nothing), and how large its disk is, by the head of its only file."""
    try:
        head = zlib.decompressobj(31).decompress(content, _HEAD_BYTES)
    except zlib.error:
        return "The tar archive is not a valid image: it is no gzip.", 0
    try:
        entry = tarfile.TarInfo.frombuf(head[:512], "utf-8", "strict")
    except tarfile.TarError:
        return "The tar archive is not a valid image: it is no tar.", 0
    if entry.name != DISK_FILE or entry.type not in (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.GNUTYPE_SPARSE):
        return f"The tar archive is not a valid image: its first file is {entry.name!r}, not {DISK_FILE!r}.", 0
    if not entry.size and entry.type != tarfile.GNUTYPE_SPARSE:
        return "The tar archive is not a valid image: the disk is empty.", 0
    size = _real_size(head, entry)
    if size % unit:
        return f"The size of the disk, {size} bytes, is not a multiple of {unit}.", 0
    return "", size


def _real_size(head: bytes, entry: tarfile.TarInfo) -> int:
    """Of a sparse file, its size with holes (GNU, at byte 483 of the header)."""
    if entry.type != tarfile.GNUTYPE_SPARSE:
        return entry.size
    field = head[483:495]
    return int.from_bytes(field[1:], "big") if field[0] & 0x80 else int(field.rstrip(b"\0 ") or b"0", 8)


def disk_of(content: bytes) -> bytes:
    """What the disk of an archive holds; for tests.

    :raises tarfile.TarError: it is none.
    """
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as archive:
        file = archive.extractfile(DISK_FILE)
        assert file is not None
        return file.read()
