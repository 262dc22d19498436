# SPDX-License-Identifier: Apache-2.0
"""Provider sections of the example driver."""

from __future__ import annotations

from typing import Any

import pytest
import voluptuous

from nodepool.config.objects import Config
from nodepool.driver.example.config import ExampleProviderConfig


def test_labels_and_images(provider_config: ExampleProviderConfig, configuration: Config) -> None:
    """reference/driver 4 to 6: a label has one of the two images; the image learns the format, the label its pool."""
    pool = provider_config.pools["main"]
    assert (pool.max_cores, pool.max_ram, pool.azs) == (8, None, ["north"])
    built, small = pool.labels["built"], pool.labels["small"]
    assert (built.diskimage, built.cloud_image) == (provider_config.diskimages["fedora"], None)
    assert (small.diskimage, small.cloud_image) == (None, provider_config.cloud_images["debian"])
    assert (built.diskimage.username, small.cloud_image.username) == ("zuul", "debian")
    assert configuration.diskimages["fedora"].image_types == {"qcow2"}
    assert configuration.labels["built"].pools == [pool]


def test_what_the_builder_reads(provider_config: ExampleProviderConfig) -> None:
    """reference/driver 4."""
    assert provider_config.manage_images
    assert provider_config.image_type == "qcow2"
    assert provider_config.image_name_format == "{image_name}-{timestamp}"
    assert provider_config.post_upload_hook is None
    assert not provider_config.diskimages["fedora"].pause


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ({"name": "small", "size": "small"}, "exactly one of diskimage and cloud-image"),
        ({"name": "small", "size": "small", "cloud-image": "debian", "diskimage": "fedora"}, "exactly one"),
        ({"name": "small", "size": "small", "cloud-image": "debain"}, "the provider has no cloud-image 'debain'"),
        ({"name": "small", "cloud-image": "debian"}, "required key not provided"),
    ],
)
def test_refused(
    provider_config: ExampleProviderConfig, section: dict[str, Any], label: dict[str, Any], expected: str
) -> None:
    """A mistake in a label is an error of the configuration, not of a launch."""
    section["pools"][0]["labels"] = [label]
    with pytest.raises(voluptuous.Invalid, match=expected):
        provider_config.getSchema()(section)
