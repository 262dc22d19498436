# SPDX-License-Identifier: Apache-2.0
"""nodepool.driver.framework.upload_check: a broken image is recognised."""

from __future__ import annotations

import pytest

from nodepool.driver.framework.upload_check import ImageContent, check_stored, difference
from nodepool.exceptions import ImageCreateException

SENT = ImageContent.of(10, md5="aa", sha256="bb")


@pytest.mark.parametrize(
    "stored",
    [
        ImageContent(),
        ImageContent(10),
        ImageContent.of(10, md5="AA ", sha256=None),
        ImageContent.of(None, sha512="cc"),
        ImageContent.of(10, md5="", sha256="bb"),
    ],
)
def test_the_same(stored: ImageContent) -> None:
    """U-14: only what both sides tell is compared."""
    assert difference(SENT, stored) is None
    check_stored("fedora-1", SENT, stored)


@pytest.mark.parametrize(
    ("stored", "told"),
    [
        (ImageContent(7), "7 of 10 bytes are in the cloud"),
        (ImageContent.of(10, md5="ab"), "the md5 of the file is aa, that of the image in the cloud is ab"),
        (ImageContent.of(10, md5="aa", sha256="bc"), "the sha256 of the file is bb"),
        (ImageContent.of(0, md5="aa"), "0 of 10 bytes"),
    ],
)
def test_another_one(stored: ImageContent, told: str) -> None:
    """U-14: cut off, or corrupted."""
    with pytest.raises(ImageCreateException, match=f"image fedora-1 did not arrive as it was sent: {told}"):
        check_stored("fedora-1", SENT, stored)


def test_size_of_the_file_is_not_known() -> None:
    assert difference(ImageContent(), ImageContent(5)) is None
