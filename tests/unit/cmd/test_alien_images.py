# SPDX-License-Identifier: Apache-2.0
"""Images in clouds that ZooKeeper does not know (rule D-3)."""

from __future__ import annotations

from typing import Any

import pytest

from nodepool.cmd.alien_images import KnownUploads, aliens, known_uploads
from nodepool.driver.framework.listed_image import ListedImage
from nodepool.model.image_view import BuildView, UploadView
from tests.support.image_records import build_view, image_view, images_view, upload

KNOWN = KnownUploads({("b1", "0000000001")}, {"ext"})


def image(id: Any = "new", build: str | None = "b9", number: str = "0000000001", provider: str | None = "lab") -> Any:
    metadata = {
        "nodepool_build_id": build,
        "nodepool_upload_id": number,
        "nodepool_provider_name": provider,
    }
    return ListedImage(id, "name", {key: value for key, value in metadata.items() if value is not None})


@pytest.mark.parametrize(
    ("listed", "alien"),
    [
        (image(), True),
        (image(provider=None), True),
        (image(provider="gone"), True),
        (image("ext"), False),
        (image(build="b1"), False),
        (image(build="b1", number="0000000002"), True),
        (image(build=None), False),
        (image(provider="other"), False),
    ],
)
def test_which_images_are_aliens(listed: ListedImage, alien: bool) -> None:
    """Those of a builder; not those of a provider that is asked itself, and not those with a record."""
    assert list(aliens([listed], KNOWN, "lab", {"other"})) == [listed] * alien


def test_uploads_that_are_known() -> None:
    """Also those whose record cannot be read; external ids may be of any type."""
    build = build_view("deb", "b1", [upload("deb", "b1", "lab"), upload("deb", "b1", "odd", external_id=7)])
    broken = BuildView("b2", None, uploads={"lab": (UploadView("0000000003", None),)})
    known = known_uploads(images_view(image_view("deb", build, broken)), "lab")
    assert known == KnownUploads({("b1", "0000000001"), ("b2", "0000000003")}, {"ext", "7"})
