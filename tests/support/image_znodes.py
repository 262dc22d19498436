# SPDX-License-Identifier: Apache-2.0
"""A look at, and a hand in, the znodes of images (reference/zookeeper 6).

Plain Kazoo and no code of ours, so that a mistake of ours cannot hide itself.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from kazoo.exceptions import NodeExistsError, NoNodeError, NotEmptyError

from tests.support.plain_kazoo import PlainKazoo

IMAGES = "/nodepool/images"
LOCK = "lock"
#: To remove a record with what is below it.
REMOVE_ATTEMPTS = 20


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


class ImageZnodes:
    """Reads and writes below one chroot.

    :param hosts: connection string with the chroot, for the port without TLS.
    """

    def __init__(self, hosts: str) -> None:
        self.kazoo = PlainKazoo(hosts=hosts, timeout=20.0)

    def start(self) -> None:
        self.kazoo.start(20)

    def stop(self) -> None:
        self.kazoo.stop()
        self.kazoo.close()

    def children(self, path: str) -> list[str]:
        """Names of the children, sorted; empty when there is no such znode."""
        try:
            return sorted(self.kazoo.get_children(path))
        except NoNodeError:
            return []

    def read(self, path: str) -> dict[str, Any] | None:
        """The object in a znode; None when it is gone, empty or not an object."""
        try:
            value = json.loads(self.kazoo.get(path)[0])
        except (NoNodeError, ValueError, RecursionError):
            return None
        return value if isinstance(value, dict) else None

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

    def request_build(self, image: str, source: dict[str, str] | None = None) -> None:
        """As ``nodepool image-build`` does it, or ``image-import``."""
        data = json.dumps(source).encode() if source else b""
        try:
            self.kazoo.create(f"{IMAGES}/{image}/request-build", data, makepath=True)
        except NodeExistsError:
            return

    def change(self, path: str, **fields: Any) -> None:
        """Changes fields of a record, unless somebody else changes it at this moment."""
        data, stat = self.kazoo.get(path)
        self.kazoo.set(path, json.dumps({**json.loads(data), **fields}).encode(), stat.version)

    def corrupt(self, path: str) -> None:
        """Nobody can read this record any more."""
        self.kazoo.set(path, b'{"state": "rea')

    def remove(self, path: str) -> None:
        """Removes a record with all below it, also while others take and release locks below it."""
        for _ in range(REMOVE_ATTEMPTS):
            try:
                self.kazoo.delete(path, recursive=True)
                return
            except NotEmptyError:
                continue

    def put(self, path: str, data: bytes = b"") -> str:
        """Creates a znode below the images, or overwrites it; returns its whole path."""
        path = f"{IMAGES}/{path}"
        if self.kazoo.exists(path):
            self.kazoo.set(path, data)
        else:
            self.kazoo.create(path, data, makepath=True)
        return path

    def add_build(self, image: str, build: str, **fields: Any) -> str:
        record = {
            "state": "ready",
            "state_time": time.time() - 60,
            "builder": "b.example",
            "builder_id": "x",
            "formats": "qcow2,raw",
            "username": "zuul",
            "python_path": "auto",
            "shell_type": None,
        }
        return self.put(f"{image}/builds/{build}", json.dumps({**record, **fields}).encode())

    def add_upload(self, image: str, build: str, provider: str = "lab", number: int = 1, **fields: Any) -> str:
        record = {
            "state": "ready",
            "state_time": time.time() - 30,
            "external_id": "ext",
            "external_name": f"{image}-1",
            "format": "qcow2",
            "username": "zuul",
            "python_path": "auto",
            "shell_type": None,
        }
        path = f"{image}/builds/{build}/providers/{provider}/images/{number:010}"
        return self.put(path, json.dumps({**record, **fields}).encode())

    def add_builder(self, hostname: str = "b.example") -> None:
        """Registers a builder; it stays as long as the session."""
        entry = json.dumps({"hostname": hostname, "kind": "builder", "state": "stopped"}).encode()
        self.kazoo.create(
            f"/nodepool/components/builder/{hostname}", entry, ephemeral=True, sequence=True, makepath=True
        )

    def tell(self, **status: Any) -> None:
        """Writes what a builder is doing."""
        path = "/nodepool/status/builder/b-1"
        data = json.dumps({"builder": "b.example", **status}).encode()
        if self.kazoo.exists(path):
            self.kazoo.set(path, data)
        else:
            self.kazoo.create(path, data, ephemeral=True, makepath=True)

    @contextlib.contextmanager
    def locked(self, path: str) -> Iterator[None]:
        """Inside, somebody holds the lock of a znode below the images."""
        lock = self.kazoo.Lock(f"{IMAGES}/{path}/lock", "somebody")
        lock.acquire()
        try:
            yield
        finally:
            lock.release()
