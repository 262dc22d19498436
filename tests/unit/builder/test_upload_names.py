# SPDX-License-Identifier: Apache-2.0
"""nodepool.builder.upload_names: how images are called and marked, and known again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from nodepool.builder.upload_names import external_name, is_of_upload, properties
from nodepool.driver.framework.listed_image import ListedImage
from nodepool.exceptions import BuilderError
from nodepool.model.image import ImageUpload

IDS = {"nodepool_provider_name": "cloud", "nodepool_build_id": "b1", "nodepool_upload_id": "0000000001"}
NAME = "debian-1700000000"


@pytest.mark.parametrize(
    ("form", "name"),
    [
        ("{image_name}-{timestamp}", "debian-1700000000"),
        ("x-{image_name}-{upload_id}", "x-debian-0000000001"),
        ("debian", "debian"),
        ("{timestamp:.6}", "170000"),
    ],
)
def test_name(form: str, name: str) -> None:
    """U-3."""
    assert external_name(form, "debian", "0000000001", 1700000000) == name


@pytest.mark.parametrize("form", ["{nothing}", "{}", "{image_name", "{image_name.nothing}"])
def test_bad_form(form: str) -> None:
    with pytest.raises(BuilderError, match=r"image-name-format .* cannot be used"):
        external_name(form, "debian", "0000000001", 1700000000)


def test_properties() -> None:
    """U-4, D-1: the later ones win; some drivers say tags."""
    of_image = {"a": "image", "b": "image", "nodepool_build_id": "somebody's"}
    for attribute in ("meta", "tags"):
        found = properties(of_image, SimpleNamespace(**{attribute: {"b": "provider"}}), "cloud", "b1", "0000000001")
        assert found == {"a": "image", "b": "provider", **IDS}
    assert properties({}, SimpleNamespace(), "cloud", "b1", "0000000001") == IDS


def record(name: str | None, time: float = 1700000005.0) -> ImageUpload:
    upload = ImageUpload("debian", "b1", "cloud", "0000000001")
    upload.external_name, upload.state_time = name, time
    return upload


@pytest.mark.parametrize(
    ("metadata", "name", "of", "expected"),
    [
        (IDS, "anything", None, True),
        (IDS, NAME, record("other"), True),
        ({**IDS, "nodepool_upload_id": "0000000002"}, NAME, record(NAME), False),
        ({**IDS, "nodepool_build_id": "b2"}, NAME, record(NAME), False),
        ({**IDS, "nodepool_provider_name": "other"}, NAME, record(NAME), False),
        ({"nodepool_provider_name": "other"}, NAME, record(NAME), False),
        ({}, NAME, record(NAME), True),
        ({}, NAME, record(None), False),
        ({}, NAME, None, False),
        ({}, NAME, record("debian-1700000001"), False),
        ({}, "debian", record("debian"), False),
        ({}, NAME, record(NAME, 1700009000.0), False),
        ({}, "image-12", record("image-12"), False),
    ],
)
def test_known_again(metadata: dict[str, Any], name: str, of: ImageUpload | None, expected: bool) -> None:
    """R-4: by ids; by the name only if it tells the time of the upload, so that nothing else has it."""
    assert is_of_upload(ListedImage("i-1", name, metadata), "cloud", "b1", "0000000001", of) is expected
