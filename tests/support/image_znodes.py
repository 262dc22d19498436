# SPDX-License-Identifier: Apache-2.0
"""Puts images into ZooKeeper as builders do, with plain Kazoo and no code of ours (reference/zookeeper 6)."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from typing import Any

from tests.support.pool_znodes import PoolZnodes

IMAGES = "/nodepool/images"


class ImageZnodes:
    def __init__(self, znodes: PoolZnodes) -> None:
        self.znodes = znodes
        self.kazoo = znodes.kazoo

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

    def read(self, path: str) -> dict[str, Any] | None:
        return self.znodes.read(path)
