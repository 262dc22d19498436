# SPDX-License-Identifier: Apache-2.0
"""A look at, and a hand in, the znodes of images (reference/zookeeper 6). Plain Kazoo and no code of ours."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from kazoo.exceptions import NodeExistsError, NotEmptyError

from tests.support.json_znodes import JsonZnodes

IMAGES = "/nodepool/images"
LOCK = "lock"
#: To remove a record with what is below it.
VANISH_ATTEMPTS = 20


@dataclass
class Upload:
    """:param record: None: it cannot be read."""

    image: str
    build_id: str
    provider: str
    upload_id: str
    record: dict[str, Any] | None
    lockers: list[str]

    @property
    def state(self) -> str:
        return str((self.record or {}).get("state", "unreadable"))

    @property
    def path(self) -> str:
        return f"{IMAGES}/{self.image}/builds/{self.build_id}/providers/{self.provider}/images/{self.upload_id}"


@dataclass
class Build:
    """:param record: None: it cannot be read. :param lockers: of the build and of its uploads to each provider."""

    image: str
    build_id: str
    record: dict[str, Any] | None
    lockers: list[str] = field(default_factory=list)
    uploads: list[Upload] = field(default_factory=list)

    @property
    def state(self) -> str:
        return str((self.record or {}).get("state", "unreadable"))

    @property
    def path(self) -> str:
        return f"{IMAGES}/{self.image}/builds/{self.build_id}"


@dataclass
class Image:
    """:param lockers: of its builds. :param requested: is there a request to build it?"""

    name: str
    lockers: list[str] = field(default_factory=list)
    requested: bool = False
    builds: list[Build] = field(default_factory=list)

    def uploads(self, provider: str | None = None, state: str | None = None) -> list[Upload]:
        """Of all builds, or of one provider, or in one state."""
        return [
            upload
            for build in self.builds
            for upload in build.uploads
            if provider in (None, upload.provider) and state in (None, upload.state)
        ]

    def current(self, provider: str) -> Upload | None:
        """What a launcher takes: the ready upload with the greatest state time."""
        ready = self.uploads(provider, "ready")
        return max(ready, key=lambda upload: float((upload.record or {}).get("state_time") or 0), default=None)


class StoredImages(JsonZnodes):
    """Reads and writes below one chroot."""

    # -- looking

    def created(self, path: str) -> float:
        """When a znode was made, in seconds since the epoch."""
        return float(self.kazoo.get(path)[1].ctime) / 1000

    def images(self) -> dict[str, Image]:
        """All that there is, by name of the image. No one moment: it takes many calls."""
        return {name: self.image(name) for name in self.children(IMAGES)}

    def image(self, name: str) -> Image:
        builds = f"{IMAGES}/{name}/builds"
        requested = "request-build" in self.children(f"{IMAGES}/{name}")
        found = Image(name, self.children(f"{builds}/{LOCK}"), requested)
        for build_id in self.children(builds):
            if build_id != LOCK:
                found.builds.append(self._build(name, build_id))
        return found

    def _build(self, image: str, build_id: str) -> Build:
        path = f"{IMAGES}/{image}/builds/{build_id}"
        found = Build(image, build_id, self.read(path), self.children(f"{path}/{LOCK}"))
        for provider in self.children(f"{path}/providers"):
            uploads = f"{path}/providers/{provider}/images"
            found.lockers += self.children(f"{uploads}/{LOCK}")
            for upload_id in self.children(uploads):
                if upload_id != LOCK:
                    own = f"{uploads}/{upload_id}"
                    lockers = self.children(f"{own}/{LOCK}")
                    found.uploads.append(Upload(image, build_id, provider, upload_id, self.read(own), lockers))
        return found

    # -- doing

    def request_build(self, image: str) -> None:
        """As ``nodepool image-build`` does it."""
        try:
            self.kazoo.create(f"{IMAGES}/{image}/request-build", makepath=True)
        except NodeExistsError:
            return

    def change(self, path: str, **fields: Any) -> None:
        """Changes fields of a record, unless somebody else changes it at this moment."""
        data, stat = self.kazoo.get(path)
        self.kazoo.set(path, json.dumps({**json.loads(data), **fields}).encode(), stat.version)

    def corrupt(self, path: str) -> None:
        """Nobody can read this record any more."""
        self.kazoo.set(path, b'{"state": "rea')

    def vanish(self, path: str) -> None:
        """Removes a record with all below it, also while others take and release locks below it."""
        for _ in range(VANISH_ATTEMPTS):
            try:
                self.kazoo.delete(path, recursive=True)
                return
            except NotEmptyError:
                continue
