# SPDX-License-Identifier: Apache-2.0
"""Uploads of images by a provider in the simulated region."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from nodepool.driver.aws.adapter import AwsAdapter
from nodepool.driver.aws.images import BLOCK_BYTES
from nodepool.driver.framework import uploads
from simulators.aws import AwsSimulator
from simulators.aws.cloud import Region
from tests.unit.driver.aws.support import PROVIDER, load, section

BUILD = "b" * 32
#: Of the file: blocks of two kinds, others that are empty, and one that is short.
DATA = b"".join(bytes([number % 3]) * BLOCK_BYTES for number in range(7)) + b"end"


def ids(upload: int = 1, provider: str = PROVIDER, build: str = BUILD) -> dict[str, str]:
    """What the image of an upload carries."""
    return {"nodepool_provider_name": provider, "nodepool_build_id": build, "nodepool_upload_id": f"{upload:010}"}


class Uploads:
    """A provider, its region, and a file to upload.

    :param method: of the import.
    """

    def __init__(self, simulator: AwsSimulator, directory: Path, method: str) -> None:
        self.simulator = simulator
        self.method = method
        self.file = directory / "image.raw"
        self.file.write_bytes(DATA)
        self.adapter = self.new_adapter()

    def new_adapter(self, **more: Any) -> AwsAdapter:
        """As after a restart."""
        image = {"name": "debian", "import-method": self.method, "tags": {"team": "ci"}}
        given = {"region-name": "us-east-1", "object-storage": {"bucket-name": "images"}, "diskimages": [image]}
        return AwsAdapter(load(section(**{**given, **more})))

    def upload(
        self, upload: int = 1, report: Callable[[int, int], None] = lambda *_: None, sha256: str | None = None
    ) -> str:
        image = self.adapter.config.diskimages["debian"]
        with uploads.watched(report):
            return self.adapter.uploadImage(
                image, f"debian-{upload}", str(self.file), "raw", ids(upload), sha256=sha256
            )

    def events(self, name: str) -> int:
        with self.simulator.cloud() as cloud:
            return cloud.core.events[name]

    def look(self, ask: Callable[[Region], Any]) -> Any:
        with self.simulator.cloud() as cloud:
            return ask(cloud)

    def left(self) -> dict[str, int]:
        """What no image needs."""
        found: dict[str, int] = self.look(lambda cloud: cloud.left_of_uploads())
        return {kind: number for kind, number in found.items() if number}
