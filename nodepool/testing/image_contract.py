# SPDX-License-Identifier: Apache-2.0
"""`ImageContract`: what a driver with ``manage_images`` does with images (reference/driver 2; rules U-9, D-1).

::

    class TestMyDriver(ImageContract, DriverContract):
        diskimage = "fedora"

The section of `provider_section` lists ``fedora`` among its ``diskimages``.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from nodepool.driver.framework import uploads
from nodepool.driver.framework.uploads import ListedImage
from nodepool.driver.interface import Provider
from nodepool.testing.harness import DriverHarness

#: Metadata of an upload, as the builder gives them.
UPLOAD = {"nodepool_build_id": "b" * 32, "nodepool_upload_id": "0000000007"}


class ImageContract(DriverHarness):
    """Beside `nodepool.testing.contract.DriverContract`."""

    # -- hooks --

    #: An entry of the provider's ``diskimages``.
    diskimage: str = ""
    #: Longest time that an upload or the deletion of an image may take.
    image_seconds: float = 120.0
    #: An id as the cloud gives it, of an image that does not exist.
    unknown_image_id: Any = "no-such-image"

    def image_content(self) -> bytes:
        """Of the image that is uploaded."""
        return bytes(range(256)) * 1000

    # -- steps --

    def upload(self, provider: Provider, config: Any, file: Path, seen: list[tuple[int, int]]) -> Any:
        """What the builder does; returns the id of the image."""

        def call() -> Any:
            with uploads.watched(lambda done, total: seen.append((done, total))):
                return provider.uploadImage(
                    config.diskimages[self.diskimage], "image-1", str(file), config.image_type, dict(UPLOAD), None, None
                )

        return self.bounded("uploadImage()", call, self.image_seconds)

    def images(self, provider: Provider) -> list[ListedImage]:
        """Those of our upload."""
        found = self.bounded("listImages()", provider.listImages)
        return [image for image in found if UPLOAD.items() <= dict(image.metadata).items()]

    @pytest.fixture
    def image_file(self, tmp_path: Path) -> Path:
        path = tmp_path / "image"
        path.write_bytes(self.image_content())
        return path

    # -- tests --

    def test_image(self, provider: Provider, provider_config: Any, image_file: Path) -> None:
        """D-1: an uploaded image is listed with its metadata until it is deleted; to delete it again is no error."""
        seen: list[tuple[int, int]] = []
        image_id = self.upload(provider, provider_config, image_file, seen)
        assert image_id, f"uploadImage() returned {image_id!r}, no id"
        (image,) = self.images(provider)
        assert image.metadata.get("nodepool_provider_name") == provider.name, "the metadata lack the provider's name"
        size = image_file.stat().st_size
        assert all(0 <= done <= total == size for done, total in seen), f"progress of {size} bytes is told as {seen}"
        for _ in range(2):
            delete = partial(provider.deleteImage, "image-1", image_id)
            self.bounded("deleteImage()", delete, self.image_seconds)
            assert not self.images(provider), "the image is still listed"

    def test_listed_image_is_deleted(self, provider: Provider, provider_config: Any, image_file: Path) -> None:
        """D-1: an image whose upload nobody remembers is deleted by what a list shows."""
        self.upload(provider, provider_config, image_file, [])
        (image,) = self.images(provider)
        self.bounded("deleteImage()", partial(provider.deleteImage, image.name, image.id), self.image_seconds)
        assert not self.images(provider), "the image is still listed"

    def test_failed_upload(self, provider: Provider, provider_config: Any, tmp_path: Path) -> None:
        """U-9: an error of an upload is raised, and nothing is left behind."""
        with pytest.raises(Exception):  # noqa: B017 - which one is the driver's choice
            self.upload(provider, provider_config, tmp_path / "no-such-file", [])
        assert not self.images(provider), "an image is left behind"

    def test_delete_unknown_image(self, provider: Provider) -> None:
        """2: one that is gone already is no error."""
        self.bounded("deleteImage()", partial(provider.deleteImage, "gone", self.unknown_image_id), self.image_seconds)
