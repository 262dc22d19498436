# SPDX-License-Identifier: Apache-2.0
"""What is there when all faults are over, and what of it should not be. Judged from values; `look` collects them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos.images.disks import Disk
from tests.support.image_znodes import Image, Upload

#: Of an image in a cloud: which upload it is (rule D-1).
BUILD_KEY, UPLOAD_KEY, PROVIDER_KEY = "nodepool_build_id", "nodepool_upload_id", "nodepool_provider_name"
#: Kept of each image, and of each image in each provider (rules R-1 and R-2).
KEPT = 2


@dataclass(frozen=True)
class Forgotten:
    """Of whom a hand removed the records.

    :param uploads: provider, build id and number.
    """

    builds: Collection[str] = ()
    uploads: Collection[tuple[str, str, str]] = ()

    def has(self, provider: str, cloud_image: Mapping[str, Any]) -> bool:
        """Is an image in the cloud one of them?"""
        build_id, upload_id = str(cloud_image.get(BUILD_KEY)), str(cloud_image.get(UPLOAD_KEY))
        return build_id in self.builds or (provider, build_id, upload_id) in self.uploads


@dataclass
class Remains:
    """All that there is.

    :param clouds: provider -> images in its cloud, as Glance shows them, without those that were there before.
    :param disks: of each builder: image and build id -> files.
    :param built: name of a build's file -> its MD5.
    :param processes: that builds started and that still run.
    """

    images: Mapping[str, Image]
    clouds: Mapping[str, Sequence[Mapping[str, Any]]]
    disks: Sequence[Mapping[tuple[str, str], Sequence[Path]]]
    built: Mapping[str, str]
    processes: Sequence[str] = ()
    forgotten: Forgotten = field(default_factory=Forgotten)

    def wrong(self, wanted: Collection[str], formats: Mapping[str, str]) -> dict[str, list[str]]:
        """What is missing or should not be there, by kind; empty when all is well.

        :param wanted: names of images that must be ready everywhere.
        :param formats: provider -> format of its images.
        """
        found = {
            "not ready": self._not_ready(wanted, formats),
            "records that are not ready": self._unready_records(),
            "records of ready uploads that are not true": self._untrue_records(formats),
            "images in a cloud without a record": self._strangers(),
            "files without a record": self._stray_files(),
            "locks": self._locks(),
            "requests": [name for name, image in self.images.items() if image.requested],
            "more than is kept": self._too_much(wanted, formats),
            "processes": list(self.processes),
        }
        return {kind: which for kind, which in found.items() if which}

    def aliens(self, provider: str) -> list[str]:
        """Ids of images in a cloud without a record, a hand's doing or not."""
        known = {str((upload.record or {}).get("external_id")) for upload in self._uploads() if upload.record}
        return sorted(str(image["id"]) for image in self.clouds[provider] if image["id"] not in known)

    def _uploads(self) -> list[Upload]:
        return [upload for image in self.images.values() for upload in image.uploads()]

    def _cloud_image(self, upload: Upload) -> Mapping[str, Any] | None:
        external_id = (upload.record or {}).get("external_id")
        return next((image for image in self.clouds.get(upload.provider, ()) if image["id"] == external_id), None)

    def _not_ready(self, wanted: Collection[str], formats: Mapping[str, str]) -> list[str]:
        return [
            f"{name} in {provider}"
            for name in wanted
            for provider in formats
            if name not in self.images or self.images[name].current(provider) is None
        ]

    def _unready_records(self) -> list[str]:
        # A build whose record nobody can read stays as long as there are uploads of it that are wanted.
        builds = [
            build
            for image in self.images.values()
            for build in image.builds
            if build.record is not None or not any(upload.state == "ready" for upload in build.uploads)
        ]
        found = [f"{build.path} {build.state}" for build in builds if build.state != "ready"]
        return found + [f"{upload.path} {upload.state}" for upload in self._uploads() if upload.state != "ready"]

    def _untrue_records(self, formats: Mapping[str, str]) -> list[str]:
        found = []
        for upload in self._uploads():
            if upload.state != "ready":
                continue
            cloud_image = self._cloud_image(upload)
            name = f"{upload.image}-{upload.build_id}.{formats[upload.provider]}"
            if cloud_image is None:
                found.append(f"{upload.path}: the cloud has no image {(upload.record or {}).get('external_id')}")
            elif cloud_image["status"] != "active":
                found.append(f"{upload.path}: the image is {cloud_image['status']}")
            elif name not in self.built:
                found.append(f"{upload.path}: {name} was never built")
            elif cloud_image["checksum"] != self.built[name]:
                found.append(f"{upload.path}: checksum {cloud_image['checksum']}, the file's is {self.built[name]}")
        return found

    def _strangers(self) -> list[str]:
        return [
            f"{image['id']} {image['name']} {image['status']} in {provider}"
            for provider, images in self.clouds.items()
            for image in images
            if image["id"] in self.aliens(provider) and not self.forgotten.has(provider, image)
        ]

    def _stray_files(self) -> list[str]:
        known = {(name, build.build_id) for name, image in self.images.items() for build in image.builds}
        return [str(path) for disk in self.disks for key, paths in disk.items() if key not in known for path in paths]

    def _locks(self) -> list[str]:
        found = [f"{name}: {image.lockers}" for name, image in self.images.items() if image.lockers]
        for image in self.images.values():
            for build in image.builds:
                lockers = {build.path: build.lockers} | {upload.path: upload.lockers for upload in build.uploads}
                found += [f"{path}: {names}" for path, names in lockers.items() if names]
        return found

    def _too_much(self, wanted: Collection[str], formats: Mapping[str, str]) -> list[str]:
        found = []
        for name, image in self.images.items():
            kept = KEPT if name in wanted else 0
            newest = sorted(image.builds, key=lambda build: float((build.record or {}).get("state_time") or 0))
            for build in newest[: max(0, len(newest) - kept)]:
                if not build.uploads:
                    found.append(build.path)
            for provider in formats:
                ready = image.uploads(provider, "ready")
                if len(ready) > kept:
                    found.append(f"{name} in {provider}: {len(ready)} uploads")
        return found


def disks_of(disks: Sequence[Disk]) -> list[Mapping[tuple[str, str], Sequence[Path]]]:
    """The files of builds on each disk."""
    return [disk.builds() for disk in disks]
