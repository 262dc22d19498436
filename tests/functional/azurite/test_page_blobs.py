# SPDX-License-Identifier: Apache-2.0
"""What the driver writes to the address of a disk is what the storage service of Azure takes (AZ-12).

The disk is a page blob, as behind the disks of Azure. Microsoft's client makes it, and reads it. Azurite does not
compare checksums.
"""

from __future__ import annotations

import datetime
import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from azure.storage.blob import BlobSasPermissions, BlobServiceClient, generate_blob_sas

from nodepool.driver.azure.client import SUCCEEDED
from nodepool.driver.azure.client import ArmResource as AzureImage
from nodepool.driver.azure.config import MIB
from nodepool.driver.azure.images import SEGMENT_BYTES, AzureImageCalls, DiskUpload
from nodepool.driver.framework.cloud_errors import CloudNotFound, CloudRefused
from nodepool.driver.framework.http.plain_http import PlainHttp
from tests.functional.azurite.conftest import ACCOUNT, KEY
from tests.support.vhd import fixed_footer

#: Whole segments of which the second one is empty, then a part of one, and the footer.
SIZE = 3 * SEGMENT_BYTES + MIB
CONTENT = (
    b"boot" * (SEGMENT_BYTES // 4)
    + bytes(SEGMENT_BYTES)
    + b"root" * (SEGMENT_BYTES // 4)
    + b"tail" * (MIB // 4)
    + fixed_footer(SIZE)
)
NAME = "fedora-1"


class BlobCalls(AzureImageCalls):
    """Disks are page blobs; of images there is only the name."""

    def __init__(self, storage: BlobServiceClient, http: PlainHttp) -> None:
        arm: Any = SimpleNamespace(calls=SimpleNamespace(provider="north"), image=self._image)
        super().__init__(arm, http, "northeurope")
        self._storage = storage
        self._images: set[str] = set()

    def _image(self, name: str) -> AzureImage:
        if name not in self._images:
            raise CloudNotFound(name, 404)
        return AzureImage({"id": name, "properties": {"provisioningState": SUCCEEDED}})

    def create_disk(self, name: str, size: int, tags: Mapping[str, str], wanted: Callable[[], None]) -> None:
        self._storage.get_blob_client("disks", name).create_page_blob(size)

    def begin_access(self, name: str, wanted: Callable[[], None]) -> str:
        """As Azure: an address that allows to write."""
        end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)
        permission = BlobSasPermissions(write=True)
        token = generate_blob_sas(ACCOUNT, "disks", name, account_key=KEY, permission=permission, expiry=end)
        return f"{self._storage.get_blob_client('disks', name).url}?{token}"

    def end_access(self, name: str) -> None:
        """Azurite has no such thing."""

    def create_image(self, name: str, disk: str, tags: Mapping[str, str], wanted: Callable[[], None]) -> None:
        self._images.add(name)

    def delete_resource(self, kind: str, name: str) -> None:
        """The test looks at the disk."""


@pytest.fixture
def calls(storage: BlobServiceClient) -> Iterator[BlobCalls]:
    http = PlainHttp(12)
    yield BlobCalls(storage, http)
    http.close()


def test_upload(storage: BlobServiceClient, calls: BlobCalls, tmp_path: Path) -> None:
    """AZ-12: every byte arrives, and what is empty is not sent."""
    file = tmp_path / "image.vhd"
    file.write_bytes(CONTENT)
    assert DiskUpload(calls, str(file), NAME, {}).upload() == NAME
    blob = storage.get_blob_client("disks", NAME)
    assert blob.download_blob().readall() == CONTENT
    written = [(part.start or 0, part.end or 0) for part in blob.list_page_ranges()]
    assert sum(end - start + 1 for start, end in written) == len(CONTENT) - SEGMENT_BYTES
    assert not any(start < 2 * SEGMENT_BYTES and end >= SEGMENT_BYTES for start, end in written)


def test_address_that_is_not_valid_any_more(calls: BlobCalls, caplog: pytest.LogCaptureFixture) -> None:
    """AZ-12: it is refused, and the signature is in no text."""
    calls.create_disk("ended", MIB, {}, lambda: None)
    address = calls.begin_access("ended", lambda: None)
    signature = address.partition("sig=")[2].partition("&")[0]
    with caplog.at_level(logging.DEBUG), pytest.raises(CloudRefused, match="status 403") as refused:
        calls.write_pages(address.replace(signature, f"x{signature}"), 0, b"page" * 128)
    assert signature not in f"{refused.value}{caplog.text}"
